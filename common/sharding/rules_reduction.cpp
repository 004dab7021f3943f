// Instructions that look along dimensions: reductions, windows, sorts, matrix decompositions, batch norms.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/hlo_attributes.h"
#include "common/sharding/rules.h"

namespace automap::sharding {

using graph::dimension_list_attribute;
using graph::InstructionId;
using graph::Opcode;

namespace {

// Does the computation order its two parameters?
bool orders_parameters(const graph::Graph& graph, graph::ComputationId id) {
  const graph::Computation& body = graph.computation(id);
  if (body.parameters.size() != 2 || body.root == graph::kNone) return false;
  if (graph.instruction(body.root).opcode != Opcode::kCompare) return false;
  const Span<const graph::InstructionId> operands = graph.operands(body.root);
  if (operands.size() != 2 || operands[0] == operands[1]) return false;
  for (const graph::InstructionId operand : operands) {
    if (graph.instruction(operand).opcode != Opcode::kParameter) return false;
  }
  const std::optional<std::string_view> direction = graph.attribute(body.root, "direction");
  return direction && (*direction == "GE" || *direction == "GT" || *direction == "LE" || *direction == "LT");
}

// These dimensions of all slots given, which have one shape, pass but for those of which `whole` says otherwise.
template <typename Whole>
void pass_but(RuleBuilder& b, const std::vector<std::int32_t>& slots, Block why, const Whole& whole) {
  if (slots.empty()) return;
  const std::int32_t rank = b.rank(slots[0]);
  for (const std::int32_t slot : slots) {
    if (b.rank(slot) != rank) return b.refuse();
  }
  std::vector<SlotDim> members(slots.size());
  for (std::int32_t dim = 0; dim < rank; ++dim) {
    for (std::size_t i = 0; i < slots.size(); ++i) members[i] = {slots[i], dim};
    if (whole(dim)) {
      for (const SlotDim at : members) b.block(at, why);
    } else {
      b.pass(members);
    }
  }
}

std::vector<std::int32_t> slots_between(std::int32_t first, std::int32_t last) {
  std::vector<std::int32_t> slots;
  for (std::int32_t slot = first; slot < last; ++slot) slots.push_back(slot);
  return slots;
}

Reduction reduction_of(const graph::Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::kAdd: return Reduction::kAdd;
    case Opcode::kMultiply: return Reduction::kMultiply;
    case Opcode::kMinimum: return Reduction::kMinimum;
    case Opcode::kMaximum: return Reduction::kMaximum;
    case Opcode::kAnd: return Reduction::kAnd;
    case Opcode::kOr: return Reduction::kOr;
    default: return Reduction::kNone;
  }
}

bool single(const graph::WindowDimension& w) {
  return w.size == 1 && w.stride == 1 && w.pad_low == 0 && w.pad_high == 0 && w.base_dilation == 1;
}

}  // namespace

Reduction applied_reduction(const graph::Graph& graph, InstructionId id, std::int32_t count) {
  const auto called = graph.called(id);
  if (called.size() != 1 || count < 1) return Reduction::kNone;
  const graph::Computation& computation = graph.computation(called[0]);
  if (computation.parameters.size() != 2 * static_cast<std::size_t>(count) || computation.root == graph::kNone) {
    return Reduction::kNone;
  }
  const bool tuple = graph.instruction(computation.root).opcode == Opcode::kTuple;
  if (tuple ? graph.instruction(computation.root).num_operands != count : count != 1) return Reduction::kNone;
  Reduction all = Reduction::kNone;
  for (std::int32_t i = 0; i < count; ++i) {
    const InstructionId made = tuple ? graph.operands(computation.root)[static_cast<std::size_t>(i)] : computation.root;
    const Reduction one = reduction_of(graph.instruction(made));
    if (one == Reduction::kNone || (i > 0 && one != all) || graph.instruction(made).num_operands != 2) {
      return Reduction::kNone;
    }
    all = one;
    const InstructionId left = graph.operands(made)[0];
    const InstructionId right = graph.operands(made)[1];
    const InstructionId first = computation.parameters[static_cast<std::size_t>(i)];
    const InstructionId second = computation.parameters[static_cast<std::size_t>(i + count)];
    if (!(left == first && right == second) && !(left == second && right == first)) return Reduction::kNone;
  }
  return all;
}

