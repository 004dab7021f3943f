// GraphBuilder: the shape of a result that the text leaves out (nested expressions, older dumps).
#include <algorithm>

#include "common/graph/graph_builder.h"
#include "common/graph/graph_builder_internal.h"

namespace automap::graph {

using namespace internal;

namespace {

// What operands and attributes say about the result's shape.
class ResultShape {
 public:
  ResultShape(GraphBuilder* builder, Opcode opcode, Span<const InstructionId> operands,
              Span<const Attribute> attributes)
      : builder_(*builder), graph_(builder->graph()), opcode_(opcode), operands_(operands), attributes_(attributes) {}

  // kNone when they do not say it.
  ShapeId find() {
    switch (opcode_) {
      case Opcode::kConvert:
      case Opcode::kReal:
      case Opcode::kImag:
      case Opcode::kComplex: return kNone;
      case Opcode::kIsFinite:
      case Opcode::kCompare: return plain(0) ? builder_.array_shape("pred", operand(0).dims) : kNone;
      case Opcode::kTuple: return tuple();
      case Opcode::kGetTupleElement: return element();
      case Opcode::kTranspose: return transpose();
      case Opcode::kReduce: return reduce();
      case Opcode::kDot: return dot();
      case Opcode::kConcatenate: return concatenate();
      case Opcode::kDynamicSlice: return dynamic_slice();
      case Opcode::kSelect:
      case Opcode::kClamp: return shape_id(1);
      case Opcode::kAfterAll: return builder_.shape("token[]");
      case Opcode::kPartitionId:
      case Opcode::kReplicaId: return builder_.shape("u32[]");
      case Opcode::kAddDependency:
      case Opcode::kCollectiveBroadcast:
      case Opcode::kCollectivePermute:
      case Opcode::kDomain:
      case Opcode::kDynamicUpdateSlice:
      case Opcode::kReverse:
      case Opcode::kWhile: return shape_id(0);
      case Opcode::kAllReduce:
      case Opcode::kOptBarrier: return operands_.size() == 1 ? shape_id(0) : kNone;
      default: return is_elementwise_unary(opcode_) || is_elementwise_binary(opcode_) ? shape_id(0) : kNone;
    }
  }

 private:
  const Shape& operand(std::size_t i) const { return graph_.shape_of(operands_[i]); }
  ShapeId shape_id(std::size_t i) const { return graph_.instruction(operands_[i]).shape; }
  std::vector<std::int64_t> integers(std::string_view key, bool* ok) const { return integers_of(attributes_, key, ok); }
  static bool in_range(std::int64_t d, const Shape& s) {
    return d >= 0 && d < static_cast<std::int64_t>(s.dims.size());
  }
  // Arrays with dynamic dimensions would need their flags carried along: left to the text.
  bool plain(std::size_t i) const { return operand(i).is_array() && !operand(i).dynamic; }
  ShapeId array(const Shape& like, const std::vector<std::int64_t>& dims) {
    const std::string type(like.type_name);
    return builder_.array_shape(type, dims);
  }

  ShapeId tuple() {
    std::vector<ShapeId> elements;
    for (std::size_t i = 0; i < operands_.size(); ++i) elements.push_back(shape_id(i));
    return builder_.tuple_shape(elements);
  }

  ShapeId element() const {
    std::int64_t index = -1;
    const std::optional<std::string_view> raw = find_attribute(attributes_, "index");
    if (!raw || !parse_integer(*raw, &index) || !operand(0).is_tuple() || index < 0 ||
        index >= static_cast<std::int64_t>(operand(0).elements.size())) {
      return kNone;
    }
    return operand(0).elements[static_cast<std::size_t>(index)];
  }

  ShapeId transpose() {
    bool ok = true;
    const std::vector<std::int64_t> permutation = integers("dimensions", &ok);
    if (!ok || !plain(0) || permutation.size() != operand(0).dims.size()) return kNone;
    std::vector<std::int64_t> dims;
    for (const std::int64_t d : permutation) {
      if (!in_range(d, operand(0))) return kNone;
      dims.push_back(operand(0).dims[static_cast<std::size_t>(d)]);
    }
    return array(operand(0), dims);
  }

