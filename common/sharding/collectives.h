// Finds the collectives that a partitioned module needs, and their places.
//
// An instruction whose split factor leaves partial sums (rule.h) needs them reduced: by an all-reduce right there
// (Placement::kAtOnce), or later. Partial sums stay partial through *linear* instructions of which nothing is split:
//
//   add, subtract          of two partial sums (a whole operand would be added once per device)
//   multiply, divide       by a whole tensor
//   select                 by a whole mask, between partial sums, or of a partial sum and zeros
//   pad, reduce-add        with zero
//   negate, convert        (floating point to floating point of at least 16 bits: rounds partial values)
//   reshape, transpose, copy, slice, broadcast, reverse, concatenate, barriers, annotations
//
// Partial maxima and the like stay partial through the last line alone (and minima and maxima through convert). Of all
// ways to stay partial, Placement::kDelayed takes one that moves the fewest bytes (with 64 kB added for each
// collective), and of those the one that reduces earliest: a partial sum is reduced once, where something reads it that
// is not linear, where it leaves the module or goes to another turn of a loop, or before it would grow.
//
//   p = dot(x, w), q = dot(x, v), both partial; s = add(p, q); r = tanh(s)   at once: p, q; delayed: s
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/collective_kind.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"

namespace automap::sharding {

struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kNone;  // of sums
  NodeId node = kNone;                     // the tensor that is reduced, gathered or exchanged
  double bytes = 0;                        // of the whole tensor (kPermute: of the border), each time
  double times = 1;                        // per step
  GroupId group = kNone;                   // whose splitting needs it
  std::vector<NodeId> sources;             // instructions whose partial sums it reduces; else: the readers
  // kPermute: elements that every device takes of the next neighbour's part; negative: of the one before.
  std::int64_t border = 0;

  bool reduces() const { return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter; }
  // The kind in the written module, in plans and in explanations. kReduceScatter: every device only goes on with its
  // part of the sum. XLA's partitioner writes an all-reduce and a slice, and the back ends for accelerators make a
  // reduce-scatter of the two.
  CollectiveKind written_kind() const { return reduces() ? CollectiveKind::kAllReduce : kind; }
};

enum class Placement {
  kAtOnce,   // every partial sum is reduced where it arises, as XLA's SPMD partitioner does: one collective per source
  kDelayed,  // carried through linear instructions where that moves less
  // As kDelayed, as far as the written module can have it (written_sums.h), and through additions of whole tensors. A
  // group's sums go where they would go were it alone; where they meet another's in an addition both go on together. An
  // instruction that several calls share is in one state in all of them.
  kCombined,
};
// The placement in the module that is written for a model (ShardingModel::sums_combined): it runs, and it is priced.
Placement written_placement(const ShardingModel& model);
// The placement that plans and explanations list: the one that runs; or, if sums are not combined, the one that
// carrying them could reach.
Placement listed_placement(const ShardingModel& model);

// The share of every tensor that the other axis of a mesh leaves, by flow node (1: all of it): `held` of a device's own
// data, `made` of its instruction's result. They differ where every device makes all and keeps its part.
struct TensorShares {
  std::vector<double> held, made;
  // (reader, tensor) that the other axis gathers first: this axis then moves all of it.
  std::set<std::pair<NodeId, NodeId>> gathered_first;

  double of(const Collective& c) const;
};

// One axis, decided.
struct DecidedAxis {
  const ShardingModel* model = nullptr;
  const Propagation* decided = nullptr;
};

// In node order; none for one shard. Undecided groups count as whole. Partial sums that nobody reads are left out. A
// permute takes one border, for all readers that share it (Halo::shared_by). An all-gather stands for all readers of
// its tensor, an all-to-all for all that read it along one dimension. A tensor may be reduced and read partial by a
// linear instruction all the same: when that one is reduced itself, its sources tell. `shares`: in a mesh, the shares
// of tensors that the other axis leaves, of which bytes are counted. Null: all.
std::vector<Collective> find_collectives(const ShardingModel& model, const Propagation& decided, Placement placement,
                                         const TensorShares* shares = nullptr);

// The collectives of one group, as if only it were split. find_collectives(kAtOnce) is the union over the split groups,
// except for exchanges, which take two groups: for one group alone the tensor is gathered. find_collectives(kCombined)
// moves less than the union where sums of several groups are added, and more only where two groups would carry theirs
// through one product, or where calls that share instructions belong to different groups.
std::vector<Collective> collectives_of_group(const ShardingModel& model, GroupId group, Placement placement,
                                             const TensorShares* shares = nullptr);

// A tensor that Placement::kCombined leaves partial on every device for a linear instruction to read.
struct CarriedSum {
  NodeId node = kNone;
  std::int32_t factor = kNone;  // Linkage::factor() that leaves it; kNone: a linear instruction made it
  bool reduced = false;         // here, for whoever does not read it partial
  std::vector<bool> partial;    // by operand: read partial (never by a factor)
};
std::vector<CarriedSum> carried_sums(const ShardingModel& model, const Propagation& decided);  // ascending by node

struct CollectiveTotals {
  std::int64_t count = 0;  // instructions (a loop's counted once)
  double executed = 0;     // per step
  double bytes = 0;        // per step
};
// Of those whose written_kind() it is.
CollectiveTotals total(const std::vector<Collective>& collectives, CollectiveKind kind);

}  // namespace automap::sharding
