// Shared parts of the reports (report.h): texts, names of tensors and layers, and JSON that several documents have.
#pragma once

#include <string>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/json.h"
#include "common/sharding/collectives.h"
#include "common/sharding/explain.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/names.h"

namespace automap::search::internal {

using Align = FittedTable::Align;
using partition::instruction_name;
using sharding::Collective;
using sharding::GroupId;
using sharding::ModelInput;
using sharding::NodeId;
using sharding::Placement;
using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorDim;
using sharding::TensorState;
using sharding::TensorStateKind;

constexpr int kTextWidth = 76;         // of a column of prose, at most
constexpr int kLeastTextWidth = 24;    // and at least
constexpr std::size_t kMostRows = 20;  // of a table that repeats itself

// Counts of all tensors of the module.
struct Counts {
  int tensors = 0, split = 0, whole = 0, undecided = 0, partial = 0;
};

// As lines behind `indent`, made printable.
std::string indented(const std::string& text, const std::string& indent);
std::string lines_text(const std::vector<std::string>& lines, const std::string& indent);

// "encoder/layer_3": the scope of a node cut behind the layer's name.
std::string layer_of(const ShardingModel& model, NodeId node);
// nullptr when the node is no input.
const ModelInput* input_at(const ShardingModel& model, NodeId node);
// An input's own name, else its instruction's.
std::string tensor_name(const ShardingModel& model, NodeId node);
Counts count_tensors(const ShardingModel& model, const Propagation& decided);
const char* state_word(const TensorState& state);
Json collective_json(const ShardingModel& model, const Collective& c);
Json inputs_json(const ShardingModel& model, const Propagation& decided);
Json explanation_value(const ShardingModel& model, const sharding::Explanation& e);

}  // namespace automap::search::internal
