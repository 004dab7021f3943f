// The collectives a partitioned module needs, and where.
//
// An instruction whose split factor leaves partial sums (rule.h) needs them reduced. A partial sum may stay partial
// through linear instructions (add and subtract of two partial sums, multiply and divide by a replicated tensor,
// negate, convert, reshape, transpose, copy, slice, broadcast, reduce-add, select between partials by a replicated
// mask, pad with zero) and is reduced once, where something else reads it or where it leaves the module.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"

namespace automap::sharding {

enum class CollectiveKind : std::uint8_t { kAllReduce, kAllGather };
const char* to_string(CollectiveKind kind);  // "all-reduce"

struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kNone;  // all-reduce
  NodeId node = kNone;                     // the tensor that is reduced or gathered
  double bytes = 0;                        // of the whole tensor, each time
  double times = 1;                        // per step
  GroupId group = kNone;                   // whose splitting needs it
  std::vector<NodeId> sources;             // instructions whose partial sums it reduces; kAllGather: the reader
};

enum class Placement {
  kAtOnce,   // every partial sum is reduced where it arises, as XLA's SPMD partitioner does: one collective per source
  kDelayed,  // carried through linear instructions and reduced once
};

// In node order. Undecided groups count as whole.
std::vector<Collective> find_collectives(const ShardingModel& model, const Propagation& decided, Placement placement);

// Of one group alone, were it the only one split. find_collectives(kAtOnce) is the union over the split groups.
std::vector<Collective> collectives_of_group(const ShardingModel& model, GroupId group, Placement placement);

struct CollectiveTotals {
  std::int64_t count = 0;  // instructions (a loop's counted once)
  double executed = 0;     // per step
  double bytes = 0;        // per step
};
CollectiveTotals total(const std::vector<Collective>& collectives, CollectiveKind kind);

}  // namespace automap::sharding