namespace {

// True if starting from this value once per device makes no difference. XLA's partitioner starts once per device, and
// wrongly so where a sum does not start from 0 or a product not from 1. A value that cannot be seen (a parameter)
// counts as not neutral.
bool is_neutral_start(const graph::Graph& graph, InstructionId id, Reduction reduction) {
  if (reduction != Reduction::kAdd && reduction != Reduction::kMultiply) return true;
  constexpr int kMaxSteps = 16;
  for (int step = 0; step < kMaxSteps; ++step) {
    const graph::Instruction& instruction = graph.instruction(id);
    switch (instruction.opcode) {
      case Opcode::kBitcast:
      case Opcode::kBroadcast:
      case Opcode::kConvert:
      case Opcode::kCopy:
      case Opcode::kReshape:
        if (instruction.num_operands != 1) return false;
        id = graph.operands(id)[0];
        continue;
      case Opcode::kConstant: {
        // "0", "-0.0", "1", "1e+00", "(0, 0)": of complex numbers, both parts.
        std::string text(instruction.payload);
        for (char& c : text) {
          if (c == '(' || c == ')' || c == ',') c = ' ';
        }
        std::istringstream parts(text);
        const double neutral = reduction == Reduction::kAdd ? 0 : 1;
        std::string part;
        for (int i = 0; parts >> part; ++i) {
          char* end = nullptr;
          const double value = std::strtod(part.c_str(), &end);
          if (i > 1 || *end != '\0' || value != (i == 0 ? neutral : 0)) return false;
        }
        return !part.empty();
      }
      default: return false;
    }
  }
  return false;
}

}  // namespace

// reduce(inputs, starting values) of n arrays at once. Splitting a reduced dimension of a single one leaves partial
// results.
void reduce_rule(RuleBuilder& b) {
  const std::int32_t n = b.num_results();
  if (n < 1 || b.num_operands() != 2 * n || !b.are_arrays(0, b.num_slots())) return b.refuse();
  const std::int32_t rank = b.rank(0);
  const auto reduced = dimension_list_attribute(b.graph(), b.id(), "dimensions", static_cast<std::size_t>(rank));
  for (std::int32_t i = 0; i < n; ++i) {
    if (b.dims(i) != b.dims(0) || b.rank(n + i) != 0 ||
        static_cast<std::size_t>(b.rank(b.result(i))) + reduced.size() != static_cast<std::size_t>(rank)) {
      return b.refuse();
    }
  }
  // XLA's partitioner gathers the partial results of several arrays that are reduced together.
  Reduction reduction = n == 1 ? applied_reduction(b.graph(), b.id(), 1) : Reduction::kNone;
  if (!is_neutral_start(b.graph(), b.graph().operands(b.id())[1], reduction)) reduction = Reduction::kNone;
  std::vector<SlotDim> members;
  std::int32_t kept = 0;
  for (std::int32_t dim = 0; dim < rank; ++dim) {
    members.clear();
    for (std::int32_t i = 0; i < n; ++i) members.push_back({i, dim});
    if (std::find(reduced.begin(), reduced.end(), dim) == reduced.end()) {
      for (std::int32_t i = 0; i < n; ++i) members.push_back({b.result(i), kept});
      ++kept;
      b.pass(members);
    } else if (reduction == Reduction::kNone) {
      for (const SlotDim at : members) b.block(at, Block::kWhole);
    } else {
      b.partial(members, reduction, {b.result()});
    }
  }
}

void reduce_window_rule(RuleBuilder& b) {
  const std::int32_t n = b.num_results();
  if (n < 1 || b.num_operands() != 2 * n || !b.are_arrays(0, b.num_slots())) return b.refuse();
  const std::vector<graph::WindowDimension> window = graph::window_attribute(b.graph(), b.id());
  if (window.size() != static_cast<std::size_t>(b.rank(0))) return b.refuse();
  for (std::int32_t i = 0; i < n; ++i) {
    if (b.rank(n + i) != 0) return b.refuse();
  }
  std::vector<std::int32_t> slots = slots_between(0, n);
  for (std::int32_t i = 0; i < n; ++i) slots.push_back(b.result(i));
  pass_but(b, slots, Block::kHalo, [&](std::int32_t dim) { return !single(window[static_cast<std::size_t>(dim)]); });
  for (std::int32_t dim = 0; n == 1 && dim < b.rank(0); ++dim) {
    const graph::WindowDimension& w = window[static_cast<std::size_t>(dim)];
    const SlotDim in{0, dim}, out{b.result(), dim};
    std::optional<Halo> halo = halo_of_window(w, b.extent(in), b.extent(out));
    if (!halo || single(w) || w.base_dilation > 1) continue;
    halo->of = in;
    halo->shared_by = window_text(window);
    halo->padded_with = padding_text(b.graph(), b.graph().operands(b.id())[1]);
    b.exchange({in, out}, *halo);
  }
}

// select-and-scatter(operand, source, start): the gradient of a pooling; the result has the operand's shape. XLA
// gathers it unless it selects the largest or smallest number of a type that has infinities to pad with, of two types.
void select_and_scatter_rule(RuleBuilder& b) {
  if (b.num_operands() != 3 || b.num_results() != 1 || !b.are_arrays(0, 4) || b.rank(2) != 0) return b.refuse();
  const std::vector<graph::WindowDimension> window = graph::window_attribute(b.graph(), b.id());
  if (window.size() != static_cast<std::size_t>(b.rank(0))) return b.refuse();
  const graph::ElementType type = b.graph().shape_of(b.id()).type;
  const Span<const graph::ComputationId> called = b.graph().called(b.id());
  const bool known = std::any_of(called.begin(), called.end(),
                                 [&](graph::ComputationId id) { return orders_parameters(b.graph(), id); });
  if ((type != graph::ElementType::kF32 && type != graph::ElementType::kBf16) || !known) return whole_rule(b);
  pass_but(b, {0, 1, 3}, Block::kHalo,
           [&](std::int32_t dim) { return !single(window[static_cast<std::size_t>(dim)]); });
  // Windows that lie side by side need no neighbour; of others XLA exchanges much more than their borders.
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const graph::WindowDimension& w = window[static_cast<std::size_t>(dim)];
    const SlotDim in{0, dim}, from{1, dim}, out{3, dim};
    if (single(w) || w.size != w.stride || w.window_dilation != 1) continue;
    const std::optional<Halo> halo = halo_of_window(w, b.extent(in), b.extent(from));
    if (halo && halo->left == 0 && halo->right == 0 && w.pad_high == 0) b.exchange({in, from, out}, {{-1, 0}});
  }
}

