// Writes a Python file for JAX: the mesh of a pipeline plan, and PartitionSpecs of variables, optimizer state, batches
// and values between layers.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

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
        raise ValueError(f"the plan stands on device {max(chosen)}, counted from 0, and {len(devices)} are there")
    # Stage by stage, in a stage replica by replica.
    return Mesh(np.asarray([devices[one] for one in chosen]).reshape(shape), tuple(MESH))


def _plain(name):
    """params['h'][0]['kernel'], params.h[0].kernel and params/h/0/kernel are one name."""
    return "/".join(part for part in re.split(r"[\[\]'\"./]+", name) if part)


_SPLIT = {_plain(name): dim for name, dim in SPLIT.items()}


def spec(name, shape, shard=ZERO == 3, stacked=False, unknown="error"):
    """Of the variable `name`; `stacked`: its first dimension counts the layers of the stack, which stages share out. Of layers
    that stand apart in the module it is the name of one layer's."""
    if unknown != "whole":
        _known([_plain(name)])
    axes = [None] * len(shape)
    dim = _SPLIT.get(_plain(name), -1)
    if stacked:
        axes[0] = "stage"
    if dim >= 0:
        dim += stacked and LAYERS_APART
        if dim >= len(shape):
            raise ValueError(f"{name} has shape {tuple(shape)}, and the plan splits dimension {dim} of it")
        axes[dim] = "model"
    if shard and MESH["data"] > 1:
        for free, size in enumerate(shape):
            if axes[free] is None and size % MESH["data"] == 0:
                axes[free] = "data"
                break
    return P(*axes)


def _known(names):
    """Where replicas split variables, one that the plan does not know would be left whole without a word."""
    new = [name for name in names if _SPLIT and name not in _SPLIT]
    if new:
        raise ValueError(f"the plan does not know {_some(new)}; it knows {_some(list(_SPLIT))}. name= is what the module calls "
                         "the tree, and unknown=\"whole\" splits no dimension of what is not known along \"model\"")


def _some(names):
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def specs(tree, name="params", state=False, unknown="error"):
    """Of a tree of variables; `state`: of the optimizer's state of the same form, which ZeRO 1 and 3 share out. A variable
    that the plan does not know is an error; unknown="whole" leaves it whole along "model"."""
    shard = ZERO == 3 or (state and ZERO == 1)
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [name + jax.tree_util.keystr(path) for path, _ in leaves]
    if unknown != "whole":
        _known([_plain(one) for one in names])
    return jax.tree_util.tree_unflatten(structure, [
        spec(one, leaf.shape, shard, unknown=unknown) for one, (_, leaf) in zip(names, leaves)])


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

// The servers that it uses, as the cluster numbers them: the mesh names devices, so that processes need no other order.
std::vector<int> in_order(const FrameworkPlan& plan) {
  std::vector<int> numbers;
  for (const UsedServer& server : plan.servers) numbers.push_back(server.number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Its devices among all those of the servers that it uses; empty: the first.
std::vector<int> device_places(const FrameworkPlan& plan) {
  if (plan.servers.empty()) return plan.chosen_devices;
  std::map<int, int> first;  // by the server's number: how many devices those before it have
  for (const UsedServer& server : plan.servers) first[server.number] = server.has;
  int before = 0;
  for (auto& [number, of] : first) before += std::exchange(of, before);
  std::vector<int> places;
  for (const UsedServer& server : plan.servers) {
    for (const int device : server.devices) places.push_back(first[server.number] + device);
  }
  if (are_first(places)) places.clear();
  return places;
}

// True if variables differ in the number of their layer alone: some name, with another number in its place, exists for
// each of the layers. `layers`: 0: not known; then it is a number that stands alone ("h/0"), not one as in "w1".
bool layers_apart(const FrameworkPlan& plan, int layers) {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> numbers;  // by what stands around it
  for (const auto& [name, dim] : plan.split) {
    for (std::size_t i = 0; i < name.size();) {
      std::size_t end = i;
      while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
      const bool alone = i == 0 || std::isalpha(static_cast<unsigned char>(name[i - 1])) == 0;
      if (end > i && (alone || layers > 0))
        numbers[{name.substr(0, i), name.substr(end)}].insert(name.substr(i, end - i));
      i = std::max(end, i + 1);
    }
  }
  return std::any_of(numbers.begin(), numbers.end(),
                     [&](const auto& of) { return of.second.size() >= static_cast<std::size_t>(std::max(layers, 2)); });
}

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
      "# Of jax.devices(), which are all devices of the servers that the plan uses, server by server; empty: the "
      "first.\nDEVICES = [" +
      numbers_text(device_places(plan)) + "]\n";
  text += number("MICRO_BATCHES", plan.micro_batches) + "\n" + number("SAMPLES", plan.samples) +
          "  # of one micro-batch in one replica\n" + number("ZERO", plan.zero) + "\n";
  text += std::string("RECOMPUTE = ") + (plan.recompute_any() ? "True" : "False") +
          "\nSEQUENCE_PARALLEL = " + (plan.sequence_parallel ? "True" : "False") + "\n";
  text += number("LAYERS_PER_STAGE", plan.stages > 1 ? stack.counts.front() : 0) +
          "  # of the stack; 0: one stage has them all\n";
  text += std::string("LAYERS_APART = ") + (layers_apart(plan, stack.layers) ? "True" : "False") +
          "  # names of SPLIT are of one layer each; False: of layers that are stacked, or there are none\n";
  text +=
      "# The variables, and the dimension along which the devices of a replica hold them in parts; -1: whole.\nSPLIT = "
      "{";
  for (const auto& [name, dim] : plan.split) text += "\n    " + python_literal(name) + ": " + std::to_string(dim) + ",";
  text += (plan.split.empty() ? "}\n" : "\n}\n") + std::string(kMeshBody);
  out.files.push_back({"", text});
  out.launch = {"python3", kUsersProgram};
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
  const std::vector<int> servers = in_order(plan);
  if (servers.size() > 1) {
    out.missing.push_back(
        "one process on each server (jax.distributed.initialize), numbered in their order, that sees "
        "all of its devices: mesh() takes those of the plan");
  }
  if (!are_first(servers, 1)) {
    out.missing.push_back("its servers are " + numbers_text(servers) + " of the cluster, in this order");
  }
  if (plan.servers.empty()) {
    for (const std::string& said : server_texts(plan)) out.missing.push_back(said);
  }
  out.missing.push_back(std::string(kUsersProgram) + ", which uses the specs of the file: automap emit writes it");
  return out;
}

}  // namespace automap::emit
