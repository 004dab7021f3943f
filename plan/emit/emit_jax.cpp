#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/emit/emit.h"

namespace automap::emit {

using namespace partition;

namespace {

constexpr const char* kAxis = "devices";

// What follows the tables. Nothing but JAX is needed; the functions are meant to be read.
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


def jit(step, *arguments, names=None, unknown="error", devices=None, **options):
    """jax.jit(step) with the plan's in_shardings and out_shardings. `arguments` may be ShapeDtypeStructs."""
    on_mesh = mesh(devices)
    return jax.jit(step, in_shardings=shardings(argument_specs(*arguments, names=names, unknown=unknown), on_mesh),
                   out_shardings=shardings(result_specs(jax.eval_shape(step, *arguments)), on_mesh), **options)


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

// One axis of the mesh and what it does.
struct Axis {
  std::string name;
  const PartitionPlan* plan = nullptr;
};

// Of the dimension that each axis splits (-1: none). Of one that several split the inner axis comes first (layout.h).
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

// `says`: of the plan, for people.
std::string python_of(const sharding::ShardingModel& model, const std::vector<Axis>& axes, const std::string& name,
                      const std::string& says) {
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
    step = plan.jit(train_step, *arguments)       # jax.jit with the plan's in_shardings and out_shardings

or piece by piece: mesh(), specs_for(params, "params"), argument_specs(*arguments), result_specs(result), shardings().
)PY";
  if (moved > 0) {
    out += "\nThe plan gathers or exchanges " + plural(moved, "tensor") +
           " inside the step. Shardings of arguments and results do not say where, so XLA may choose other\n"
           "places here; the module of --emit-hlo says it.\n";
  }
  if (plan.sums_combined) {
    out +=
        "\nThe plan adds partial sums up before they are reduced. Shardings of arguments and results cannot say that, "
        "so\n"
        "XLA reduces each where it arises; the module of --emit-hlo says it.\n";
  }
  out += R"PY("""
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
  return out + "]\n" + kFunctions;
}

}  // namespace

std::string emit_jax(const sharding::ShardingModel& model, const PartitionPlan& plan) {
  return python_of(model, {{kAxis, &plan}}, plan.model, "kind " + plan.kind + ", planner " + plan.planner);
}

std::string emit_jax(const sharding::ShardingModel& model, const MeshPlan& plan) {
  return python_of(model, {{"data", &plan.data_axis}, {"model", &plan.model_axis}}, plan.model,
                   "kind mesh, ZeRO " + std::to_string(plan.zero));
}

}  // namespace automap::emit
