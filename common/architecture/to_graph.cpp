#include "common/architecture/to_graph.h"

#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "common/graph/graph_builder.h"
#include "common/graph/shape.h"

namespace automap::architecture {

using graph::Attribute;
using graph::GraphBuilder;
using graph::InstructionDraft;
using graph::InstructionId;
using graph::Opcode;

namespace {

std::string joined(const Dims& dims, const char* between = ",") {
  std::string out;
  for (const std::int64_t dim : dims) out += (out.empty() ? "" : between) + std::to_string(dim);
  return out;
}

std::string braced(const Dims& dims) {
  return "{" + joined(dims) + "}";
}

Dims range(std::int64_t from, std::int64_t to) {
  Dims out;
  for (std::int64_t i = from; i < to; ++i) out.push_back(i);
  return out;
}

std::string literal(double value, Type type) {
  if (type == Type::kPred) return value != 0 ? "true" : "false";
  if (type == Type::kS32) return std::to_string(static_cast<std::int64_t>(value));
  if (type == Type::kU32 || type == Type::kU64) return std::to_string(static_cast<std::uint64_t>(value));
  if (value < -1e300) return "-inf";
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

class Emitter {
 public:
  Emitter(const Tape& tape, const std::string& source) : tape_(tape), builder_(source) {}

  graph::Graph emit(const std::vector<Result>& results) {
    mark(results);
    builder_.set_module_name("train_step");
    add_helpers();
    builder_.begin_computation("main", true);
    ids_.assign(tape_.size(), graph::kNone);
    for (std::size_t i = 0; i < tape_.size(); ++i) {
      if (needed_[i]) add(static_cast<Value>(i));
    }
    std::vector<InstructionId> parts;
    std::string aliases = "{";
    for (const Result& result : results) {
      if (result.parameter != kNoValue) {
        aliases += (aliases.size() > 1 ? ", {" : " {") + std::to_string(parts.size()) + "}: (" +
                   std::to_string(builder_.at(id(result.parameter)).number) + ", {}, may-alias)";
      }
      parts.push_back(id(result.value));
    }
    builder_.add_header_attribute("input_output_alias", builder_.keep(aliases + " }"));
    std::vector<graph::ShapeId> shapes;
    for (const InstructionId part : parts) shapes.push_back(builder_.at(part).shape);
    InstructionDraft root;
    root.opcode_name = "tuple";
    root.shape = builder_.tuple_shape({shapes.data(), shapes.size()});
    const InstructionId last = builder_.add(root, {parts.data(), parts.size()}, {});
    builder_.end_computation(last, "");
    return builder_.finish();
  }

 private:
  InstructionId id(Value value) const { return ids_[static_cast<std::size_t>(value)]; }

  void mark(const std::vector<Result>& results) {
    needed_.assign(tape_.size(), false);
    for (const Result& result : results) needed_[static_cast<std::size_t>(result.value)] = true;
    for (std::size_t i = tape_.size(); i-- > 0;) {
      const Node& node = tape_.at(static_cast<Value>(i));
      if (node.opcode == Opcode::kParameter) needed_[i] = true;
      if (!needed_[i]) continue;
      for (const Value input : node.inputs) needed_[static_cast<std::size_t>(input)] = true;
    }
    for (std::size_t i = 0; i < tape_.size(); ++i) {
      const Node& node = tape_.at(static_cast<Value>(i));
      if (!needed_[i]) continue;
      if (node.opcode == Opcode::kReduce) helpers_.insert({node.name.empty() ? "add" : node.name, node.array.type});
      if (node.opcode == Opcode::kScatter) helpers_.insert({"add", node.array.type});
      if (node.opcode == Opcode::kSort) sorted_.insert({node.numbers[1] != 0, tape_.type(node.inputs[0])});
    }
  }

  static std::string helper_name(const std::string& opcode, Type type) {
    return opcode + "_" + std::string(element_type_name(type));
  }
  static std::string order_name(bool descending, Type type) {
    return std::string(descending ? "greater_" : "less_") + std::string(element_type_name(type));
  }

  InstructionId helper_parameter(Type type, std::int64_t number) {
    InstructionDraft draft;
    draft.opcode_name = "parameter";
    draft.shape = builder_.shape(std::string(element_type_name(type)) + "[]");
    draft.number = number;
    return builder_.add(draft, {}, {});
  }

  // Adds the computations of two numbers that reductions, scatters and sorts apply.
  void add_helpers() {
    for (const auto& [opcode, type] : helpers_) {
      builder_.begin_computation(builder_.keep(helper_name(opcode, type)), false);
      const InstructionId operands[] = {helper_parameter(type, 0), helper_parameter(type, 1)};
      InstructionDraft draft;
      draft.opcode_name = builder_.keep(opcode);
      draft.shape = builder_.at(operands[0]).shape;
      builder_.end_computation(builder_.add(draft, {operands, 2}, {}), "");
    }
    for (const auto& [descending, type] : sorted_) {
      builder_.begin_computation(builder_.keep(order_name(descending, type)), false);
      const InstructionId operands[] = {helper_parameter(type, 0), helper_parameter(type, 1)};
      helper_parameter(Type::kS32, 2);
      helper_parameter(Type::kS32, 3);
      InstructionDraft draft;
      draft.opcode_name = "compare";
      draft.shape = builder_.shape("pred[]");
      const Attribute direction{"direction", descending ? "GT" : "LT"};
      builder_.end_computation(builder_.add(draft, {operands, 2}, {&direction, 1}), "");
    }
  }

  graph::ShapeId shape_of(const Array& array) {
    return builder_.array_shape(element_type_name(array.type), {array.dims.data(), array.dims.size()});
  }

  // The tuple of a node's operands, which is the shape of barriers and sorts.
  graph::ShapeId tuple_of(const Node& node) {
    std::vector<graph::ShapeId> shapes;
    for (const Value input : node.inputs) shapes.push_back(builder_.at(id(input)).shape);
    return builder_.tuple_shape({shapes.data(), shapes.size()});
  }

  // As JAX writes it, whose names are read everywhere: where it stands, and whether of the backward pass.
  std::string_view metadata(const Node& node) {
    std::string_view& kept = metadata_[{node.scope * 2 + (node.backward ? 1 : 0), node.opcode}];
    if (kept.empty()) {
      const std::string& scope = tape_.scopes()[static_cast<std::size_t>(node.scope)];
      std::string text = "{op_name=\"jit(train_step)/";
      if (!scope.empty()) text += node.backward ? "transpose(jvp(" + scope + "))/" : "jvp(" + scope + ")/";
      text += std::string(graph::opcode_name(node.opcode)) + "\"}";
      kept = builder_.keep(text);
    }
    return kept;
  }

  void add(Value value) {
    const Node& node = tape_.at(value);
    InstructionDraft draft;
    draft.opcode = node.opcode;
    draft.opcode_name = graph::opcode_name(node.opcode);
    std::vector<InstructionId> operands;
    for (const Value input : node.inputs) operands.push_back(id(input));
    std::vector<Attribute> attributes;
    if (node.opcode == Opcode::kOptBarrier) {
      InstructionDraft tuple;
      tuple.opcode_name = "tuple";
      tuple.shape = tuple_of(node);
      operands = {builder_.add(tuple, {operands.data(), operands.size()}, {})};
      draft.shape = builder_.at(operands[0]).shape;
    } else if (node.opcode == Opcode::kSort) {
      draft.shape = tuple_of(node);
    } else if (node.opcode == Opcode::kRngBitGenerator) {
      const graph::ShapeId shapes[] = {builder_.at(operands[0]).shape, shape_of(node.array)};
      draft.shape = builder_.tuple_shape({shapes, 2});
    } else {
      draft.shape = shape_of(node.array);
    }
    if (node.opcode == Opcode::kConstant) draft.payload = builder_.keep(literal(node.scalar, node.array.type));
    if (node.opcode == Opcode::kParameter) {
      draft.number = parameters_++;
      draft.name = builder_.keep(identifier(node.name));
      attributes.push_back({"metadata", builder_.keep("{op_name=\"" + node.name + "\"}")});
    } else {
      add_attributes(node, &attributes);
      if (node.opcode != Opcode::kConstant) attributes.push_back({"metadata", metadata(node)});
    }
    ids_[static_cast<std::size_t>(value)] =
        builder_.add(draft, {operands.data(), operands.size()}, {attributes.data(), attributes.size()});
  }

  static std::string identifier(const std::string& name) {
    std::string out;
    for (const char c : name) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (plain) {
        out += c;
      } else if (!out.empty() && out.back() != '_') {
        out += '_';
      }
    }
    return out + ".1";
  }

  std::string_view once(const std::string& text) {
    const auto found = kept_.find(text);
    if (found != kept_.end()) return found->second;
    const std::string_view view = builder_.keep(text);
    kept_.emplace(text, view);
    return view;
  }

  static std::string window_text(const Window& window) {
    const auto pair = [](std::int64_t a, std::int64_t b) { return std::to_string(a) + "_" + std::to_string(b); };
    const auto twice = [](std::int64_t a) { return std::to_string(a) + "x" + std::to_string(a); };
    std::string text = "{size=" + joined(window.size, "x");
    if (window.stride != 1) text += " stride=" + twice(window.stride);
    text += " pad=" + pair(window.low[0], window.high[0]) + "x" + pair(window.low[1], window.high[1]);
    if (window.left_dilation != 1) text += " lhs_dilate=" + twice(window.left_dilation);
    if (window.right_dilation != 1) text += " rhs_dilate=" + twice(window.right_dilation);
    if (window.reversed) text += " rhs_reversal=1x1";
    return text + "}";
  }

  void add_attributes(const Node& node, std::vector<Attribute>* out) {
    const auto put = [&](const char* key, const std::string& text) { out->push_back({key, once(text)}); };
    const auto rank = static_cast<std::int64_t>(node.array.rank());
    switch (node.opcode) {
      case Opcode::kIota: put("iota_dimension", std::to_string(node.numbers[0])); return;
      case Opcode::kBroadcast:
      case Opcode::kTranspose:
      case Opcode::kConcatenate: put("dimensions", braced(node.numbers)); return;
      case Opcode::kReduce:
        put("dimensions", braced(node.numbers));
        put("to_apply", helper_name(node.name.empty() ? "add" : node.name, node.array.type));
        return;
      case Opcode::kSort:
        put("dimensions", braced({node.numbers[0]}));
        put("is_stable", "true");
        put("to_apply", order_name(node.numbers[1] != 0, tape_.type(node.inputs[0])));
        return;
      case Opcode::kRngBitGenerator: put("algorithm", "rng_default"); return;
      case Opcode::kGetTupleElement: put("index", std::to_string(node.numbers[0])); return;
      case Opcode::kCompare: put("direction", node.name); return;
      case Opcode::kSlice: {
        const Dims& from = tape_.dims(node.inputs[0]);
        std::string text;
        for (std::int64_t i = 0; i < rank; ++i) {
          const bool here = i == node.numbers[0];
          text += (i == 0 ? "[" : ", [") + std::to_string(here ? node.numbers[1] : 0) + ":" +
                  std::to_string(here ? node.numbers[2] : from[static_cast<std::size_t>(i)]) + "]";
        }
        put("slice", "{" + text + "}");
        return;
      }
      case Opcode::kPad: {
        std::string text;
        for (std::int64_t i = 0; i < rank; ++i) {
          const bool here = i == node.numbers[0];
          text += (i == 0 ? "" : "x") + std::to_string(here ? node.numbers[1] : 0) + "_" +
                  std::to_string(here ? node.numbers[2] : 0);
        }
        put("padding", text);
        return;
      }
      case Opcode::kDot:
        if (!node.more[2].empty()) put("lhs_batch_dims", braced(node.more[2]));
        put("lhs_contracting_dims", braced(node.more[0]));
        if (!node.more[3].empty()) put("rhs_batch_dims", braced(node.more[3]));
        put("rhs_contracting_dims", braced(node.more[1]));
        return;
      case Opcode::kGather:
      case Opcode::kScatter: add_places(node, out); return;
      case Opcode::kConvolution:
        put("window", window_text(node.window));
        put("dim_labels", node.window.labels);
        return;
      default: return;
    }
  }

  void add_places(const Node& node, std::vector<Attribute>* out) {
    const auto put = [&](const char* key, const std::string& text) { out->push_back({key, once(text)}); };
    const bool gather = node.opcode == Opcode::kGather;
    const std::int64_t batch = node.numbers[0];
    const Array& whole = tape_.at(node.inputs[0]).array;
    const auto places = static_cast<std::int64_t>(tape_.dims(node.inputs[1]).size()) - 1;
    const auto rest = static_cast<std::int64_t>(whole.rank()) - batch - 1;
    put(gather ? "offset_dims" : "update_window_dims", braced(range(places, places + rest)));
    put(gather ? "collapsed_slice_dims" : "inserted_window_dims", braced({batch}));
    put(gather ? "start_index_map" : "scatter_dims_to_operand_dims", braced({batch}));
    if (batch > 0) {
      put(gather ? "operand_batching_dims" : "input_batching_dims", braced(range(0, batch)));
      put(gather ? "start_indices_batching_dims" : "scatter_indices_batching_dims", braced(range(0, batch)));
    }
    put("index_vector_dim", std::to_string(places));
    if (gather) {
      Dims sizes(static_cast<std::size_t>(batch) + 1, 1);
      sizes.insert(sizes.end(), whole.dims.begin() + batch + 1, whole.dims.end());
      put("slice_sizes", braced(sizes));
    } else {
      put("to_apply", helper_name("add", node.array.type));
    }
  }

  const Tape& tape_;
  GraphBuilder builder_;
  std::vector<bool> needed_;
  std::vector<InstructionId> ids_;
  std::set<std::pair<std::string, Type>> helpers_;
  std::set<std::pair<bool, Type>> sorted_;
  std::map<std::pair<std::int32_t, Opcode>, std::string_view> metadata_;
  std::map<std::string, std::string_view> kept_;
  std::int64_t parameters_ = 0;
};

}  // namespace

graph::Graph to_graph(const Tape& tape, const std::vector<Result>& results, const std::string& source) {
  return Emitter(tape, source).emit(results);
}

}  // namespace automap::architecture
