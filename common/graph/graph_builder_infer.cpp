// GraphBuilder: the shape of a result that the text leaves out (nested expressions, older dumps).
#include <algorithm>

#include "common/graph/graph_builder.h"
#include "common/graph/graph_builder_internal.h"
#include "common/graph/hlo_attributes.h"

namespace automap::graph {

using namespace internal;

namespace {

// An array's type and dimensions while a result is made of it. Bounded dimensions carry their flag along.
struct Extents {
  std::string type;
  std::vector<std::int64_t> dims;
  std::vector<bool> dynamic;

  bool in_range(std::int64_t d) const { return d >= 0 && d < static_cast<std::int64_t>(dims.size()); }
  bool bounded(std::size_t d) const { return dynamic[d]; }
  void keep_only(const std::vector<std::size_t>& kept) {
    std::vector<std::int64_t> new_dims;
    std::vector<bool> new_dynamic;
    for (const std::size_t d : kept) {
      new_dims.push_back(dims[d]);
      new_dynamic.push_back(dynamic[d]);
    }
    dims = std::move(new_dims);
    dynamic = std::move(new_dynamic);
  }
  void append(std::int64_t extent, bool is_dynamic) {
    dims.push_back(extent);
    dynamic.push_back(is_dynamic);
  }
};

// Infers the result's shape from operands and attributes, as XLA's parser does. Where XLA requires a written shape
// (slices, collectives other than those below), only the certain part is inferred.
class ResultShape {
 public:
  // `applied` is the result of the computation that is called first (to_apply, the first branch); kNone without one.
  ResultShape(GraphBuilder* builder, Opcode opcode, Span<const InstructionId> operands,
              Span<const Attribute> attributes, ShapeId applied)
      : builder_(*builder),
        graph_(builder->graph()),
        opcode_(opcode),
        operands_(operands),
        attributes_(attributes),
        applied_(applied) {}

  // kNone when they do not say it.
  ShapeId find() {
    switch (opcode_) {
      case Opcode::kConvert:
      case Opcode::kBitcastConvert: return kNone;
      case Opcode::kAbs:
      case Opcode::kReal:
      case Opcode::kImag: return with_type(part_type(operand(0).type_name));
      case Opcode::kComplex: return with_type(operand(0).type_name == "f64" ? "c128" : "c64");
      case Opcode::kIsFinite:
      case Opcode::kCompare: return with_type("pred");
      case Opcode::kTuple: return tuple();
      case Opcode::kGetTupleElement: return element();
      case Opcode::kTranspose: return transpose();
      case Opcode::kReduce: return reduce();
      case Opcode::kReduceWindow: return reduce_window();
      case Opcode::kMap: return is_array(applied_) ? with_type(graph_.shape(applied_).type_name) : kNone;
      case Opcode::kSort: return operands_.size() == 1 ? shape_id(0) : tuple();
      case Opcode::kConditional:
      case Opcode::kCall:
      case Opcode::kFusion: return applied_;
      case Opcode::kDot: return dot();
      case Opcode::kRaggedDot: return ragged_dot();
      case Opcode::kConvolution: return convolution();
      case Opcode::kPad: return pad();
      case Opcode::kConcatenate: return concatenate();
      case Opcode::kDynamicSlice: return dynamic_slice();
      case Opcode::kGather: return gather();
      case Opcode::kFft: return fft();
      case Opcode::kTopk: return topk();
      case Opcode::kBatchNormTraining: return with_statistics(1);
      case Opcode::kBatchNormGrad: return with_statistics(1);
      case Opcode::kGetDimensionSize: return builder_.shape("s32[]");
      case Opcode::kSetDimensionSize: return set_dimension_size();
      case Opcode::kBroadcast: return broadcast();
      case Opcode::kSelect:
      case Opcode::kClamp:
      case Opcode::kTriangularSolve: return shape_id(1);
      case Opcode::kAfterAll: return builder_.shape("token[]");
      case Opcode::kPartitionId:
      case Opcode::kReplicaId: return builder_.shape("u32[]");
      case Opcode::kAddDependency:
      case Opcode::kBatchNormInference:
      case Opcode::kCholesky:
      case Opcode::kCollectiveBroadcast:
      case Opcode::kCollectivePermute:
      case Opcode::kDomain:
      case Opcode::kDynamicUpdateSlice:
      case Opcode::kReverse:
      case Opcode::kScatter:
      case Opcode::kSelectAndScatter:
      case Opcode::kWhile: return shape_id(0);
      case Opcode::kAllReduce:
      case Opcode::kOptBarrier: return operands_.size() == 1 ? shape_id(0) : kNone;
      case Opcode::kScan: return applied_scan();
      default: break;
    }
    if (is_elementwise_unary(opcode_)) return shape_id(0);
    return is_elementwise_binary(opcode_) ? wider_operand() : kNone;
  }

