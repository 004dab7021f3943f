// The same module at another batch: some dimensions of some shapes grow and shrink with the number of samples, all else
// stays. For estimates that read shapes: names, texts and attributes stay those of the module, except windows that
// reach over all of a dimension (running sums), which grow with it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/span.h"
#include "common/graph/graph.h"

namespace automap::graph {

// A set of dimensions, bit d for dimension d. Dimensions beyond the 64th are in no set.
using DimSet = std::uint64_t;

// Per instruction and leaf of its result (arrays have one), a set of dimensions. Empty at first.
class DimMarks {
 public:
  explicit DimMarks(const Graph& graph);

  Span<const DimSet> of(InstructionId id) const { return {sets_.data() + first(id), size(id)}; }
  // Adds to what is there; false when all of it was there before.
  bool add(InstructionId id, std::size_t leaf, DimSet dims) {
    DimSet& set = sets_[first(id) + leaf];
    const bool more = (dims & ~set) != 0;
    set |= dims;
    return more;
  }
  // The sets of `count` leaves of `from`, from its leaf `first_from` on, added to leaves of `to`.
  bool add_all(InstructionId to, std::size_t first_to, InstructionId from, std::size_t first_from, std::size_t count);
  std::size_t size(InstructionId id) const { return first_[static_cast<std::size_t>(id) + 1] - first(id); }
  bool any(InstructionId id) const;
  // Leaves of element `i` of a tuple instruction: where they begin, and how many they are.
  std::pair<std::size_t, std::size_t> element(InstructionId id, std::size_t i) const;

  // Where instructions only hand values on (parameters, tuples and their elements, calls, loops, branches, barriers),
  // adds the marks of their other side; all else must be marked before.
  void hand_on();

 private:
  std::size_t first(InstructionId id) const { return first_[static_cast<std::size_t>(id)]; }
  std::size_t leaves(ShapeId id) const { return leaves_[static_cast<std::size_t>(id)]; }
  bool hand_on(InstructionId id);
  bool hand_to(ComputationId callee, Span<const InstructionId> operands);
  bool take_root(InstructionId id, ComputationId callee);

  const Graph& graph_;
  std::vector<std::size_t> leaves_;  // by shape
  std::vector<std::size_t> first_;   // by instruction, one more
  std::vector<DimSet> sets_;
};

class ResizedGraph {
 public:
  // `module` must stay alive. The marked dimensions are those of `batch` >= 1 samples.
  ResizedGraph(const Graph& module, const DimMarks& marks, std::int64_t batch);

  // Marked extents e become e * samples / batch, rounded, at least 1. samples >= 1. Nothing else of graph() changes, so
  // data that does not depend on extents may be kept between calls.
  void resize(std::int64_t samples);
  const Graph& graph() const { return graph_; }

 private:
  struct Resized {
    ShapeId shape = kNone, from = kNone;
    DimSet dims = 0;
  };
  struct Window {
    std::size_t attribute = 0;
    InstructionId id = kNone, operand = kNone;
    DimSet dims = 0;
    std::string text;
  };
  void find_windows(const DimMarks& marks);
  ShapeId shape_with(ShapeId shape, Span<const DimSet> sets, std::size_t* next);

  const Graph& module_;
  std::int64_t batch_;
  Graph graph_;
  std::vector<Resized> arrays_;
  std::vector<ShapeId> tuples_;  // elements first
  std::vector<Window> windows_;
};

}  // namespace automap::graph
