#include "search/report_parts.h"

#include <cmath>

#include "common/base/printable.h"
#include "common/graph/layers.h"
#include "plan/partition/names.h"

namespace automap::search::internal {

using namespace partition;

namespace {

Json whole_number(double value) {
  if (value >= 0 && value < 9e15 && value == std::floor(value)) return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace

std::string indented(const std::string& text, const std::string& indent) {
  return indent + printable(text) + "\n";
}

std::string lines_text(const std::vector<std::string>& lines, const std::string& indent) {
  std::string out;
  for (const std::string& line : lines) out += indent + printable(line) + "\n";
  return out;
}

std::string layer_of(const ShardingModel& model, NodeId node) {
  const std::vector<std::string> scopes = sharding::scopes_of(model, node);
  const std::size_t depth = std::min(graph::layer_depth(scopes), scopes.size());
  std::string out;
  for (std::size_t i = 0; i < depth; ++i) out += (i ? "/" : "") + scopes[i];
  return out;
}

const ModelInput* input_at(const ShardingModel& model, NodeId node) {
  for (const ModelInput& input : model.inputs()) {
    if (input.node == node) return &input;
  }
  return nullptr;
}

std::string tensor_name(const ShardingModel& model, NodeId node) {
  const ModelInput* input = input_at(model, node);
  return input != nullptr ? input->name : instruction_name(model, node);
}

Counts count_tensors(const ShardingModel& model, const Propagation& decided) {
  Counts out;
  for (NodeId node = 0; node < model.flow().size(); ++node) {
    const TensorState state = decided.state(node);
    if (state.partial != sharding::Reduction::kNone) ++out.partial;  // scalars too, such as the loss
    if (!model.linkage().is_tensor(node)) continue;
    ++out.tensors;
    if (state.kind == TensorStateKind::kSplit) ++out.split;
    if (state.kind == TensorStateKind::kReplicated) ++out.whole;
    if (state.kind == TensorStateKind::kUndecided) ++out.undecided;
  }
  return out;
}

const char* state_word(const TensorState& state) {
  switch (state.kind) {
    case TensorStateKind::kSplit: return "split";
    case TensorStateKind::kUndecided: return "undecided";
    default: return "whole";
  }
}

Json collective_json(const ShardingModel& model, const Collective& c) {
  Json sources = Json::array();
  for (const NodeId source : c.sources) sources.push_back(instruction_name(model, source));
  return {{"kind", to_string(c.written_kind())},
          {"reduction", c.reduction == sharding::Reduction::kNone ? Json() : Json(sharding::to_string(c.reduction))},
          {"instruction", instruction_name(model, c.node)},
          {"layer", layer_of(model, c.node)},
          {"shape", shape_of(model, c.node)},
          {"bytes", whole_number(c.bytes)},
          {"times", whole_number(c.times)},
          {"sources", sources}};
}

Json inputs_json(const ShardingModel& model, const Propagation& decided) {
  Json out = Json::array();
  for (const ModelInput& input : model.inputs()) {
    const TensorState state = decided.state(input.node);
    out.push_back({{"name", input.name},
                   {"parameter", input.parameter_name},
                   {"role", graph::to_string(input.role)},
                   {"shape", shape_of(model, input.node)},
                   {"state", state_word(state)},
                   {"dim", state.kind == TensorStateKind::kSplit ? state.dim : -1}});
  }
  return out;
}

Json explanation_value(const ShardingModel& model, const sharding::Explanation& e) {
  return {{"summary", e.summary},
          {"lines", e.lines},
          {"at", e.at == graph::kNone ? Json() : Json(instruction_name(model, e.at))}};
}

}  // namespace automap::search::internal