 private:
  const Shape& operand(std::size_t i) const { return graph_.shape_of(operands_[i]); }
  ShapeId shape_id(std::size_t i) const { return graph_.instruction(operands_[i]).shape; }
  bool is_array(ShapeId id) const { return id != kNone && graph_.shape(id).is_array(); }
  std::vector<std::int64_t> integers(std::string_view key, bool* ok) const { return integers_of(attributes_, key, ok); }
  std::vector<std::int64_t> integers(std::string_view key) const {
    bool ok = true;
    std::vector<std::int64_t> values = integers(key, &ok);
    return ok ? values : std::vector<std::int64_t>();
  }
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const {
    std::int64_t value = otherwise;
    const std::optional<std::string_view> raw = find_attribute(attributes_, key);
    return raw && parse_integer(*raw, &value) ? value : otherwise;
  }
  AttributeSite site(std::string_view key) const { return {{}, key}; }

  // An array without dimensions of unknown size.
  bool plain(std::size_t i) const { return i < operands_.size() && is_plain(shape_id(i)); }
  bool is_plain(ShapeId id) const { return is_array(id) && graph_.shape(id).text.find('?') == std::string_view::npos; }
  Extents extents(ShapeId id) const {
    const Shape& shape = graph_.shape(id);
    Extents out{std::string(shape.type_name), shape.dims, std::vector<bool>(shape.dims.size(), false)};
    if (shape.dynamic) {
      std::size_t d = 0;
      for (std::size_t at = shape.text.find('[') + 1; d < shape.dims.size(); ++d) {
        out.dynamic[d] = shape.text[at] == '<' || shape.text[at] == '?';
        at = shape.text.find(',', at) + 1;
      }
    }
    return out;
  }
  Extents extents_of(std::size_t i) const { return extents(shape_id(i)); }
  ShapeId array(const Extents& of) {
    for (std::size_t d = 0; d < of.dims.size(); ++d) {
      if (of.dims[d] < 0) return kNone;
    }
    return builder_.array_shape(of.type, of.dims, of.dynamic);
  }
  ShapeId with_type(std::string_view type) {
    if (operands_.empty() || !operand(0).is_array()) return kNone;
    Extents of = extents_of(0);
    of.type = std::string(type);
    return array(of);
  }
  static std::string_view part_type(std::string_view type) {
    return type == "c64" ? std::string_view("f32") : type == "c128" ? std::string_view("f64") : type;
  }
  // The type that XLA computes in when two operands are of different ones: the wider floating point type.
  std::string_view wider_type(std::size_t i, std::size_t j) const { return wider_type(operand(i), operand(j)); }
  static std::string_view wider_type(const Shape& a, const Shape& b) {
    const auto rank = [](const Shape& shape) {
      const bool whole = shape.type >= ElementType::kPred && shape.type <= ElementType::kU64;
      return (whole ? 0 : 1000) + shape.bits;
    };
    return rank(b) > rank(a) ? b.type_name : a.type_name;
  }
  ShapeId wider_operand() {
    if (!plain(0) || !plain(1)) return shape_id(0);
    Extents of = extents_of(0);
    const Extents other = extents_of(1);
    if (of.dims.size() != other.dims.size()) return shape_id(0);
    of.type = std::string(wider_type(0, 1));
    for (std::size_t d = 0; d < of.dims.size(); ++d) of.dynamic[d] = of.dynamic[d] || other.dynamic[d];
    return array(of);
  }

  // Nobody who leaves the shape out means any but an empty list; XLA takes the list for extents in front.
  ShapeId broadcast() {
    if (!plain(0)) return kNone;
    Extents of = extents_of(0);
    const std::vector<std::int64_t> front = integers("dimensions");
    of.dims.insert(of.dims.begin(), front.begin(), front.end());
    of.dynamic.insert(of.dynamic.begin(), front.size(), false);
    return array(of);
  }

  ShapeId tuple() {
    std::vector<ShapeId> elements;
    for (std::size_t i = 0; i < operands_.size(); ++i) elements.push_back(shape_id(i));
    return builder_.tuple_shape(elements);
  }

