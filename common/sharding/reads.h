// Finds instructions that read a tensor in another splitting than it has: the result of a model's gathers (linkage.h)
// under a decision.
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

// All (reader, tensor) for which the reader needs another splitting than the tensor has, in that order. Tensors that
// their own instruction makes whole, and those that are handed on, are left out.
std::vector<Read> reads_of(const ShardingModel& model, const std::function<bool(GroupId)>& is_split);
std::vector<Read> reads_of(const ShardingModel& model, const Propagation& decided);

// The split dimensions of tensors that their own instruction makes whole (is_made_whole): every device keeps its part.
std::vector<TensorDim> kept_in_parts(const ShardingModel& model, const std::function<bool(GroupId)>& is_split);
std::vector<TensorDim> kept_in_parts(const ShardingModel& model, const Propagation& decided);

}  // namespace automap::sharding
