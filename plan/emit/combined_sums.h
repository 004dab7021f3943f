// Writes out partial sums that are carried to another place before they are reduced (sharding::Placement::kCombined),
// by hand, as jax.shard_map does:
//
//   %x.part = f32[16,8] custom-call(%x.sharded), custom_call_target="SPMDFullToShardShape", sharding={manual}
//   %p = f32[16,32] dot(%x.part, %w.part), ..., sharding={manual}     one device's summand of the whole
//   %s = f32[16,32] add(%p, %q), sharding={manual}                    and of the sum of two
//   %s.reduced = f32[16,32] all-reduce(%s), ..., sharding={manual}
//   %s.sum = f32[16,32] custom-call(%s.reduced), custom_call_target="SPMDShardToFullShape", sharding={replicated}
//
// No carried tensor is split, so that shapes stay as they are; only the instructions that leave partial sums read
// parts.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "common/hlo/hlo_writer.h"
#include "common/sharding/collectives.h"
#include "plan/emit/layout.h"

namespace automap::emit {

class CombinedSums {
 public:
  // `layout` must stay alive. None where sums are apart (ShardingModel::sums_combined), and in meshes.
  explicit CombinedSums(const Layout& layout);

  bool empty() const { return sums_.empty(); }
  // For hlo::WriteOptions.
  bool by_hand(graph::InstructionId id) const { return sums_.count(id) != 0; }
  std::optional<hlo::LocalOperand> local_operand(graph::InstructionId id, std::size_t operand) const;
  std::optional<std::string> summed(graph::InstructionId id) const;
  bool read_partial(graph::InstructionId id, std::size_t operand) const;

 private:
  bool is_addend(graph::InstructionId id) const;

  const Layout& layout_;
  std::map<graph::InstructionId, sharding::CarriedSum> sums_;  // all runs of an instruction are alike
};

}  // namespace automap::emit
