#include "profile/main_work.h"

#include <map>

#include "common/graph/opcode.h"
#include "profile/kernel_model.h"

namespace automap::profile {

std::string main_work(const graph::Graph& graph, const graph::ModuleCost& cost) {
  using graph::Opcode;
  std::map<std::string, double> flops;
  for (std::size_t i = 0; i < cost.instructions.size(); ++i) {
    const auto id = static_cast<graph::InstructionId>(i);
    const Opcode opcode = graph.instruction(id).opcode;
    const bool product = opcode == Opcode::kDot || opcode == Opcode::kScaledDot || opcode == Opcode::kRaggedDot;
    if (!product && opcode != Opcode::kConvolution) continue;
    std::string type(matmul_type(graph, id));
    if (type == "tf32") type = "f32";  // what the module says; a device may run it as tf32
    flops[(product ? "matmul " : "convolution ") + type] += cost.instructions[i].flops;
  }
  std::string most;
  double most_flops = 0;
  for (const auto& [work, sum] : flops) {
    if (sum <= most_flops) continue;
    most = work;
    most_flops = sum;
  }
  return most;
}

}  // namespace automap::profile
