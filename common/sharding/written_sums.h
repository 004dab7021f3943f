// Decides which partial sums a written module can carry to another place.
//
// XLA's partitioner reduces each partial sum where it arises. One that is to be reduced later is written out by hand,
// as jax.shard_map does: the instruction that leaves it reads its operands as the parts of one device, and everything
// up to an explicit all-reduce is marked as partitioned already (plan/emit/combined_sums.h). That works for
//
//   - sums that a dot, a convolution without groups or a reduce leaves. (Look-ups in a split table and scatters into
//     one are masked by the partitioner, which alone knows the rows of a device.)
//   - linear steps in one computation: a value that a call, a loop or a tuple hands on is reduced first;
//   - results that are not what their computation returns, so that a line may stand behind them;
//   - besides the linear instructions of collectives.h, additions of a whole tensor: every device adds its share of it,
//     1/N, which is exact where N is a power of two (residual streams: x + q + k + v).
//
// An instruction that several calls share must be in one state in all of them: Placement::kCombined ensures that.
#pragma once

#include <vector>

#include "common/sharding/model.h"
#include "common/sharding/rule.h"

namespace automap::sharding {

// The partial result `node` of a split factor.
bool can_write_source(const ShardingModel& model, const OpFactor& factor, NodeId node);
// A linear instruction (collectives.h); `partial`: which of its operands are left partial.
bool can_write_step(const ShardingModel& model, NodeId node, const std::vector<bool>& partial);

// True if every device can add its share of a whole tensor of that shape.
bool can_write_share(const ShardingModel& model, const graph::Shape& shape);

// The dimensions of an instruction's operands (by slot) of which a device reads its part alone, free operands included.
std::vector<SlotDim> parts_read(const ShardingModel& model, const OpFactor& factor);

}  // namespace automap::sharding
