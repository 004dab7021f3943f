#include "plan/emit/jax_constraints.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/sharding/reads.h"

namespace automap::emit {

namespace {

using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using sharding::NodeId;
using sharding::TensorState;
using sharding::TensorStateKind;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

// The key of a constraint: JAX's word, and how many leading operands tell equations apart.
struct EquationKind {
  Opcode opcode;
  const char* word;
  std::size_t operands;
  // JAX makes more of them in HLO than its program has (for random bits, say), so that their order says nothing: their
  // constraint is only written where all equal ones read alike, and one of them reads a tensor otherwise than it lies.
  bool uncounted = false;
};
constexpr EquationKind kEquations[] = {{Opcode::kDot, "dot_general", 2},
                                       {Opcode::kConvolution, "conv_general_dilated", 2},
                                       {Opcode::kGather, "gather", 1},
                                       {Opcode::kScatter, "scatter", 1},
                                       {Opcode::kReduce, "reduce", 1},
                                       // A scale, broadcast over the values that it scales.
                                       {Opcode::kReshape, "spread", 1, true},
                                       {Opcode::kBroadcast, "spread", 1, true},
                                       // Operations that put stored weights together or take them apart.
                                       {Opcode::kSlice, "slice", 1, true},
                                       {Opcode::kPad, "pad", 1, true},
                                       {Opcode::kConcatenate, "concatenate", kAll, true}};

const EquationKind* equation_kind(Opcode opcode) {
  const auto* const found = std::find_if(std::begin(kEquations), std::end(kEquations),
                                         [&](const EquationKind& kind) { return kind.opcode == opcode; });
  return found == std::end(kEquations) ? nullptr : found;
}

std::string dims_text(const graph::Shape& shape) {
  std::string out;
  for (const std::int64_t dim : shape.dims) out += (out.empty() ? "" : ", ") + std::to_string(dim);
  return "(" + out + ")";
}

// "dot_general.12" -> ("dot_general", 12)
std::pair<std::string_view, std::int64_t> numbered(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot + 1 == name.size() || name.size() - dot > 18) return {name, 0};
  std::int64_t number = 0;
  for (const char c : name.substr(dot + 1)) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return {name, 0};
    number = number * 10 + (c - '0');
  }
  return {name.substr(0, dot), number};
}

// Per instruction its place in the program. HLO text lists instructions late that nothing else needs; names are
// numbered as the program made them, so those of one name in one computation exchange their places.
std::vector<std::int32_t> program_places(const graph::Graph& graph) {
  std::map<std::pair<std::int32_t, std::string_view>, std::vector<std::pair<std::int64_t, InstructionId>>> alike;
  std::vector<std::int32_t> places(static_cast<std::size_t>(graph.num_instructions()));
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    const auto [base, number] = numbered(graph.instruction(id).name);
    alike[{graph.instruction(id).computation, base}].emplace_back(number, id);
  }
  for (auto& [key, list] : alike) {
    std::vector<InstructionId> ids;
    for (const auto& [number, id] : list) ids.push_back(id);
    std::sort(list.begin(), list.end());
    for (std::size_t i = 0; i < ids.size(); ++i) places[static_cast<std::size_t>(list[i].second)] = ids[i];
  }
  return places;
}

class ConstraintWriter {
 public:
  explicit ConstraintWriter(const Layout& layout)
      : layout_(layout), flow_(layout.model().flow()), graph_(flow_.graph()), places_(program_places(graph_)) {
    for (std::size_t axis = 0; axis < layout.num_axes(); ++axis) {
      for (const sharding::Read& read : sharding::reads_of(layout.model(axis), layout.decided(axis)))
        reads_.emplace(std::make_tuple(axis, read.reader, read.tensor), read);
    }
  }

  std::vector<JaxConstraint> run() const {
    std::vector<std::pair<std::vector<std::int32_t>, JaxConstraint>> found;
    std::map<std::string, Alike> uncounted;
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const EquationKind* const kind = equation_kind(flow_.node(node).opcode);
      const auto operands = flow_.operands(node);
      const graph::Shape& made = flow_.shape(node);
      const std::size_t operands_read = kind == nullptr ? 0 : kind->operands == kAll ? operands.size() : kind->operands;
      if (kind == nullptr || !made.is_array() || made.dims.empty() || operands.size() < operands_read) continue;
      JaxConstraint one;
      one.equation = kind->word;
      for (std::size_t i = 0; i < operands_read; ++i) {
        one.equation += " " + dims_text(flow_.shape(operands[i]));
        one.operands.push_back(is_tensor(operands[i]) ? std::optional<AxisDims>(read_dims(node, operands[i]))
                                                      : std::nullopt);
      }
      one.equation += " -> " + dims_text(made);
      if (kind->uncounted) {
        const std::string equation = one.equation;
        Alike alike = alike_of(node, std::move(one));
        const auto [at, added] = uncounted.try_emplace(equation, alike);
        if (!added) at->second.add(alike);
        continue;
      }
      if (is_tensor(node)) one.result = made_dims(node);
      found.emplace_back(place_of(node), std::move(one));
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<JaxConstraint> out;
    for (auto& [place, one] : found) out.push_back(std::move(one));
    for (auto& [equation, alike] : uncounted) {
      if (alike.moved && alike.says_anything()) out.push_back(std::move(alike.reads));
    }
    return out;
  }

