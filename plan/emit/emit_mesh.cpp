// A Python file for JAX: the mesh of a pipeline plan, and PartitionSpecs of variables, optimizer state, batches and
// what lies between layers.
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "plan/emit/to_type.h"

namespace automap::emit {
namespace {

const char* const kMeshBody = R"(

def mesh(devices=None):
    devices = jax.devices() if devices is None else devices
    shape = tuple(MESH.values())
    count = math.prod(shape)
    chosen = DEVICES or range(count)
    if len(devices) <= max(chosen):
        raise ValueError(f"the plan is for {max(chosen) + 1} devices, {len(devices)} are there")
    # Stage by stage, in a stage replica by replica.
    return Mesh(np.asarray([devices[one] for one in chosen]).reshape(shape), tuple(MESH))


def _plain(name):
    """params['h'][0]['kernel'], params.h[0].kernel and params/h/0/kernel are one name."""
    return "/".join(part for part in re.split(r"[\[\]'\"./]+", name) if part)


_SPLIT = {_plain(name): dim for name, dim in SPLIT.items()}


def spec(name, shape, shard=ZERO == 3, stacked=False):
    """Of the variable `name`; `stacked`: its first dimension counts the layers of the stack, which stages share out."""
    axes = [None] * len(shape)
    dim = _SPLIT.get(_plain(name), -1)
    if stacked:
        axes[0] = "stage"
    elif dim >= 0:
        axes[dim] = "model"
    if stacked and dim >= 0:
        axes[dim + 1] = "model"
    if shard and MESH["data"] > 1:
        for free, size in enumerate(shape):
            if axes[free] is None and size % MESH["data"] == 0:
                axes[free] = "data"
                break
    return P(*axes)


def specs(tree, name="params", state=False):
    """Of a tree of variables; `state`: of the optimizer's state of the same form, which ZeRO 1 and 3 share out."""
    shard = ZERO == 3 or (state and ZERO == 1)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: spec(name + jax.tree_util.keystr(path), leaf.shape, shard), tree)


def shardings(tree_of_specs, on):
    return jax.tree_util.tree_map(lambda one: NamedSharding(on, one), tree_of_specs, is_leaf=lambda x: isinstance(x, P))


BATCH = P("data")  # samples come first


def between(x, on):
    """What lies between layers, samples x sequence x width: inside the step, behind every layer."""
    sequence = "model" if SEQUENCE_PARALLEL and x.ndim > 2 and x.shape[1] % MESH["model"] == 0 else None
    return jax.lax.with_sharding_constraint(x, NamedSharding(on, P("data", sequence)))


def layer(function):
    """A layer's function as the plan runs it."""
    return jax.checkpoint(function) if RECOMPUTE else function
)";

}  // namespace

Emitted emit_jax_mesh(const FrameworkPlan& plan) {
  Emitted out;
  StackCounts stack;
  if (plan.stages > 1) {
    stack = stack_counts(plan);
    if (!stack.why.empty()) {
      out.cannot = {stack.why, "--stages 1 plans without a pipeline"};
      return out;
    }
  }
  const auto number = [](const char* name, std::int64_t value) {
    return std::string(name) + " = " + std::to_string(value);
  };
  std::string text =
      "\"\"\"A plan of AutoMap for JAX: its mesh, and what is sharded along which axis.\"\"\"\nimport math\nimport "
      "re\n\n"
      "import jax\nimport numpy as np\nfrom jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n\n";
  text += "MESH = {\"stage\": " + std::to_string(plan.stages) + ", \"data\": " + std::to_string(plan.replicas) +
          ", \"model\": " + std::to_string(plan.width) + "}\n";
  text +=
      "# Of the cluster's devices, as jax.devices() numbers them, server by server; empty: the first.\nDEVICES = [" +
      numbers_text(plan.chosen_devices) + "]\n";
  text += number("MICRO_BATCHES", plan.micro_batches) + "\n" + number("SAMPLES", plan.samples) +
          "  # of one micro-batch in one replica\n" + number("ZERO", plan.zero) + "\n";
  text += std::string("RECOMPUTE = ") + (plan.recompute_any() ? "True" : "False") +
          "\nSEQUENCE_PARALLEL = " + (plan.sequence_parallel ? "True" : "False") + "\n";
  text += number("LAYERS_PER_STAGE", plan.stages > 1 ? stack.counts.front() : 0) +
          "  # of the stack; 0: one stage has them all\n";
  text += "# The variables that the devices of a replica hold in parts, and the dimensions that are split.\nSPLIT = {";
  for (const auto& [name, dim] : plan.split) text += "\n    " + python_literal(name) + ": " + std::to_string(dim) + ",";
  text += (plan.split.empty() ? "}\n" : "\n}\n") + std::string(kMeshBody);
  out.files.push_back({"", text});
  out.launch = {"python3", "train.py"};
  if (plan.width > 1 && plan.split.empty()) {
    out.missing.push_back("which variables are split: the plan's file does not say");
  }
  if (plan.stages > 1) {
    out.missing.push_back("the pipeline itself: shard_map over \"stage\", a scan over " +
                          std::to_string(plan.micro_batches) +
                          " micro-batches with lax.ppermute, and stacked layers "
                          "sharded by spec(..., stacked=True)");
  } else if (plan.micro_batches > 1) {
    out.missing.push_back("a scan over " + std::to_string(plan.micro_batches) +
                          " micro-batches that adds up gradients");
  }
  out.missing.push_back("train.py, which uses the specs of the file: automap emit writes it");
  return out;
}

}  // namespace automap::emit
