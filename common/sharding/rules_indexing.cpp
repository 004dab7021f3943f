// Instructions that read or write at computed places.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/graph/hlo_attributes.h"
#include "common/sharding/rules.h"

namespace automap::sharding {

using graph::Graph;
using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using graph::Shape;

namespace {

bool all_below(const std::vector<std::int64_t>& dims, std::int32_t rank) {
  std::vector<std::int64_t> sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
         (sorted.empty() || (sorted.front() >= 0 && sorted.back() < rank));
}

bool more_than_a_line(const Shape& shape) {
  return std::count_if(shape.dims.begin(), shape.dims.end(), [](std::int64_t extent) { return extent > 1; }) > 1;
}

}  // namespace

std::int32_t counted_dim(const Graph& graph, InstructionId indices, std::int32_t vector_dim, std::int64_t component) {
  InstructionId id = indices;
  // Concatenations of index components, one in another.
  constexpr int kMaxSteps = 64;
  int steps = 0;
  for (; steps < kMaxSteps && graph.instruction(id).opcode == Opcode::kConcatenate; ++steps) {
    const auto along = graph::int_list_attribute(graph, id, "dimensions");
    if (along.size() != 1 || along[0] != vector_dim) return kNone;
    InstructionId part = kNone;
    for (const InstructionId operand : graph.operands(id)) {
      const Shape& piece = graph.shape_of(operand);
      if (vector_dim < 0 || static_cast<std::size_t>(vector_dim) >= piece.dims.size()) return kNone;
      const std::int64_t components = piece.dims[static_cast<std::size_t>(vector_dim)];
      if (component < components) {
        part = operand;
        break;
      }
      component -= components;
    }
    if (part == kNone) return kNone;
    id = part;
  }
  // XLA turns a line into a reshape before it looks.
  const Shape& shape = graph.shape_of(id);
  if (id != indices && !more_than_a_line(shape)) return kNone;
  if (id == indices && vector_dim >= 0 && static_cast<std::size_t>(vector_dim) < shape.dims.size() &&
      shape.dims[static_cast<std::size_t>(vector_dim)] != 1) {
    return kNone;
  }
  // Broadcasts, and how the dimensions of each one's operand stand in its result.
  std::vector<std::vector<std::int64_t>> maps;
  for (; steps < kMaxSteps && graph.instruction(id).opcode == Opcode::kBroadcast; ++steps) {
    const InstructionId from = graph.operands(id)[0];
    maps.push_back(graph::dimension_list_attribute(graph, id, "dimensions", graph.shape_of(id).dims.size()));
    if (maps.back().size() != graph.shape_of(from).dims.size()) return kNone;
    id = from;
  }
  if (graph.instruction(id).opcode != Opcode::kIota) return kNone;
  std::int64_t along = graph::int_attribute(graph, id, "iota_dimension", -1);
  if (along < 0 || static_cast<std::size_t>(along) >= graph.shape_of(id).dims.size()) return kNone;
  for (auto map = maps.rbegin(); map != maps.rend(); ++map) along = (*map)[static_cast<std::size_t>(along)];
  return along == vector_dim ? kNone : narrow(along);
}

namespace {

// Dimensions of gather and scatter in one form. "Window" is the result of a gather or the updates of a scatter: one
// window per index vector, its dimensions mixed with those of the indices.
struct Indexing {
  std::int32_t operand_rank = 0;
  std::vector<std::int32_t> window_of;  // per operand dimension: of the window; kNone when collapsed or batching
  std::vector<std::int32_t> batch_of;   // per indices dimension: of the window; kNone for the index vectors'
  std::vector<std::int32_t> index_of;   // per operand dimension: component of the index vector; kNone
  std::vector<std::int32_t> linked_to;  // per operand dimension: the indices dimension that goes with it; kNone
};

// nullopt when the attributes contradict the ranks.
std::optional<Indexing> read_indexing(const RuleBuilder& b, std::int32_t indices_slot, std::int32_t window_rank,
                                      const std::vector<std::int64_t>& window_dims,
                                      const std::vector<std::int64_t>& collapsed,
                                      const std::vector<std::int64_t>& index_map,
                                      const std::vector<std::int64_t>& operand_batching,
                                      const std::vector<std::int64_t>& indices_batching, std::int64_t vector_dim) {
  Indexing result;
  const std::int32_t rank = b.rank(0);
  const std::int32_t indices_rank = b.rank(indices_slot);
  if (!all_below(window_dims, window_rank) || !all_below(collapsed, rank) || !all_below(index_map, rank) ||
      !all_below(operand_batching, rank) || !all_below(indices_batching, indices_rank) || vector_dim < 0 ||
      vector_dim > indices_rank || operand_batching.size() != indices_batching.size() ||
      contains(indices_batching, vector_dim)) {
    return std::nullopt;
  }
  const std::int64_t components = vector_dim < indices_rank ? b.extent({indices_slot, narrow(vector_dim)}) : 1;
  const std::int32_t batch_rank = indices_rank - (vector_dim < indices_rank ? 1 : 0);
  if (components != static_cast<std::int64_t>(index_map.size()) ||
      window_rank != static_cast<std::int32_t>(window_dims.size()) + batch_rank) {
    return std::nullopt;
  }
  result.operand_rank = rank;
  result.window_of.assign(static_cast<std::size_t>(rank), kNone);
  result.index_of.assign(static_cast<std::size_t>(rank), kNone);
  result.linked_to.assign(static_cast<std::size_t>(rank), kNone);
  result.batch_of.assign(static_cast<std::size_t>(indices_rank), kNone);
  std::vector<std::int64_t> sorted = window_dims;
  std::sort(sorted.begin(), sorted.end());
  std::size_t next = 0;
  for (std::int32_t dim = 0; dim < rank; ++dim) {
    if (contains(collapsed, dim) || contains(operand_batching, dim)) {
      if (contains(collapsed, dim) && contains(operand_batching, dim)) return std::nullopt;
      continue;
    }
    if (next == sorted.size()) return std::nullopt;
    result.window_of[static_cast<std::size_t>(dim)] = narrow(sorted[next++]);
  }
  if (next != sorted.size()) return std::nullopt;
  std::int32_t out = 0;
  for (std::int32_t dim = 0; dim < indices_rank; ++dim) {
    if (dim == vector_dim) continue;
    while (contains(window_dims, out)) ++out;
    result.batch_of[static_cast<std::size_t>(dim)] = out++;
  }
  for (std::size_t i = 0; i < index_map.size(); ++i) {
    if (contains(operand_batching, index_map[i])) return std::nullopt;
    result.index_of[static_cast<std::size_t>(index_map[i])] = static_cast<std::int32_t>(i);
  }
  for (std::size_t i = 0; i < operand_batching.size(); ++i) {
    result.linked_to[static_cast<std::size_t>(operand_batching[i])] = narrow(indices_batching[i]);
  }
  return result;
}

// Operand dimensions that are read or written one place at a time, at the place's own position along a dimension of the
// indices ("take along an axis" spelled with iotas): linked like batching dimensions. XLA links all or none.
void link_counted(const RuleBuilder& b, std::int32_t indices_slot, std::int64_t vector_dim, Indexing* indexing) {
  const InstructionId indices = b.graph().operands(b.id())[static_cast<std::size_t>(indices_slot)];
  std::vector<std::int32_t> linked = indexing->linked_to;
  for (std::int32_t dim = 0; dim < indexing->operand_rank; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    if (indexing->index_of[d] == kNone) continue;
    const std::int32_t along = counted_dim(b.graph(), indices, narrow(vector_dim), indexing->index_of[d]);
    if (along == kNone) continue;
    if (b.extent({indices_slot, along}) != b.extent({0, dim}) ||
        std::find(linked.begin(), linked.end(), along) != linked.end()) {
      return;
    }
    linked[d] = along;
  }
  indexing->linked_to = std::move(linked);
}

}  // namespace

// gather(operand, indices):
//   a dimension read in full               {operand, result}
//   batch dimensions of the indices        {indices, result}, with the operand's where the two go together
//   a dimension of which one place is read {operand} with a partial result: a device reads 0 where it has nothing
void gather_rule(RuleBuilder& b) {
  if (b.num_operands() != 2 || b.num_results() != 1 || !b.are_arrays(0, 3)) return b.refuse();
  const graph::GatherDimensions dims = graph::gather_dimensions(b.graph(), b.id());
  auto indexing = read_indexing(b, 1, b.rank(2), dims.offset_dims, dims.collapsed_slice_dims, dims.start_index_map,
                                dims.operand_batching_dims, dims.start_indices_batching_dims, dims.index_vector_dim);
  if (!indexing || dims.slice_sizes.size() != static_cast<std::size_t>(b.rank(0))) return b.refuse();
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    const std::int64_t size = dims.slice_sizes[d];
    if (size < 0 || size > b.extent({0, dim})) return b.refuse();
    if (indexing->window_of[d] == kNone ? size > 1 : size != b.extent({2, indexing->window_of[d]})) return b.refuse();
  }
  // A window of more than one place moves; it does not count.
  Indexing counted = *indexing;
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    if (dims.slice_sizes[static_cast<std::size_t>(dim)] != 1) counted.index_of[static_cast<std::size_t>(dim)] = kNone;
  }
  link_counted(b, 1, dims.index_vector_dim, &counted);
  indexing->linked_to = counted.linked_to;

  const bool logical = b.graph().shape_of(b.id()).type == graph::ElementType::kPred;
  std::vector<std::int32_t> operand_of(indexing->batch_of.size(), kNone);  // per indices dimension
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    const std::int64_t extent = b.extent({0, dim});
    const std::int64_t size = dims.slice_sizes[d];
    const std::int32_t window = indexing->window_of[d];
    if (indexing->linked_to[d] != kNone) {
      operand_of[static_cast<std::size_t>(indexing->linked_to[d])] = dim;
    } else if (size == extent) {
      if (window != kNone) b.pass({{0, dim}, {2, window}});
    } else if (size == 1 && indexing->index_of[d] != kNone) {
      b.partial({{0, dim}}, logical ? Reduction::kOr : Reduction::kAdd);
    } else {
      b.block({0, dim}, Block::kWhole);
      if (window != kNone) b.block({2, window}, Block::kWhole);
    }
  }
  for (std::int32_t dim = 0; dim < b.rank(1); ++dim) {
    const std::int32_t out = indexing->batch_of[static_cast<std::size_t>(dim)];
    const std::int32_t operand = operand_of[static_cast<std::size_t>(dim)];
    if (out == kNone) {
      b.block({1, dim}, Block::kWhole);
    } else if (operand != kNone) {
      b.pass({{0, operand}, {1, dim}, {2, out}});
    } else {
      b.pass({{1, dim}, {2, out}});
    }
  }
}

