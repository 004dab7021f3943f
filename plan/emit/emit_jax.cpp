#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/emit/emit.h"
#include "plan/emit/jax_constraints.h"

namespace automap::emit {

using namespace partition;

namespace {

constexpr const char* kAxis = "devices";

// The functions behind the tables. Nothing but JAX is needed; they are meant to be read.
constexpr const char* kFunctions = R"PY(

def mesh(devices=None):
    """A mesh of SHARDS devices with the axes of MESH; those of the last one are neighbours."""
    devices = list(jax.devices() if devices is None else devices)
    if len(devices) < SHARDS:
        raise ValueError(f"this plan is for {SHARDS} devices, and there are {len(devices)}; to try it on a CPU set "
                         f"XLA_FLAGS=--xla_force_host_platform_device_count={SHARDS}")
    return jax.sharding.Mesh(np.array(devices[:SHARDS]).reshape(tuple(MESH.values())), tuple(MESH))


def specs_for(tree, prefix, unknown="error"):
    """The PartitionSpec of every leaf of `tree`, which is the step's argument `prefix` ("params"), as the same tree.

    Raises ValueError when the plan knows leaves that the tree has not, or with other shapes, and when the tree has
    leaves that the plan does not know. Those are arguments that the step did not use when its HLO was written:
    unknown="replicate" gives them PartitionSpec().
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    specs, wrong, new, seen = [], [], [], set()
    for path, leaf in leaves:
        name = _known_name(prefix, path)
        if name not in SPECS:
            new.append(name)
            specs.append(P())
            continue
        seen.add(name)
        shape = tuple(getattr(leaf, "shape", ()))
        if shape != SHAPES[name]:
            wrong.append(f"{name} has shape {shape}, the plan's has {SHAPES[name]}")
        specs.append(SPECS[name])
    missing = [name for name in SPECS if _belongs(name, prefix) and name not in seen]
    if missing:
        wrong.append(f"missing: {_some(missing)}")
    if new and unknown != "replicate":
        wrong.append(f"not in the plan: {_some(new)} (arguments that the step does not use? unknown=\"replicate\")")
    if wrong:
        raise ValueError(f"{prefix} does not fit the plan of {MODEL}: " + "; ".join(wrong))
    return jax.tree_util.tree_unflatten(structure, specs)


def argument_specs(*arguments, names=None, unknown="error"):
    """specs_for() of every argument of the step, in order. `names` when some argument is not in ARGUMENTS."""
    if names is None:
        names = ARGUMENTS[:-1] + _names_of_rest(arguments)
    if len(names) != len(arguments):
        raise ValueError(f"{len(arguments)} arguments, but the plan knows {len(names)}: {', '.join(names)}; give the "
                         "names of all arguments of the step with names=")
    return tuple(specs_for(tree, name, unknown) for tree, name in zip(arguments, names))


def result_specs(tree):
    """The PartitionSpec of every leaf of the step's result; `tree` = jax.eval_shape(step, *arguments)."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    if len(leaves) != len(RESULTS):
        raise ValueError(f"the step returns {len(leaves)} arrays, the plan's returned {len(RESULTS)}")
    for number, (leaf, (_, shape)) in enumerate(zip(leaves, RESULTS)):
        if tuple(leaf.shape) != shape:
            raise ValueError(f"result {number} has shape {tuple(leaf.shape)}, the plan's has {shape}")
    return jax.tree_util.tree_unflatten(structure, [spec for spec, _ in RESULTS])


def shardings(specs, on_mesh):
    """NamedSharding for every PartitionSpec of a tree."""
    return jax.tree_util.tree_map(lambda spec: jax.sharding.NamedSharding(on_mesh, spec), specs,
                                  is_leaf=lambda x: isinstance(x, P))


def constrained(step, on_mesh):
    """`step` with the plan's shardings inside: with_sharding_constraint on what the equations of INSIDE read and make.

    Equations are found by their operation, shapes and order. Where the step has another number of them than the plan's
    had, and the plan says different things of them, nothing is said of those, and a warning names them.
    """
    def run(*arguments):
        closed, result = jax.make_jaxpr(step, return_shape=True)(*arguments)
        counts = {}
        _with_constraints(closed.jaxpr, lambda equation: counts.update({equation: counts.get(equation, 0) + 1}), None)
        unclear = [equation for equation, said in INSIDE.items() if len(said) > 1 and counts.get(equation, 0) != len(said)]
        if unclear:
            warnings.warn(f"the step is not the plan's of {MODEL}, its shardings are left to XLA at: {_some(unclear)}")
        number = dict.fromkeys(counts, -1)

