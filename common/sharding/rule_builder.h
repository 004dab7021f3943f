// The builder that rules are written with: the shapes of one instruction's slots, and the factors found so far.
//
// A rule that meets something it cannot be right about (attributes that contradict the shapes) calls refuse(); the
// instruction is opaque then. Everything here checks its positions and refuses by itself, so rules may be written as if
// their input were right, as long as their loops are bounded by shapes and not by attributes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "common/graph/graph.h"
#include "common/sharding/rule.h"

namespace automap::sharding {

inline std::int32_t narrow(std::int64_t dim) {
  return static_cast<std::int32_t>(dim);
}

inline bool contains(const std::vector<std::int64_t>& dims, std::int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

class RuleBuilder {
 public:
  // `least_extent`: dimensions of fewer elements are left out, as below.
  RuleBuilder(const graph::Graph& graph, graph::InstructionId id, std::int64_t least_extent);

  const graph::Graph& graph() const { return graph_; }
  graph::InstructionId id() const { return id_; }

  std::int32_t num_slots() const { return static_cast<std::int32_t>(shapes_.size()); }
  std::int32_t num_operands() const { return num_operands_; }
  std::int32_t num_results() const { return num_slots() - num_operands_; }
  // The slot of a result.
  std::int32_t result(std::int32_t index = 0) const { return num_operands_ + index; }
  bool is_array(std::int32_t slot) const { return shapes_[static_cast<std::size_t>(slot)] != nullptr; }
  // True if all slots in [first, last) are arrays.
  bool are_arrays(std::int32_t first, std::int32_t last) const;
  // A slot that is no array has rank 0 and no dimensions.
  std::int32_t rank(std::int32_t slot) const { return static_cast<std::int32_t>(dims(slot).size()); }
  const std::vector<std::int64_t>& dims(std::int32_t slot) const;
  // 0 where there is no such dimension.
  std::int64_t extent(SlotDim at) const;

  // These dimensions, all of one extent, are split together. Below the least extent nothing is to be split. With a
  // reduction the results named hold partial values.
  void pass(std::initializer_list<SlotDim> members) { pass(members.begin(), members.end()); }
  void pass(const std::vector<SlotDim>& members) { pass(members.data(), members.data() + members.size()); }
  void partial(std::initializer_list<SlotDim> members, Reduction reduction);
  void partial(const std::vector<SlotDim>& members, Reduction reduction, std::vector<std::int32_t> results);
  // The same with extents that differ: the devices must divide `extent`. Members below the least are left out.
  void factor(std::vector<SlotDim> members, std::int64_t extent, Reduction reduction = Reduction::kNone,
              std::vector<std::int32_t> results = {});
  // Nothing happens to dimensions below the least extent.
  void block(SlotDim at, Block why);
  void block(std::initializer_list<SlotDim> members, Block why) {
    for (const SlotDim at : members) block(at, why);
  }
  void block_slot(std::int32_t slot, Block why);
  // Members that are blocked as kHalo could be split together if neighbours exchanged `halo`. Does nothing where their
  // extents have no common divisor.
  void exchange(const std::vector<SlotDim>& members, Halo halo, Reduction reduction = Reduction::kNone);

  // The instruction is opaque.
  void refuse() { refused_ = true; }
  bool refused() const { return refused_; }
  // Blocks every dimension that no rule has covered as opaque, and returns the rule.
  OpRule finish();

 private:
  void pass(const SlotDim* begin, const SlotDim* end);
  bool take(SlotDim at);  // the dimension is spoken for now; refuses when it does not exist or already was

  const graph::Graph& graph_;
  const graph::InstructionId id_;
  const std::int64_t least_extent_;
  std::vector<const graph::Shape*> shapes_;
  std::int32_t num_operands_ = 0;
  std::vector<std::int32_t> first_dim_;  // of each slot in taken_
  std::vector<bool> taken_;
  OpRule rule_;
  bool refused_ = false;
};

}  // namespace automap::sharding