void sort_rule(RuleBuilder& b) {
  if (b.num_operands() != b.num_results() || b.num_operands() < 1 || !b.are_arrays(0, b.num_slots())) {
    return b.refuse();
  }
  const auto sorted = dimension_list_attribute(b.graph(), b.id(), "dimensions", static_cast<std::size_t>(b.rank(0)));
  if (sorted.size() != 1) return b.refuse();
  pass_but(b, slots_between(0, b.num_slots()), Block::kWhole, [&](std::int32_t dim) { return dim == sorted[0]; });
}

// The largest k along the last dimension, and where they were: the custom-call, that XLA's partitioner knows, of
// one line or several.
void topk_call_rule(RuleBuilder& b) {
  if (b.num_operands() != 1 || !b.are_arrays(0, b.num_slots()) || b.rank(0) < 1) return b.refuse();
  if (b.rank(0) > 2) return whole_rule(b);
  const std::int32_t last = b.rank(0) - 1;
  pass_but(b, slots_between(0, b.num_slots()), Block::kWhole, [&](std::int32_t dim) { return dim == last; });
}

// The matrices are the last two dimensions.
void cholesky_rule(RuleBuilder& b) {
  if (b.num_operands() != 1 || b.num_results() != 1 || b.rank(0) < 2) return b.refuse();
  const std::int32_t first = b.rank(0) - 2;
  pass_but(b, {0, 1}, Block::kWhole, [&](std::int32_t dim) { return dim >= first; });
}

void triangular_solve_rule(RuleBuilder& b) {
  if (b.num_operands() != 2 || b.num_results() != 1 || b.rank(0) < 2) return b.refuse();
  const std::int32_t first = b.rank(0) - 2;
  pass_but(b, {0, 1, 2}, Block::kWhole, [&](std::int32_t dim) { return dim >= first; });
}

namespace {

// `arrays` have one shape; `vectors` one entry per feature. Statistics over the other dimensions are sums, that are
// reduced at once: partial sums in `statistics`, which the instruction itself goes on with: the sums that it would come
// apart into. XLA's partitioner knows that only of instructions that were taken apart before (planner.cpp warns).
void batch_norm(RuleBuilder& b, const std::vector<std::int32_t>& arrays, const std::vector<std::int32_t>& vectors,
                const std::vector<std::int32_t>& statistics) {
  if (!b.are_arrays(0, b.num_slots())) return b.refuse();
  const std::int64_t feature = graph::int_attribute(b.graph(), b.id(), "feature_index", -1);
  const std::int32_t rank = b.rank(arrays[0]);
  if (feature < 0 || feature >= rank) return b.refuse();
  for (const std::int32_t slot : arrays) {
    if (b.rank(slot) != rank) return b.refuse();
  }
  for (const std::int32_t slot : vectors) {
    if (b.rank(slot) != 1) return b.refuse();
  }
  for (std::int32_t dim = 0; dim < rank; ++dim) {
    std::vector<SlotDim> members;
    for (const std::int32_t slot : arrays) members.push_back({slot, dim});
    if (dim == feature) {
      for (const std::int32_t slot : vectors) members.push_back({slot, 0});
      for (const SlotDim at : members) b.block(at, Block::kWhole);
    } else if (statistics.empty()) {
      b.pass(members);
    } else {
      b.partial(members, Reduction::kAdd, statistics);
    }
  }
}

}  // namespace

// (operand, scale, offset) -> (result, mean, variance)
void batch_norm_training_rule(RuleBuilder& b) {
  if (b.num_operands() != 3 || b.num_results() != 3) return b.refuse();
  batch_norm(b, {0, 3}, {1, 2, 4, 5}, {4, 5});
}

// (operand, scale, offset, mean, variance) -> result
void batch_norm_inference_rule(RuleBuilder& b) {
  if (b.num_operands() != 5 || b.num_results() != 1) return b.refuse();
  batch_norm(b, {0, 5}, {1, 2, 3, 4}, {});
}

// (operand, scale, mean, variance, gradient of the result) -> gradients of (operand, scale, offset)
void batch_norm_grad_rule(RuleBuilder& b) {
  if (b.num_operands() != 5 || b.num_results() != 3) return b.refuse();
  batch_norm(b, {0, 4, 5}, {1, 2, 3, 6, 7}, {6, 7});
}

}  // namespace automap::sharding