  ShapeId element() const {
    const std::int64_t index = integer("index", -1);
    if (!operand(0).is_tuple() || index < 0 || index >= static_cast<std::int64_t>(operand(0).elements.size())) {
      return kNone;
    }
    return operand(0).elements[static_cast<std::size_t>(index)];
  }

  ShapeId transpose() {
    if (!plain(0)) return kNone;
    Extents of = extents_of(0);
    const std::vector<std::int64_t> permutation = integers("dimensions");
    if (permutation.size() != of.dims.size()) return kNone;
    std::vector<std::size_t> kept;
    for (const std::int64_t d : permutation) {
      if (!of.in_range(d)) return kNone;
      kept.push_back(static_cast<std::size_t>(d));
    }
    of.keep_only(kept);
    return array(of);
  }

  // The types of a reducer's result, or of the inputs where the reducer is not known yet.
  ShapeId reduced(const std::vector<Extents>& results) {
    const bool several = results.size() > 1;
    std::vector<ShapeId> elements;
    for (std::size_t i = 0; i < results.size(); ++i) {
      Extents of = results[i];
      if (applied_ != kNone) {
        const Shape& applied = graph_.shape(applied_);
        if (applied.is_tuple() != several || (several && applied.elements.size() != results.size())) return kNone;
        of.type = std::string((several ? graph_.shape(applied.elements[i]) : applied).type_name);
      }
      elements.push_back(array(of));
      if (elements.back() == kNone) return kNone;
    }
    return several ? builder_.tuple_shape(elements) : elements[0];
  }

  ShapeId reduce() {
    bool ok = true;
    const std::vector<std::int64_t> dropped = integers("dimensions", &ok);
    if (!ok || operands_.size() % 2 != 0) return kNone;
    std::vector<Extents> results;
    for (std::size_t i = 0; i < operands_.size() / 2; ++i) {
      if (!plain(i)) return kNone;
      Extents of = extents_of(i);
      std::vector<std::size_t> kept;
      for (std::size_t d = 0; d < of.dims.size(); ++d) {
        if (std::find(dropped.begin(), dropped.end(), static_cast<std::int64_t>(d)) == dropped.end()) kept.push_back(d);
      }
      of.keep_only(kept);
      results.push_back(std::move(of));
    }
    return reduced(results);
  }

  // The number of positions of a window along `extent`. kNone (-1) when the padding leaves less than nothing.
  static std::int64_t places(std::int64_t extent, const WindowDimension& w) {
    std::int64_t dilated = 0, span = 0;
    if (extent > 0 && (__builtin_mul_overflow(extent - 1, w.base_dilation, &dilated) ||
                       __builtin_add_overflow(dilated, std::int64_t{1}, &dilated))) {
      return -1;
    }
    if (__builtin_add_overflow(dilated, w.pad_low, &dilated) || __builtin_add_overflow(dilated, w.pad_high, &dilated) ||
        __builtin_mul_overflow(w.size - 1, w.window_dilation, &span) || dilated < 0) {
      return -1;
    }
    return span >= dilated ? 0 : (dilated - span - 1) / w.stride + 1;
  }

  ShapeId reduce_window() {
    const std::optional<std::string_view> raw = find_attribute(attributes_, "window");
    if (operands_.size() % 2 != 0 || !raw) return kNone;
    const std::vector<WindowDimension> window = decode_window(*raw, site("window"));
    std::vector<Extents> results;
    for (std::size_t i = 0; i < operands_.size() / 2; ++i) {
      if (!plain(i) || operand(i).dims.size() != window.size()) return kNone;
      Extents of = extents_of(i);
      for (std::size_t d = 0; d < window.size(); ++d) of.dims[d] = places(of.dims[d], window[d]);
      results.push_back(std::move(of));
    }
    return reduced(results);
  }

  // The shape of the operand's values: a sparse operand is a tuple of values and their positions.
  ShapeId values_of(std::size_t i) const {
    return operand(i).is_tuple() && !operand(i).elements.empty() ? operand(i).elements[0] : shape_id(i);
  }