        def said_of(equation):
            number[equation] += 1
            said = [] if equation in unclear else INSIDE.get(equation, [])
            return said[number[equation] if len(said) > 1 else 0] if said else None

        jaxpr = _with_constraints(closed.jaxpr, said_of, on_mesh)
        leaves = jax.core.eval_jaxpr(jaxpr, closed.consts, *jax.tree_util.tree_leaves(arguments))
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(result), leaves)

    return functools.wraps(step)(run)


def jit(step, *arguments, names=None, unknown="error", devices=None, **options):
    """jax.jit(constrained(step)) with the plan's in_shardings and out_shardings. `arguments` may be ShapeDtypeStructs."""
    on_mesh = mesh(devices)
    return jax.jit(constrained(step, on_mesh),
                   in_shardings=shardings(argument_specs(*arguments, names=names, unknown=unknown), on_mesh),
                   out_shardings=shardings(result_specs(jax.eval_shape(step, *arguments)), on_mesh), **options)


# Equations whose own jaxprs are parts of the step; a kernel's are not.
_OPENED = ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "scan", "while", "cond",
           "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
_WORDS = {"dot_general": ("dot_general", 2), "conv_general_dilated": ("conv_general_dilated", 2), "gather": ("gather", 1),
          "reshape": ("spread", 1), "broadcast_in_dim": ("spread", 1), "slice": ("slice", 1), "split": ("slice", 1), "pad": ("pad", 1),
          "concatenate": ("concatenate", None)}


def _texts(eqn):
    """An equation as INSIDE writes it: ["dot_general (16, 32, 64) (64, 64) -> (16, 32, 64)"]; one text per result of a split."""
    name = eqn.primitive.name
    word, operands = _WORDS.get(name) or (
        ("scatter", 1) if name.startswith("scatter") else ("reduce", 1) if name.startswith("reduce_") else ("", 0))
    made = eqn.outvars if name == "split" else eqn.outvars[:1]

    def shape(variable):
        return "(" + ", ".join(map(str, getattr(variable.aval, "shape", ()))) + ")"

    return [" ".join([word, *map(shape, eqn.invars[:operands]), "->", shape(one)]) for one in made] if word else []


def _opened(eqn, change):
    """The parameters of an equation, `change` applied to the jaxprs that are parts of the step, in order."""
    def changed(value):
        if isinstance(value, (tuple, list)):
            return type(value)(map(changed, value)) if any(map(is_part, value)) else value
        if not is_part(value):
            return value
        return value.replace(jaxpr=change(value.jaxpr)) if hasattr(value, "jaxpr") else change(value)

    def is_part(value):
        return hasattr(value, "eqns")

    # A loop's condition is no part of what the plan counts.
    return {key: changed(value) if key not in ("cond_jaxpr", "jvp_jaxpr_fun", "fwd_jaxpr_thunk") else value
            for key, value in eqn.params.items()}


def _with_constraints(jaxpr, said_of, on_mesh):
    """The jaxpr with what said_of(text) says of its equations, asked in the order of the program."""
    equations = []

