// Explains propagation: as values, which tests check, and as text, which the tools print.
#pragma once

#include <string>
#include <vector>

#include "common/sharding/collectives.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"

namespace automap::sharding {

// One step of a chain: `op` ties `from` and `to` by one of its factors (op kNone: a tie from step to step).
struct ChainLink {
  NodeId op = kNone;
  TensorDim from, to;
};
// The shortest chain inside a group; empty when from == to or when they are in different groups.
std::vector<ChainLink> chain(const ShardingModel& model, TensorDim from, TensorDim to);

// The scopes that an instruction was traced in, those of its callers first: {"encoder", "layer_3", "ffn"}; empty when
// the module does not say. `backward`: whether it belongs to the backward pass, as far as names tell.
std::vector<std::string> scopes_of(const ShardingModel& model, NodeId node, bool* backward = nullptr);

// "dot.123 f32[16,128,512] (encoder/layer_3/ffn)".
std::string describe(const ShardingModel& model, NodeId node);
// "params['wte']['embedding'] dimension 0 (32128)".
std::string describe(const ShardingModel& model, TensorDim at);

struct Explanation {
  enum class Kind { kSplit, kReplicated, kPartial, kUndecided, kConflict, kImpossible };
  Kind kind = Kind::kReplicated;
  std::string summary;                 // one sentence
  std::vector<std::string> lines;      // the chain(s), one instruction a line, long ones shortened in the middle
  std::vector<ChainLink> links;        // of the decision
  std::vector<ChainLink> other_links;  // of the other decision, for conflicts
  NodeId at = kNone;                   // where it happens
};

Explanation explain(const ShardingModel& model, const Propagation& decided, NodeId node);
Explanation explain(const ShardingModel& model, const Propagation& decided, const Conflict& conflict);
// Explains why a group cannot be split, with the chain(s) from `from` (or its first input) to the obstacle: the first
// one that no number of shards would remove, else the first.
Explanation explain_obstacle(const ShardingModel& model, GroupId group, TensorDim from = {});
// Inputs whose decision would settle the undecided tensors: those of each undecided group, largest group first.
struct Stuck {
  GroupId group = kNone;
  std::int32_t tensors = 0;  // undecided tensors it holds
  std::vector<TensorDim> deciders;
};
std::vector<Stuck> explain_stuck(const ShardingModel& model, const Propagation& decided);

}  // namespace automap::sharding