  ShapeId convolution() {
    const std::optional<std::string_view> labels = find_attribute(attributes_, "dim_labels");
    if (!labels || operands_.size() < 2) return kNone;
    const ShapeId input_shape = values_of(0), kernel_shape = values_of(1);
    if (!is_plain(input_shape) || !is_plain(kernel_shape)) return kNone;
    const ConvolutionDimensions dims = decode_convolution_dimensions(*labels, site("dim_labels"));
    const std::optional<std::string_view> raw = find_attribute(attributes_, "window");
    const std::vector<WindowDimension> window =
        raw ? decode_window(*raw, site("window")) : std::vector<WindowDimension>();
    const Extents input = extents(input_shape), kernel = extents(kernel_shape);
    if (window.size() != dims.input_spatial.size()) return kNone;
    Extents of;
    of.type = std::string(wider_type(graph_.shape(input_shape), graph_.shape(kernel_shape)));
    of.dims.assign(input.dims.size(), -1);
    of.dynamic.assign(input.dims.size(), false);
    const auto place = [&](std::int64_t at, std::int64_t extent, bool bounded) {
      if (!of.in_range(at)) return false;
      of.dims[static_cast<std::size_t>(at)] = extent;
      of.dynamic[static_cast<std::size_t>(at)] = bounded;
      return true;
    };
    const std::int64_t groups = std::max<std::int64_t>(1, integer("batch_group_count", 1));
    if (!input.in_range(dims.input_batch) || !kernel.in_range(dims.kernel_output_feature)) return kNone;
    const auto batch = static_cast<std::size_t>(dims.input_batch);
    if (!place(dims.output_batch, input.dims[batch] / groups, input.bounded(batch)) ||
        !place(dims.output_feature, kernel.dims[static_cast<std::size_t>(dims.kernel_output_feature)], false)) {
      return kNone;
    }
    for (std::size_t s = 0; s < window.size(); ++s) {
      if (!input.in_range(dims.input_spatial[s])) return kNone;
      const auto d = static_cast<std::size_t>(dims.input_spatial[s]);
      if (!place(dims.output_spatial[s], places(input.dims[d], window[s]), input.bounded(d))) return kNone;
    }
    return array(of);
  }

  ShapeId pad() {
    const std::optional<std::string_view> raw = find_attribute(attributes_, "padding");
    if (!raw || !plain(0)) return kNone;
    const std::vector<PaddingDimension> padding = decode_padding(*raw, site("padding"));
    Extents of = extents_of(0);
    if (padding.size() != of.dims.size()) return kNone;
    for (std::size_t d = 0; d < padding.size(); ++d) {
      std::int64_t holes = 0, sum = of.dims[d];
      if (__builtin_mul_overflow(std::max<std::int64_t>(0, of.dims[d] - 1), padding[d].interior, &holes) ||
          __builtin_add_overflow(sum, holes, &sum) || __builtin_add_overflow(sum, padding[d].low, &sum) ||
          __builtin_add_overflow(sum, padding[d].high, &sum)) {
        return kNone;
      }
      of.dims[d] = sum;
    }
    return array(of);
  }

  void append_others(Extents* to, std::size_t operand, const std::vector<std::int64_t>& without,
                     const std::vector<std::int64_t>& nor = {}) const {
    const Extents from = extents_of(operand);
    for (std::size_t d = 0; d < from.dims.size(); ++d) {
      const auto v = static_cast<std::int64_t>(d);
      if (std::find(without.begin(), without.end(), v) == without.end() &&
          std::find(nor.begin(), nor.end(), v) == nor.end()) {
        to->append(from.dims[d], from.dynamic[d]);
      }
    }
  }

  ShapeId dot() {
    if (!plain(0) || !plain(1)) return kNone;
    bool ok = true;
    const std::vector<std::int64_t> lb = integers("lhs_batch_dims", &ok);
    const std::vector<std::int64_t> rb = integers("rhs_batch_dims", &ok);
    const std::vector<std::int64_t> lc = integers("lhs_contracting_dims", &ok);
    const std::vector<std::int64_t> rc = integers("rhs_contracting_dims", &ok);
    const Extents lhs = extents_of(0);
    Extents of;
    of.type = std::string(wider_type(0, 1));
    for (const std::int64_t d : lb) {
      if (!lhs.in_range(d)) return kNone;
      of.append(lhs.dims[static_cast<std::size_t>(d)], lhs.dynamic[static_cast<std::size_t>(d)]);
    }
    if (!ok) return kNone;
    append_others(&of, 0, lb, lc);
    append_others(&of, 1, rb, rc);
    return array(of);
  }