    def constraint(variable, spec):
        """An equation, and the new variable that it reads."""
        sharding = jax.sharding.NamedSharding(on_mesh, spec)
        made = jax.make_jaxpr(lambda x: jax.lax.with_sharding_constraint(x, sharding))(
            jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype)).jaxpr
        return made.eqns[0], made.invars[0], made.outvars[0]

    for eqn in jaxpr.eqns:
        before = {}  # what a loop hands on unchanged and its body reads otherwise is read so in front of it: once
        if eqn.primitive.name in _OPENED:
            skip = eqn.params.get("cond_nconsts", 0)
            unchanged = {"scan": "num_consts", "while": "body_nconsts"}.get(eqn.primitive.name)
            constants = range(eqn.params[unchanged] if unchanged else 0)

            def part_of(part):
                new = _with_constraints(part, said_of, on_mesh)
                inner = {id(part.invars[at]): skip + at for at in constants}
                for one in new.eqns:
                    if one.primitive.name == "sharding_constraint" and id(one.invars[0]) in inner:
                        before.setdefault(inner[id(one.invars[0])], []).append(one)
                return new

            eqn = eqn.replace(params=_opened(eqn, part_of))
        said = [said_of(text) or ((), None) for text in _texts(eqn)]
        reads, makes, behind = list(eqn.invars), list(eqn.outvars), []

        def read_as(at, spec):
            if not hasattr(reads[at], "val"):  # no literal
                says, _, out = constraint(reads[at], spec)
                equations.append(says.replace(invars=[reads[at]]))
                reads[at] = out

        for at, inner in before.items():
            if all(one.params["sharding"] == inner[0].params["sharding"] for one in inner):
                read_as(at, inner[0].params["sharding"].spec)
        for at, spec in enumerate(said[0][0] if said else ()):
            if spec is not None:
                read_as(at, spec)
        for at, (_, result) in enumerate(said):
            if result is not None:
                says, made, _ = constraint(makes[at], result)
                behind.append(says.replace(outvars=[makes[at]]))
                makes[at] = made
        equations.append(eqn.replace(invars=reads, outvars=makes))
        equations += behind
    return jaxpr.replace(eqns=equations)


def _names_of_rest(arguments):
    """The last of ARGUMENTS, or, where that is *rest, as many as are left: rest/0, rest/1."""
    last, rest = ARGUMENTS[-1:], arguments[len(ARGUMENTS) - 1:]
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(rest[:1])[0]]
    if not last or len(rest) == 1 and any(_known_name(last[0], path[1:]) in SPECS for path in paths):
        return last
    several = tuple(f"{last[0]}/{k}" for k in range(len(rest)))
    return several if any(_belongs(name, one) for name in SPECS for one in several) else last


def _known_name(prefix, path):
    exact = prefix + jax.tree_util.keystr(path)
    if exact in SPECS:
        return exact
    keys = [prefix]
    for entry in path:
        keys += [str(getattr(entry, field)) for field in ("key", "idx", "name") if hasattr(entry, field)][:1]
    return "/".join(keys)


def _belongs(name, prefix):
    return name == prefix or name.startswith((prefix + "/", prefix + "[", prefix + "."))


def _some(names):
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
)PY";

// For comments and the module's docstring.
std::string one_line(const std::string& text) {
  std::string out = printable(text);
  out.erase(std::remove_if(out.begin(), out.end(), [](char c) { return c == '"' || c == '\\'; }), out.end());
  return out;
}

// One axis of the mesh and its use.
struct Axis {
  std::string name;
  const PartitionPlan* plan = nullptr;
};

// The PartitionSpec of a tensor, from the dimension that each axis splits (-1: none). If several axes split one
// dimension, the inner axis comes first (layout.h).
std::string spec(const std::vector<Axis>& axes, const std::vector<int>& dims) {
  const int last = *std::max_element(dims.begin(), dims.end());
  std::string out = "P(";
  for (int d = 0; d <= last; ++d) {
    std::string names;
    int several = 0;
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      if (dims[axis] != d) continue;
      names += (names.empty() ? "\"" : ", \"") + axes[axis].name + "\"";
      ++several;
    }
    out += (d == 0 ? "" : ", ") + (several == 0 ? "None" : several == 1 ? names : "(" + names + ")");
  }
  return out + ")";
}

