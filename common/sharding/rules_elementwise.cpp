// Rules of elementwise instructions, instructions without operands worth splitting, collectives and custom-calls.
#include <string>
#include <vector>

#include "common/graph/dependence.h"
#include "common/graph/hlo_attributes.h"
#include "common/sharding/rules.h"

namespace automap::sharding {

// Arrays of one shape; scalars (the bounds of a clamp, the predicate of a select) serve every element.
void elementwise_rule(RuleBuilder& b) {
  if (b.num_results() != 1 || !b.is_array(b.result())) return b.refuse();
  const std::int32_t rank = b.rank(b.result());
  std::vector<std::int32_t> slots;
  for (std::int32_t slot = 0; slot < b.num_slots(); ++slot) {
    // A token only orders (add-dependency).
    if (b.rank(slot) == 0) continue;
    if (b.rank(slot) != rank) return b.refuse();
    slots.push_back(slot);
  }
  if (slots.size() < 2 && rank > 0) return b.refuse();
  std::vector<SlotDim> members(slots.size());
  for (std::int32_t dim = 0; dim < rank; ++dim) {
    for (std::size_t i = 0; i < slots.size(); ++i) members[i] = {slots[i], dim};
    b.pass(members);
  }
}

// Each device makes its own part, whichever that is.
void free_rule(RuleBuilder& b) {
  for (std::int32_t slot = b.num_operands(); slot < b.num_slots(); ++slot) {
    for (std::int32_t dim = 0; dim < b.rank(slot); ++dim) b.pass({{slot, dim}});
  }
}

// The state is one small value; the numbers are free: nobody asked for particular ones.
void rng_bit_generator_rule(RuleBuilder& b) {
  if (b.num_operands() != 1 || b.num_results() < 1) return b.refuse();
  b.block_slot(0, Block::kWhole);
  if (b.num_results() >= 2) b.block_slot(b.result(0), Block::kWhole);
  const std::int32_t numbers = b.num_slots() - 1;
  for (std::int32_t dim = 0; dim < b.rank(numbers); ++dim) b.pass({{numbers, dim}});
}

void opaque_rule(RuleBuilder& b) {
  b.refuse();
}

// Instructions that could be split, but that XLA's partitioner does not know: it gathers their operands, whichever
// dimension is split, and every device does everything.
void whole_rule(RuleBuilder& b) {
  for (std::int32_t slot = 0; slot < b.num_slots(); ++slot) b.block_slot(slot, Block::kWhole);
}

// all-reduce and the like: result i is made of operand i of all devices, element by element.
void collective_rule(RuleBuilder& b) {
  if (b.num_operands() != b.num_results()) return b.refuse();
  for (std::int32_t i = 0; i < b.num_operands(); ++i) {
    if (b.rank(i) != b.rank(b.result(i))) return b.refuse();
    for (std::int32_t dim = 0; dim < b.rank(i); ++dim) b.pass({{i, dim}, {b.result(i), dim}});
  }
}

// all-gather, reduce-scatter, all-to-all: the same, but for the dimension along which data moves. The all-to-all of
// several arrays moves whole ones: every result is made of all operands.
void moving_collective_rule(RuleBuilder& b) {
  const std::vector<std::int64_t> moved = graph::int_list_attribute(b.graph(), b.id(), "dimensions");
  if (moved.empty() && b.graph().instruction(b.id()).opcode == graph::Opcode::kAllToAll) {
    std::vector<SlotDim> members(static_cast<std::size_t>(b.num_slots()));
    for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
      for (std::int32_t slot = 0; slot < b.num_slots(); ++slot) members[static_cast<std::size_t>(slot)] = {slot, dim};
      b.pass(members);
    }
    return;
  }
  if (moved.empty() || b.num_operands() != b.num_results()) return b.refuse();
  for (std::int32_t i = 0; i < b.num_operands(); ++i) {
    if (b.rank(i) != b.rank(b.result(i))) return b.refuse();
    for (std::int32_t dim = 0; dim < b.rank(i); ++dim) {
      if (dim == moved[0]) {
        b.block({{i, dim}, {b.result(i), dim}}, Block::kWhole);
      } else {
        b.pass({{i, dim}, {b.result(i), dim}});
      }
    }
  }
}

void custom_call_rule(RuleBuilder& b) {
  if (graph::is_annotation(b.graph(), b.id())) {
    if (b.dims(0) != b.dims(b.result())) return b.refuse();
    return collective_rule(b);
  }
  const std::string target = graph::string_attribute(b.graph(), b.id(), "custom_call_target");
  if (target == "TopK") return topk_call_rule(b);
  if (target.rfind("xla.sdy.", 0) != 0 || b.num_results() != 0) return b.refuse();
  // Shardy's notes about an operand (ShardingGroup) compute nothing.
  for (std::int32_t slot = 0; slot < b.num_slots(); ++slot) {
    for (std::int32_t dim = 0; dim < b.rank(slot); ++dim) b.pass({{slot, dim}});
  }
}

// get-dimension-size: only the one dimension's size is read, the result is a scalar.
void dimension_size_rule(RuleBuilder& b) {
  const std::vector<std::int64_t> read = graph::int_list_attribute(b.graph(), b.id(), "dimensions");
  if (read.empty() || b.num_operands() != 1) return b.refuse();
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    if (dim == read[0]) {
      b.block({0, dim}, Block::kWhole);
    } else {
      b.pass({{0, dim}});
    }
  }
}

}  // namespace automap::sharding
