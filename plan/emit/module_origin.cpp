// Who made a module, by the marks that JAX and PyTorch leave in it.
#include <algorithm>
#include <string_view>

#include "plan/emit/to_type.h"

namespace automap::emit {
namespace {

constexpr std::int32_t kLookedAt = 1000;  // instructions: marks are everywhere or nowhere

bool begins(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

}  // namespace

const planners::Framework* framework_of(const graph::Graph& graph, bool decoder) {
  const planners::Framework& of_jax = planners::find_framework(decoder ? "maxtext" : "jax");
  const planners::Framework& of_torch = planners::find_framework(decoder ? "torchtitan" : "torch");
  // jit_train_step, pjit_..., pmap_...; torch_xla's and torch.export's modules are called IrToHlo.
  const std::string_view name = graph.name();
  for (const char* mark : {"jit_", "pjit_", "pmap_"}) {
    if (begins(name, mark)) return &of_jax;
  }
  if (begins(name, "IrToHlo")) return &of_torch;
  const std::int32_t count = std::min(graph.num_instructions(), kLookedAt);
  for (graph::InstructionId id = 0; id < count; ++id) {
    const std::string op = graph.op_name(id);
    if (begins(op, "jit(") || begins(op, "pjit(")) return &of_jax;
    const std::string type = graph.metadata(id, "op_type");
    if (begins(type, "aten__") || begins(type, "xla__")) return &of_torch;
  }
  return nullptr;
}

}  // namespace automap::emit