// scatter(operands, indices, updates):
//   a dimension written in full               {operand, updates, result}
//   batching dimensions                       {operand, indices, updates, result}
//   a dimension of which one place is written {operand, result}: a device writes the updates that fall into its part
//   other dimensions of the indices           {indices, updates} with a partial result, the operand counted once,
//                                             where the order of the updates does not matter
void scatter_rule(RuleBuilder& b) {
  const std::int32_t n = b.num_results();
  if (n < 1 || b.num_operands() != 2 * n + 1 || !b.are_arrays(0, b.num_slots())) return b.refuse();
  const std::int32_t indices = n;
  for (std::int32_t i = 0; i < n; ++i) {
    if (b.dims(i) != b.dims(0) || b.dims(b.result(i)) != b.dims(0) || b.dims(n + 1 + i) != b.dims(n + 1)) {
      return b.refuse();
    }
  }
  const graph::ScatterDimensions dims = graph::scatter_dimensions(b.graph(), b.id());
  auto indexing = read_indexing(b, indices, b.rank(n + 1), dims.update_window_dims, dims.inserted_window_dims,
                                dims.scatter_dims_to_operand_dims, dims.input_batching_dims,
                                dims.scatter_indices_batching_dims, dims.index_vector_dim);
  if (!indexing) return b.refuse();
  const auto window_extent = [&](std::int32_t dim) {
    const std::int32_t window = indexing->window_of[static_cast<std::size_t>(dim)];
    return window == kNone ? std::int64_t{1} : b.extent({n + 1, window});
  };
  Indexing counted = *indexing;
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    if (window_extent(dim) > b.extent({0, dim})) return b.refuse();
    if (window_extent(dim) != 1) counted.index_of[static_cast<std::size_t>(dim)] = kNone;
  }
  link_counted(b, indices, dims.index_vector_dim, &counted);
  indexing->linked_to = counted.linked_to;

  // Members from all operands, updates or results.
  std::vector<SlotDim> members;
  const auto add = [&](std::int32_t first_slot, std::int32_t dim) {
    for (std::int32_t i = 0; i < n; ++i) members.push_back({first_slot + i, dim});
  };
  const auto block_members = [&](Block why) {
    for (const SlotDim at : members) b.block(at, why);
  };
  std::vector<std::int32_t> operand_of(indexing->batch_of.size(), kNone);
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    const std::int32_t window = indexing->window_of[d];
    members.clear();
    if (indexing->linked_to[d] != kNone) {
      operand_of[static_cast<std::size_t>(indexing->linked_to[d])] = dim;
      continue;
    }
    add(0, dim);
    add(b.result(), dim);
    if (window != kNone && window_extent(dim) == b.extent({0, dim})) {
      add(n + 1, window);
      b.pass(members);
    } else if (window_extent(dim) == 1 && indexing->index_of[d] != kNone) {
      b.pass(members);
    } else {
      if (window != kNone) add(n + 1, window);
      block_members(Block::kWhole);
    }
  }
  // XLA's partitioner gathers the partial results of several arrays that are written together.
  const Reduction reduction = n == 1 ? applied_reduction(b.graph(), b.id(), 1) : Reduction::kNone;
  for (std::int32_t dim = 0; dim < b.rank(indices); ++dim) {
    const std::int32_t window = indexing->batch_of[static_cast<std::size_t>(dim)];
    const std::int32_t operand = operand_of[static_cast<std::size_t>(dim)];
    members.clear();
    if (window == kNone) {
      b.block({indices, dim}, Block::kWhole);
      continue;
    }
    if (operand != kNone) add(0, operand);
    members.push_back({indices, dim});
    add(n + 1, window);
    if (operand != kNone) {
      add(b.result(), operand);
      b.pass(members);
    } else if (reduction != Reduction::kNone) {
      b.partial(members, reduction, {b.result()});
    } else {
      block_members(Block::kWhole);
    }
  }
}