 private:
  // The common constraint of all equations of one text; an operand that some read differently has no value.
  struct Alike {
    JaxConstraint reads;
    bool moved = false;  // what lies otherwise than it is read or made, by any of them

    void add(const Alike& other) {
      for (std::size_t i = 0; i < reads.operands.size(); ++i) {
        if (reads.operands[i] != other.reads.operands[i]) reads.operands[i].reset();
      }
      if (reads.result != other.reads.result) reads.result.reset();
      moved = moved || other.moved;
    }
    bool says_anything() const {
      return reads.result || std::any_of(reads.operands.begin(), reads.operands.end(),
                                         [](const auto& dims) { return dims.has_value(); });
    }
  };

  Alike alike_of(NodeId node, JaxConstraint one) const {
    Alike out{std::move(one)};
    const auto operands = flow_.operands(node);
    for (std::size_t i = 0; i < out.reads.operands.size(); ++i) {
      std::optional<AxisDims>& dims = out.reads.operands[i];
      if (flow_.shape(operands[i]).dims.empty()) dims.reset();
      if (!dims) continue;
      // A tensor that is made whole may be read whole.
      for (std::size_t axis = 0; axis < layout_.num_axes(); ++axis) {
        if (layout_.made_whole(operands[i], axis)) (*dims)[axis] = -1;
      }
      out.moved = out.moved || is_read_otherwise(node, operands[i]);
    }
    for (std::size_t axis = 0; axis < layout_.num_axes(); ++axis) {
      if (!is_tensor(node) || !layout_.made_whole(node, axis)) continue;
      out.reads.result = made_dims(node);
      out.moved = true;
    }
    return out;
  }

  // That every axis has a state for.
  bool is_tensor(NodeId node) const {
    for (std::size_t axis = 0; axis < layout_.num_axes(); ++axis) {
      if (!layout_.model(axis).linkage().is_tensor(node)) return false;
    }
    return true;
  }

  bool is_read_otherwise(NodeId reader, NodeId tensor) const {
    for (std::size_t axis = 0; axis < layout_.num_axes(); ++axis) {
      const auto read = reads_.find({axis, reader, tensor});
      if (read != reads_.end() && (read->second.gathered || read->second.exchanged())) return true;
    }
    return false;
  }

  // From the entry to the instruction itself.
  std::vector<std::int32_t> place_of(NodeId node) const {
    std::vector<std::int32_t> out = {places_[static_cast<std::size_t>(flow_.node(node).instruction)]};
    for (std::int32_t site = flow_.node(node).site; site != kNone;) {
      const graph::CallSite& call = flow_.sites()[static_cast<std::size_t>(site)];
      out.push_back(std::max(call.branch, 0));
      out.push_back(places_[static_cast<std::size_t>(call.caller)]);
      site = call.parent;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  static int split_dim(const TensorState& state) { return state.kind == TensorStateKind::kSplit ? state.dim : -1; }

  AxisDims made_dims(NodeId node) const {
    AxisDims out;
    for (std::size_t axis = 0; axis < layout_.num_axes(); ++axis)
      out.push_back(layout_.made_whole(node, axis) ? -1 : split_dim(layout_.decided(axis).state(node)));
    return out;
  }

  AxisDims read_dims(NodeId reader, NodeId tensor) const {
    AxisDims out;
    for (std::size_t axis = 0; axis < layout_.num_axes(); ++axis) {
      const auto read = reads_.find({axis, reader, tensor});
      if (read == reads_.end()) {
        out.push_back(split_dim(layout_.decided(axis).state(tensor)));
      } else if (read->second.in_parts != kNone) {
        out.push_back(read->second.in_parts);
      } else {
        out.push_back(read->second.gathered ? -1 : split_dim(layout_.decided(axis).state(tensor)));
      }
    }
    return out;
  }

  const Layout& layout_;
  const graph::FlowGraph& flow_;
  const graph::Graph& graph_;
  std::vector<std::int32_t> places_;
  std::map<std::tuple<std::size_t, NodeId, NodeId>, sharding::Read> reads_;
};

}  // namespace

std::vector<JaxConstraint> jax_constraints(const Layout& layout) {
  return layout.splits_anything() ? ConstraintWriter(layout).run() : std::vector<JaxConstraint>();
}

}  // namespace automap::emit
