#include "inspect/layer_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/graph/layers.h"
#include "common/graph/trip_count.h"

namespace automap::inspect {

LayerGraph layer_graph(const graph::Graph& module) {
  const graph::TrainingStep step = graph::analyze_training_step(module);
  const graph::FlowOrder order = graph::order_forward(step);
  const graph::LayerNames names = graph::name_layers(step, order);
  LayerGraph out;
  out.model = std::string(module.name());
  out.training = step.training;
  // A layer stands where most of it is computed: a part of it may be cheap, and early.
  std::map<std::string, std::pair<double, double>> middle;  // sum of positions, instructions
  for (std::size_t p = 0; p < names.name.size(); ++p) {
    middle[names.name[p]].first += static_cast<double>(p);
    middle[names.name[p]].second += 1;
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, sum] : middle) sorted.emplace_back(sum.first / sum.second, name);
  std::sort(sorted.begin(), sorted.end());
  std::map<std::string, std::size_t> known;
  for (const auto& [place, name] : sorted) {
    known.emplace(name, out.layers.size());
    out.layers.push_back({name, {}, 0, 0});
  }
  std::vector<std::size_t> layer_at;  // by position
  for (std::size_t p = 0; p < order.order.size(); ++p) {
    const std::size_t at = known.at(names.name[p]);
    LayerGraph::Layer& layer = out.layers[at];
    const graph::InstructionId instruction = step.flow.node(order.order[p]).instruction;
    layer.instructions.push_back(std::string(module.instruction(instruction).name));
    if (module.instruction(instruction).opcode == graph::Opcode::kWhile &&
        step.flow.node(order.order[p]).opcode == graph::Opcode::kWhile) {
      layer.turns = std::max(layer.turns, graph::trip_count(module, instruction).value_or(0));
    }
    layer_at.push_back(at);
  }
  const auto layer_of = [&](graph::NodeId node) {
    const std::int32_t position = order.position[static_cast<std::size_t>(node)];
    return position == graph::kNone ? out.layers.size() : layer_at[static_cast<std::size_t>(position)];
  };
  for (const graph::EntryInput& input : step.inputs) {
    if (input.role != graph::InputRole::kVariable && input.role != graph::InputRole::kFrozen) continue;
    std::int32_t first = graph::kNone;
    for (const graph::NodeId user : step.flow.users(input.node)) {
      const std::int32_t position = order.position[static_cast<std::size_t>(user)];
      if (position != graph::kNone && (first == graph::kNone || position < first)) first = position;
    }
    if (first == graph::kNone) continue;
    out.layers[layer_at[static_cast<std::size_t>(first)]].variable_bytes +=
        static_cast<double>(step.flow.shape(input.node).bytes);
  }
  std::map<std::pair<std::size_t, std::size_t>, LayerGraph::Edge> edges;
  std::set<std::pair<graph::NodeId, std::size_t>> seen;
  for (const graph::NodeId node : order.order) {
    const std::size_t to = layer_of(node);
    for (const graph::NodeId value : step.flow.operands(node)) {
      // Weights and values that are cheaply made of inputs are at hand everywhere.
      if (order.origin[static_cast<std::size_t>(value)] != graph::Origin::kFlow) continue;
      const std::size_t from = layer_of(value);
      if (from == out.layers.size() || from == to || !seen.emplace(value, to).second) continue;
      LayerGraph::Edge& edge = edges[{from, to}];
      edge.from = from;
      edge.to = to;
      ++edge.tensors;
      edge.bytes += static_cast<double>(step.flow.shape(value).bytes);
    }
  }
  for (const auto& [ends, edge] : edges) out.edges.push_back(edge);
  return out;
}

}  // namespace automap::inspect