  // Rows of the left side in groups, each times a matrix of its own; or groups of batches or of summands.
  ShapeId ragged_dot() {
    if (!plain(0) || !plain(1) || operands_.size() < 3 || !plain(2)) return kNone;
    const std::vector<std::int64_t> lb = integers("lhs_batch_dims"), rb = integers("rhs_batch_dims");
    const std::vector<std::int64_t> lc = integers("lhs_contracting_dims"), rc = integers("rhs_contracting_dims");
    const std::vector<std::int64_t> ragged = integers("lhs_ragged_dims"), group = integers("rhs_group_dims");
    const Extents lhs = extents_of(0), sizes = extents_of(2);
    if (ragged.size() != 1 || !lhs.in_range(ragged[0]) || sizes.dims.empty()) return kNone;
    Extents of;
    of.type = std::string(wider_type(0, 1));
    if (std::find(lc.begin(), lc.end(), ragged[0]) != lc.end()) of.append(sizes.dims.back(), false);
    for (const std::int64_t d : lb) {
      if (!lhs.in_range(d)) return kNone;
      of.append(lhs.dims[static_cast<std::size_t>(d)], lhs.dynamic[static_cast<std::size_t>(d)]);
    }
    append_others(&of, 0, lb, lc);
    std::vector<std::int64_t> without = rb;
    without.insert(without.end(), group.begin(), group.end());
    append_others(&of, 1, without, rc);
    return array(of);
  }

  ShapeId concatenate() {
    const std::vector<std::int64_t> dim = integers("dimensions");
    if (dim.size() != 1 || !plain(0)) return kNone;
    Extents of = extents_of(0);
    if (!of.in_range(dim[0])) return kNone;
    const auto at = static_cast<std::size_t>(dim[0]);
    for (std::size_t i = 1; i < operands_.size(); ++i) {
      if (!plain(i) || operand(i).dims.size() != of.dims.size()) return kNone;
      const Extents other = extents_of(i);
      if (__builtin_add_overflow(of.dims[at], other.dims[at], &of.dims[at])) return kNone;
      for (std::size_t d = 0; d < of.dims.size(); ++d) of.dynamic[d] = of.dynamic[d] || other.dynamic[d];
    }
    return array(of);
  }

  ShapeId dynamic_slice() {
    bool ok = true;
    const std::vector<std::int64_t> sizes = integers("dynamic_slice_sizes", &ok);
    if (!ok || !plain(0) || operand(0).dynamic || sizes.size() != operand(0).dims.size()) return kNone;
    Extents of = extents_of(0);
    of.dims = sizes;
    return array(of);
  }

  ShapeId gather() {
    if (!plain(0) || !plain(1) || operand(1).dynamic) return kNone;
    const std::vector<std::int64_t> offset = integers("offset_dims"), sizes = integers("slice_sizes");
    std::vector<std::int64_t> gone = integers("collapsed_slice_dims");
    const std::vector<std::int64_t> batching = integers("operand_batching_dims");
    gone.insert(gone.end(), batching.begin(), batching.end());
    const std::int64_t vector_dim = integer("index_vector_dim", 0);
    std::vector<std::int64_t> batch, slice;
    for (std::size_t d = 0; d < operand(1).dims.size(); ++d) {
      if (static_cast<std::int64_t>(d) != vector_dim) batch.push_back(operand(1).dims[d]);
    }
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (std::find(gone.begin(), gone.end(), static_cast<std::int64_t>(d)) == gone.end()) slice.push_back(sizes[d]);
    }
    if (slice.size() != offset.size()) return kNone;
    Extents of;
    of.type = std::string(operand(0).type_name);
    const std::size_t rank = batch.size() + slice.size();
    std::size_t next_batch = 0, next_slice = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      const bool is_offset = std::find(offset.begin(), offset.end(), static_cast<std::int64_t>(d)) != offset.end();
      if (is_offset ? next_slice == slice.size() : next_batch == batch.size()) return kNone;
      of.append(is_offset ? slice[next_slice++] : batch[next_batch++], false);
    }
    return array(of);
  }

  ShapeId fft() {
    const std::vector<std::int64_t> length = integers("fft_length");
    if (!plain(0)) return kNone;
    const std::optional<std::string_view> kind = find_attribute(attributes_, "fft_type");
    if (!kind || (*kind != "RFFT" && *kind != "IRFFT")) return shape_id(0);
    Extents of = extents_of(0);
    const bool twice = of.type == "f64" || of.type == "c128";
    if (length.empty() || of.dims.empty()) return kNone;
    of.dims.back() = *kind == "RFFT" ? length.back() / 2 + 1 : length.back();
    of.type = *kind == "RFFT" ? (twice ? "c128" : "c64") : (twice ? "f64" : "f32");
    return array(of);
  }