namespace {

// Places are scalars, or one array of them in old modules.
void block_places(RuleBuilder& b, std::int32_t first, std::int32_t last) {
  for (std::int32_t slot = first; slot < last; ++slot) b.block_slot(slot, Block::kWhole);
}

}  // namespace

// dynamic-slice(operand, places...): only dimensions that are read in full can be split.
void dynamic_slice_rule(RuleBuilder& b) {
  if (b.num_operands() < 1 || b.num_results() != 1 || !b.are_arrays(0, b.num_slots()) ||
      b.rank(0) != b.rank(b.result())) {
    return b.refuse();
  }
  block_places(b, 1, b.num_operands());
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const SlotDim from{0, dim}, to{b.result(), dim};
    if (b.extent(from) == b.extent(to)) {
      b.pass({from, to});
    } else {
      b.block({from, to}, Block::kWhole);
    }
  }
}

// dynamic-update-slice(operand, update, places...): only dimensions that are written in full can be split.
void dynamic_update_slice_rule(RuleBuilder& b) {
  if (b.num_operands() < 2 || b.num_results() != 1 || !b.are_arrays(0, b.num_slots()) || b.rank(0) != b.rank(1) ||
      b.dims(0) != b.dims(b.result())) {
    return b.refuse();
  }
  block_places(b, 2, b.num_operands());
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const SlotDim operand{0, dim}, update{1, dim}, result{b.result(), dim};
    if (b.extent(operand) == b.extent(update)) {
      b.pass({operand, update, result});
    } else {
      b.block({operand, update, result}, Block::kWhole);
    }
  }
}

}  // namespace automap::sharding