// (2, 3), (4,), ()
std::string shape_tuple(const graph::Shape& shape) {
  std::string out = "(";
  for (std::size_t d = 0; d < shape.dims.size(); ++d) {
    out += (d == 0 ? "" : ", ") + std::to_string(shape.dims[d]);
  }
  return out + (shape.dims.size() == 1 ? ",)" : ")");
}

// "params" of "params/wte/embedding", "params['wte']" and "params.wte".
std::string argument_of(const std::string& name) {
  return name.substr(0, name.find_first_of("/[.{"));
}

// The shardings of the operands and results of the step's equations. Equal equations have one entry where the plan
// treats them all alike.
std::string inside(const std::vector<Axis>& axes, const Layout& layout) {
  std::map<std::string, std::vector<JaxConstraint>> of_equation;
  for (JaxConstraint& one : jax_constraints(layout)) of_equation[one.equation].push_back(std::move(one));
  const auto spec_or_none = [&](const std::optional<AxisDims>& dims) { return dims ? spec(axes, *dims) : "None"; };
  std::string out =
      "# How equations read their operands and make their result: those alike, in order, or one for all.\nINSIDE = {\n";
  for (auto& [equation, list] : of_equation) {
    const JaxConstraint first = list.front();
    if (std::all_of(list.begin(), list.end(), [&](const JaxConstraint& one) { return one == first; })) list.resize(1);
    out += "    " + python_literal(equation) + ": [";
    for (std::size_t i = 0; i < list.size(); ++i) {
      out += std::string(i == 0 ? "" : ",") + (list.size() == 1 ? "((" : "\n        ((");
      for (const std::optional<AxisDims>& operand : list[i].operands) out += spec_or_none(operand) + ", ";
      out.pop_back();
      if (list[i].operands.size() > 1) out.pop_back();
      out += "), " + spec_or_none(list[i].result) + ")";
    }
    out += "],\n";
  }
  return out + "}\n";
}

// `says`: of the plan, for people.
std::string python_of(const sharding::ShardingModel& model, const std::vector<Axis>& axes, const Layout& layout,
                      const std::string& name, const std::string& says) {
  const PartitionPlan& plan = *axes[0].plan;  // for what all axes list alike
  int shards = 1, moved = 0;
  for (const Axis& axis : axes) {
    shards *= axis.plan->shards;
    moved += axis.plan->all_gathers + axis.plan->all_to_alls + axis.plan->permutes;
  }
  const auto spec_of = [&](const auto& dim_in) {
    std::vector<int> dims;
    for (const Axis& axis : axes) dims.push_back(dim_in(*axis.plan));
    return spec(axes, dims);
  };
  if (plan.inputs.size() != model.inputs().size() || plan.results.size() != model.flow().results().size()) {
    throw Error(ErrorKind::kData, "the plan lists " + plural(static_cast<int>(plan.inputs.size()), "input") + " and " +
                                      plural(static_cast<int>(plan.results.size()), "result") + ", the model has " +
                                      std::to_string(model.inputs().size()) + " and " +
                                      std::to_string(model.flow().results().size()));
  }
  // Two inputs with one path keep the names they have.
  std::map<std::string, int> paths;
  for (const PlanTensor& input : plan.inputs) ++paths[sharding::path_of(input.name)];
  std::vector<std::string> keys, arguments;
  std::set<std::string> used;
  for (const PlanTensor& input : plan.inputs) {
    std::string key = sharding::path_of(input.name);
    if (paths[key] > 1) key = input.name;
    if (!used.insert(key).second) used.insert(key = input.parameter);
    keys.push_back(key);
    const std::string argument = argument_of(key);
    if (arguments.empty() || arguments.back() != argument) arguments.push_back(argument);
  }
  std::string out = "\"\"\"How to shard " + one_line(name.empty() ? "the model" : name) + " over " +
                    plural(shards, "device") + ": a plan of AutoMap (" + one_line(says) + ").\n\n" +
                    R"PY(    import jax, THIS_FILE as plan
    step = plan.jit(train_step, *arguments)       # jax.jit with the plan's shardings of arguments, results and inside

or piece by piece: mesh(), specs_for(params, "params"), argument_specs(*arguments), result_specs(result), shardings(),
constrained(step, mesh).
)PY";
  if (moved > 0) {
    out += "\nThe plan gathers or exchanges " + plural(moved, "tensor") +
           " inside the step. Shardings of arguments and results do not say where: jit() and\n"
           "constrained(step, mesh()) say it of the step's products, look-ups, scatters and reductions (INSIDE).\n";
  }
  if (plan.sums_combined) {
    out +=
        "\nThe plan adds partial sums up before they are reduced. Shardings of arguments and results cannot say that, "
        "so\n"
        "XLA reduces each where it arises; the module of --emit-hlo says it.\n";
  }
  out += R"PY("""