  ShapeId topk() {
    if (!plain(0) || operand(0).dims.empty()) return kNone;
    Extents of = extents_of(0);
    of.dims.back() = integer("k", -1);
    const ShapeId values = array(of);
    of.type = "s32";
    const ShapeId indices = array(of);
    return values == kNone ? kNone : builder_.tuple_shape(std::vector<ShapeId>{values, indices});
  }

  // The result of a batch normalization: the normalized array, and two numbers for each feature (the shape of operand
  // `like`).
  ShapeId with_statistics(std::size_t like) {
    return builder_.tuple_shape(std::vector<ShapeId>{shape_id(0), shape_id(like), shape_id(like)});
  }

  ShapeId set_dimension_size() {
    const std::vector<std::int64_t> dim = integers("dimensions");
    if (dim.size() != 1 || !plain(0)) return kNone;
    Extents of = extents_of(0);
    if (!of.in_range(dim[0])) return kNone;
    of.dynamic[static_cast<std::size_t>(dim[0])] = true;
    return array(of);
  }

  // A step returns its outputs and then its carried values. Each output becomes an array with one entry per turn, along
  // the scanned dimension.
  ShapeId applied_scan() {
    const std::int64_t carries = integer("num_carries", -1);
    const std::vector<std::int64_t> along = integers("dimensions");
    const auto inputs = static_cast<std::int64_t>(operands_.size()) - carries;
    if (applied_ == kNone || carries < 0 || inputs < 1 || along.size() != 1 || !plain(0)) return kNone;
    const Extents scanned = extents_of(0);
    if (!scanned.in_range(along[0])) return kNone;
    const auto d = static_cast<std::size_t>(along[0]);
    // Copied: shapes that are made move those that there are.
    const bool several = graph_.shape(applied_).is_tuple();
    std::vector<ShapeId> results = several ? graph_.shape(applied_).elements : std::vector<ShapeId>{applied_};
    const auto outputs = static_cast<std::int64_t>(results.size()) - carries;
    for (std::int64_t i = 0; i < outputs; ++i) {
      ShapeId& result = results[static_cast<std::size_t>(i)];
      if (!is_array(result)) return kNone;
      Extents of = extents(result);
      if (d > of.dims.size()) return kNone;
      of.dims.insert(of.dims.begin() + along[0], scanned.dims[d]);
      of.dynamic.insert(of.dynamic.begin() + along[0], scanned.bounded(d));
      result = array(of);
      if (result == kNone) return kNone;
    }
    return several ? builder_.tuple_shape(results) : results[0];
  }

  GraphBuilder& builder_;
  const Graph& graph_;
  Opcode opcode_;
  Span<const InstructionId> operands_;
  Span<const Attribute> attributes_;
  ShapeId applied_;
};

}  // namespace

// The result of the first computation that `attributes` name; kNone when there is none yet.
ShapeId GraphBuilder::applied_result(Opcode opcode, Span<const Attribute> attributes) const {
  std::vector<std::pair<int, std::string_view>> names;
  for (const std::string_view key : {"to_apply", "calls", "true_computation", "branch_computations"}) {
    const std::optional<std::string_view> raw = find_attribute(attributes, key);
    if (raw) add_called_names(*raw, false, 0, &names);
    if (!names.empty()) break;
  }
  if (names.empty() || opcode == Opcode::kUnknown) return kNone;
  const ComputationId id = find_computation(names[0].second);
  if (id == kNone || graph_.computation(id).root == kNone) return kNone;
  return graph_.instruction(graph_.computation(id).root).shape;
}

ShapeId GraphBuilder::infer_shape(const InstructionDraft& draft, Span<const InstructionId> operands,
                                  Span<const Attribute> attributes) {
  const Opcode opcode = draft.opcode == Opcode::kUnknown ? parse_opcode(draft.opcode_name) : draft.opcode;
  const ShapeId found = ResultShape(this, opcode, operands, attributes, applied_result(opcode, attributes)).find();
  if (found != kNone) return found;
  fail(draft.opcode_name,
       "the result shape of " + std::string(draft.opcode_name) + " " + quoted(draft.name) +
           " is missing and cannot be inferred here",
       "write it before the opcode, as in 'x = f32[2,3] " + std::string(draft.opcode_name) + "(...)'");
}

}  // namespace automap::graph