  ShapeId reduce() {
    bool ok = true;
    const std::vector<std::int64_t> reduced = integers("dimensions", &ok);
    if (!ok || operands_.size() != 2 || !plain(0)) return kNone;
    std::vector<std::int64_t> dims;
    for (std::size_t d = 0; d < operand(0).dims.size(); ++d) {
      if (std::find(reduced.begin(), reduced.end(), static_cast<std::int64_t>(d)) == reduced.end()) {
        dims.push_back(operand(0).dims[d]);
      }
    }
    return array(operand(0), dims);
  }

  ShapeId dot() {
    if (operands_.size() != 2 || !plain(0) || !plain(1)) return kNone;
    bool ok = true;
    const std::vector<std::int64_t> lb = integers("lhs_batch_dims", &ok);
    const std::vector<std::int64_t> rb = integers("rhs_batch_dims", &ok);
    const std::vector<std::int64_t> lc = integers("lhs_contracting_dims", &ok);
    const std::vector<std::int64_t> rc = integers("rhs_contracting_dims", &ok);
    for (const std::int64_t d : lb) ok = ok && in_range(d, operand(0));
    if (!ok) return kNone;
    std::vector<std::int64_t> dims;
    for (const std::int64_t d : lb) dims.push_back(operand(0).dims[static_cast<std::size_t>(d)]);
    const auto free_dims = [&](const Shape& s, const std::vector<std::int64_t>& batch,
                               const std::vector<std::int64_t>& contracting) {
      for (std::size_t d = 0; d < s.dims.size(); ++d) {
        const auto v = static_cast<std::int64_t>(d);
        if (std::find(batch.begin(), batch.end(), v) == batch.end() &&
            std::find(contracting.begin(), contracting.end(), v) == contracting.end()) {
          dims.push_back(s.dims[d]);
        }
      }
    };
    free_dims(operand(0), lb, lc);
    free_dims(operand(1), rb, rc);
    return array(operand(0), dims);
  }

  ShapeId concatenate() {
    bool ok = true;
    const std::vector<std::int64_t> dim = integers("dimensions", &ok);
    if (!ok || dim.size() != 1 || !plain(0) || !in_range(dim[0], operand(0))) return kNone;
    std::vector<std::int64_t> dims = operand(0).dims;
    std::int64_t& sum = dims[static_cast<std::size_t>(dim[0])];
    for (std::size_t i = 1; i < operands_.size(); ++i) {
      ok = ok && plain(i) && operand(i).dims.size() == dims.size() &&
           !__builtin_add_overflow(sum, operand(i).dims[static_cast<std::size_t>(dim[0])], &sum);
    }
    return ok ? array(operand(0), dims) : kNone;
  }

  ShapeId dynamic_slice() {
    bool ok = true;
    const std::vector<std::int64_t> sizes = integers("dynamic_slice_sizes", &ok);
    return ok && plain(0) && sizes.size() == operand(0).dims.size() ? array(operand(0), sizes) : kNone;
  }

  GraphBuilder& builder_;
  const Graph& graph_;
  Opcode opcode_;
  Span<const InstructionId> operands_;
  Span<const Attribute> attributes_;
};

}  // namespace

ShapeId GraphBuilder::infer_shape(const InstructionDraft& draft, Span<const InstructionId> operands,
                                  Span<const Attribute> attributes) {
  const Opcode opcode = draft.opcode == Opcode::kUnknown ? parse_opcode(draft.opcode_name) : draft.opcode;
  ShapeId found = kNone;
  if (opcode == Opcode::kCall || opcode == Opcode::kFusion) {
    std::optional<std::string_view> callee = find_attribute(attributes, opcode == Opcode::kCall ? "to_apply" : "calls");
    if (callee && callee->substr(0, 1) == "%") callee->remove_prefix(1);
    const ComputationId id = callee ? find_computation(*callee) : kNone;
    if (id != kNone && graph_.computation(id).root != kNone) {
      found = graph_.instruction(graph_.computation(id).root).shape;
    }
  } else {
    found = ResultShape(this, opcode, operands, attributes).find();
  }
  if (found != kNone) return found;
  fail(draft.opcode_name,
       "the result shape of " + std::string(draft.opcode_name) + " " + quoted(draft.name) +
           " is missing and cannot be inferred here",
       "write it before the opcode, as in 'x = f32[2,3] " + std::string(draft.opcode_name) + "(...)'");
}

}  // namespace automap::graph