import functools
import warnings

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

)PY";
  out += "MODEL = " + python_literal(name) + "\n";
  std::string mesh;
  for (const Axis& axis : axes) {
    mesh += (mesh.empty() ? "\"" : ", \"") + axis.name + "\": " + std::to_string(axis.plan->shards);
  }
  out += "# Axes and how many devices they have, from the outermost.\nMESH = {" + mesh + "}\n";
  out += "SHARDS = " + std::to_string(shards) + "\n";
  std::string listed;
  std::set<std::string> seen;
  for (const std::string& argument : arguments) {
    if (seen.insert(argument).second) listed += (listed.empty() ? "" : ", ") + python_literal(argument);
  }
  out += "# The arguments of the step, by the names of its inputs.\nARGUMENTS = (" + listed +
         (seen.size() == 1 ? "," : "");
  out += ")\n\nSPECS = {\n";
  std::string shapes = "}\n\nSHAPES = {\n", heading;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const graph::Shape& shape = model.flow().shape(model.inputs()[i].node);
    const std::string argument = argument_of(keys[i]);
    if (argument != heading) out += "    # " + one_line(argument) + "\n";
    heading = argument;
    out += "    " + python_literal(keys[i]) + ": " +
           spec_of([&](const PartitionPlan& of) { return of.inputs[i].dim; }) + ",\n";
    shapes += "    " + python_literal(keys[i]) + ": " + shape_tuple(shape) + ",\n";
  }
  out += shapes + "}\n\n# Of every array that the step returns, in order.\nRESULTS = [\n";
  for (std::size_t r = 0; r < plan.results.size(); ++r) {
    const PlanResult& result = plan.results[r];
    out += "    (" + spec_of([&](const PartitionPlan& of) { return of.results[r].dim; }) + ", " +
           shape_tuple(model.flow().shape(model.flow().results()[r])) + "),";
    if (!result.input.empty()) out += "  # " + one_line(sharding::path_of(result.input));
    out += "\n";
  }
  return out + "]\n\n" + inside(axes, layout) + kFunctions;
}

}  // namespace

std::string emit_jax(const sharding::ShardingModel& model, const PartitionPlan& plan, const Layout& layout) {
  AM_CHECK(layout.num_axes() == 1);
  return python_of(model, {{kAxis, &plan}}, layout, plan.model, "kind " + plan.kind + ", planner " + plan.planner);
}

std::string emit_jax(const sharding::ShardingModel& model, const MeshPlan& plan, const Layout& layout) {
  AM_CHECK(layout.num_axes() == 2);
  return python_of(model, {{"data", &plan.data_axis}, {"model", &plan.model_axis}}, layout, plan.model,
                   "kind mesh, ZeRO " + std::to_string(plan.zero));
}

}  // namespace automap::emit
