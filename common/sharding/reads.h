// How instructions read tensors that lie otherwise: what the gathers of a model (linkage.h) come to under a decision.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"

namespace automap::sharding {

struct Read {
  NodeId reader = kNone, tensor = kNone;
  std::int32_t dim = kNone;       // that is split where the tensor lies; kNone: it lies whole
  GroupId group = kNone;          // of that dimension
  bool gathered = false;          // an all-gather first
  std::int32_t in_parts = kNone;  // the reader's devices each take their part along this dimension

  // From parts along one dimension to parts along another one.
  bool exchanged() const { return dim != kNone && in_parts != kNone && !gathered; }
};

// Of all (reader, tensor) of which the reader does not find the tensor as it lies, in that order. Without what is made
// whole by its own instruction, and without what is handed on.
std::vector<Read> reads_of(const ShardingModel& model, const std::function<bool(GroupId)>& is_split);
std::vector<Read> reads_of(const ShardingModel& model, const Propagation& decided);

// The dimensions that are split of what its own instruction makes whole (is_made_whole): every device keeps its part.
std::vector<TensorDim> kept_in_parts(const ShardingModel& model, const std::function<bool(GroupId)>& is_split);
std::vector<TensorDim> kept_in_parts(const ShardingModel& model, const Propagation& decided);

}  // namespace automap::sharding
