// Finds the dimensions of the tensors of one operator that can only be split together, and those that cannot be split:
// the factors of the propagation rules (common/sharding/rule.h), joined over the instructions of the operator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/graph/dependence.h"
#include "common/sharding/rule.h"

namespace automap::soap {

class OperatorDims {
 public:
  // `flow` must stay alive. `free`: by node, takes any splitting.
  OperatorDims(const graph::FlowGraph& flow, const std::vector<bool>& free) : flow_(flow), free_(free) {}

  // An instruction of the operator; its operands' dimensions are joined with those of its results. `own`: the operand
  // is computed in the operator, so that its borders are nobody else's.
  void add(graph::NodeId node, const std::function<bool(graph::NodeId)>& own);
  // Two tensors of the same dimensions are split alike, though no instruction says so.
  void tie(graph::NodeId a, graph::NodeId b);
  // After the last add(): finds the dimensions that cannot be split.
  void finish();

  // A class of dimensions, by number; kNone: the dimension is of extent 1, free or of no tensor of the operator.
  std::int32_t class_of(graph::NodeId node, std::int32_t dim) const;
  bool blocked(std::int32_t c) const { return classes_[static_cast<std::size_t>(c)].blocked; }
  bool reduced(std::int32_t c) const { return classes_[static_cast<std::size_t>(c)].reduced; }
  std::int64_t extent(std::int32_t c) const { return classes_[static_cast<std::size_t>(c)].extent; }
  using NodeDim = std::pair<graph::NodeId, std::int32_t>;
  const std::vector<NodeDim>& members(std::int32_t c) const { return classes_[static_cast<std::size_t>(c)].members; }
  // Elements of its neighbours' slabs that a part reads of a tensor of another operator.
  struct Border {
    std::int64_t left = 0, right = 0;
  };
  Border border(graph::NodeId node, std::int32_t dim) const;

 private:
  struct Class {
    bool blocked = false, reduced = false;
    std::int64_t extent = 0;  // the greatest common divisor of its members and factors
    std::vector<NodeDim> members;
  };
  void add_identity(const std::vector<graph::NodeId>& slots, std::size_t first);
  void add_factor(const std::vector<graph::NodeId>& slots, const sharding::Factor& factor);
  bool add_border(graph::NodeId node, std::int32_t dim, const sharding::Halo& halo);
  void block_all(const std::vector<graph::NodeId>& slots);
  std::vector<graph::NodeId> slots_of(graph::NodeId node, bool* own_slots) const;
  bool is_tensor(graph::NodeId node) const;
  std::int32_t member(const std::vector<graph::NodeId>& slots, sharding::SlotDim at);  // kNone: takes no part
  std::int32_t index(NodeDim at);
  std::int32_t root(std::int32_t i) const;
  void join(std::int32_t a, std::int32_t b);

  const graph::FlowGraph& flow_;
  const std::vector<bool>& free_;
  std::map<NodeDim, std::int32_t> index_;
  mutable std::vector<std::int32_t> parent_;
  std::vector<Class> classes_;                      // by index, valid at roots
  std::vector<std::vector<std::int32_t>> factors_;  // of each instruction: a member of every factor
  std::map<NodeDim, Border> borders_;
};

}  // namespace automap::soap
