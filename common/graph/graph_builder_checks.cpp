// GraphBuilder: checks of a module, whichever form it was read from.
#include <algorithm>

#include "common/graph/graph_builder.h"
#include "common/graph/graph_builder_internal.h"
#include "common/graph/shape.h"

namespace automap::graph {

using namespace internal;

namespace {

// Checks that the shapes of one instruction fit each other, without looking into the computations that it calls.
class ShapeCheck {
 public:
  ShapeCheck(const GraphBuilder& builder, const Instruction& instruction, Span<const InstructionId> operands,
             Span<const Attribute> attributes)
      : builder_(builder),
        graph_(builder.graph()),
        instruction_(instruction),
        operands_(operands),
        attributes_(attributes),
        out_(graph_.shape(instruction.shape)) {}

  void run() const {
    if (is_elementwise_unary(instruction_.opcode)) return elementwise_unary();
    if (is_elementwise_binary(instruction_.opcode)) return elementwise_binary();
    switch (instruction_.opcode) {
      case Opcode::kSelect:
        like_operand(1);
        like_operand(2);
        return;
      case Opcode::kClamp: return like_operand(1);
      case Opcode::kWhile:
      case Opcode::kDynamicUpdateSlice:
      case Opcode::kReverse: return like_operand(0);
      case Opcode::kReshape: return reshape();
      case Opcode::kBroadcast:
      case Opcode::kTranspose: return placed_dimensions();
      case Opcode::kDot: return dot();
      case Opcode::kReduce: return reduce();
      case Opcode::kGetTupleElement: return get_tuple_element();
      case Opcode::kTuple: return tuple();
      default: return;
    }
  }

 private:
  ShapeId shape_id(std::size_t i) const { return graph_.instruction(operands_[i]).shape; }
  const Shape& operand(std::size_t i) const { return graph_.shape(shape_id(i)); }
  std::string text(ShapeId id) const { return short_text(graph_.shape(id).text); }
  std::string result() const { return short_text(out_.text); }
  bool same(ShapeId a, ShapeId b) const { return a == b || same_dimensions(graph_, a, b); }
  std::vector<std::int64_t> integers(std::string_view key, bool* ok) const { return integers_of(attributes_, key, ok); }
  [[noreturn]] void fail(const std::string& what) const {
    builder_.fail(instruction_.name, label_of(instruction_) + ": " + what);
  }

  void elementwise_unary() const {
    if (!same(instruction_.shape, shape_id(0))) {
      fail("the result is " + result() + ", but the operand is " + text(shape_id(0)));
    }
  }

  void elementwise_binary() const {
    if (!same(shape_id(0), shape_id(1))) {
      fail("the operands differ: " + text(shape_id(0)) + " and " + text(shape_id(1)));
    }
    if (!same(instruction_.shape, shape_id(0))) {
      fail("the result is " + result() + ", but the operands are " + text(shape_id(0)));
    }
  }

  void like_operand(std::size_t i) const {
    if (!same(instruction_.shape, shape_id(i))) {
      fail("the result is " + result() + ", but operand " + std::to_string(i) + " is " + text(shape_id(i)));
    }
  }

  void reshape() const {
    const Shape& in = operand(0);
    if (in.dynamic || out_.dynamic || !in.is_array() || !out_.is_array()) return;
    if (in.num_elements != out_.num_elements) {
      fail(text(shape_id(0)) + " has " + std::to_string(in.num_elements) + " elements, but the result " + result() +
           " has " + std::to_string(out_.num_elements));
    }
  }

  // broadcast: operand dimension i becomes result dimension dims[i]; transpose: the other way round.
  void placed_dimensions() const {
    const bool transpose = instruction_.opcode == Opcode::kTranspose;
    const Shape& in = operand(0);
    if (!in.is_array() || !out_.is_array()) {
      fail("expected arrays, found " + text(shape_id(0)) + " and the result " + result());
    }
    bool ok = true;
    const std::vector<std::int64_t> dims = integers("dimensions", &ok);
    if (!ok || dims.size() != in.dims.size() || (transpose && dims.size() != out_.dims.size())) {
      fail("dimensions must be a list of " + std::to_string(in.dims.size()) + " numbers for an operand " +
           text(shape_id(0)) + " and a result " + result());
    }
    const Shape& indexed = transpose ? in : out_;
    const Shape& listed = transpose ? out_ : in;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < 0 || dims[i] >= static_cast<std::int64_t>(indexed.dims.size())) {
        fail("dimensions name dimension " + std::to_string(dims[i]) + " of " + short_text(indexed.text));
      }
      if (in.dynamic || out_.dynamic) continue;
      // A dimension of size 1 may be stretched by the broadcasts of older modules.
      if (indexed.dims[static_cast<std::size_t>(dims[i])] != listed.dims[i] && (transpose || listed.dims[i] != 1)) {
        fail("the operand " + text(shape_id(0)) + " does not fit the result " + result() + " along dimensions");
      }
    }
  }

  void dot() const {
    const Shape& lhs = operand(0);
    const Shape& rhs = operand(1);
    if (operands_.size() != 2 || !lhs.is_array() || !rhs.is_array() || lhs.dynamic || rhs.dynamic || out_.dynamic)
      return;
    bool ok = true;
    const std::vector<std::int64_t> lc = integers("lhs_contracting_dims", &ok);
    const std::vector<std::int64_t> rc = integers("rhs_contracting_dims", &ok);
    const std::vector<std::int64_t> lb = integers("lhs_batch_dims", &ok);
    const std::vector<std::int64_t> rb = integers("rhs_batch_dims", &ok);
    ok = ok && lc.size() == rc.size() && lb.size() == rb.size();
    std::vector<std::int64_t> kept_lhs = lhs.dims, kept_rhs = rhs.dims;
    const auto drop_pair = [&](std::int64_t l, std::int64_t r, bool keep_lhs) {
      if (l < 0 || r < 0 || l >= static_cast<std::int64_t>(lhs.dims.size()) ||
          r >= static_cast<std::int64_t>(rhs.dims.size()) ||
          lhs.dims[static_cast<std::size_t>(l)] != rhs.dims[static_cast<std::size_t>(r)]) {
        ok = false;
        return;
      }
      if (!keep_lhs) kept_lhs[static_cast<std::size_t>(l)] = 1;
      kept_rhs[static_cast<std::size_t>(r)] = 1;
    };
    for (std::size_t i = 0; ok && i < lc.size(); ++i) drop_pair(lc[i], rc[i], false);
    for (std::size_t i = 0; ok && i < lb.size(); ++i) drop_pair(lb[i], rb[i], true);
    if (!ok) {
      fail("contracting or batch dimensions do not fit the operands " + text(shape_id(0)) + " and " +
           text(shape_id(1)));
    }
    std::int64_t elements = 1;
    bool zero = false, overflow = false;
    for (const std::vector<std::int64_t>* dims : {&kept_lhs, &kept_rhs}) {
      for (const std::int64_t d : *dims) {
        zero = zero || d == 0;
        overflow = overflow || (d != 0 && __builtin_mul_overflow(elements, d, &elements));
      }
    }
    if (zero) elements = 0;
    if ((!zero && overflow) || elements != out_.num_elements) {
      fail("the result is " + result() + ", but the operands " + text(shape_id(0)) + " and " + text(shape_id(1)) +
           (overflow ? " give too many elements" : " give " + std::to_string(elements) + " elements"));
    }
  }

  void reduce() const {
    const Shape& in = operand(0);
    if (operands_.size() % 2 != 0) fail("expected as many initial values as inputs");
    bool ok = true;
    const std::vector<std::int64_t> dims = integers("dimensions", &ok);
    for (const std::int64_t d : dims) ok = ok && d >= 0 && d < static_cast<std::int64_t>(in.dims.size());
    if (!ok || !in.is_array()) fail("dimensions do not fit the operand " + text(shape_id(0)));
    const Shape& first = out_.is_tuple() && !out_.elements.empty() ? graph_.shape(out_.elements[0]) : out_;
    if (first.dims.size() + dims.size() != in.dims.size()) {
      fail("the result is " + result() + ", but the operand " + text(shape_id(0)) + " loses " +
           std::to_string(dims.size()) + " dimensions");
    }
  }

  void get_tuple_element() const {
    const Shape& in = operand(0);
    if (!in.is_tuple()) fail("the operand is " + text(shape_id(0)) + ", expected a tuple");
    const std::string index = std::to_string(instruction_.number);
    if (instruction_.number >= static_cast<std::int64_t>(in.elements.size())) {
      fail("index " + index + " of a tuple of " + std::to_string(in.elements.size()) + " elements, " +
           text(shape_id(0)));
    }
    const ShapeId element = in.elements[static_cast<std::size_t>(instruction_.number)];
    if (!same(instruction_.shape, element)) {
      fail("the result is " + result() + ", but element " + index + " is " + text(element));
    }
  }

  void tuple() const {
    if (!out_.is_tuple() || out_.elements.size() != operands_.size()) {
      fail("the result is " + result() + ", expected a tuple of " + std::to_string(operands_.size()) + " elements");
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!same(out_.elements[i], shape_id(i))) {
        fail("element " + std::to_string(i) + " of the result is " + text(out_.elements[i]) + ", but operand " +
             std::to_string(i) + " is " + text(shape_id(i)));
      }
    }
  }

  const GraphBuilder& builder_;
  const Graph& graph_;
  const Instruction& instruction_;
  Span<const InstructionId> operands_;
  Span<const Attribute> attributes_;
  const Shape& out_;
};

}  // namespace

template <typename Check>
void GraphBuilder::examine(InstructionId id, const Check& check) {
  if (on_fault_ == Faults::kRefuse) return check();
  constexpr std::size_t kMostFaults = 20;
  try {
    check();
  } catch (const Error& fault) {
    if (fault.kind() != ErrorKind::kData) throw;
    graph_.faulty_.push_back(id);
    if (graph_.faults_.size() < kMostFaults) graph_.faults_.push_back(fault);
  }
}

void GraphBuilder::check_instruction(const Instruction& instruction, InstructionId id,
                                     Span<const InstructionId> operands, Span<const Attribute> attributes) {
  examine(id, [&] {
    ShapeCheck(*this, instruction, operands, attributes).run();
    check_attributes(instruction, operands, attributes);
  });
}

std::vector<ComputationId> GraphBuilder::callees_first() const {
  // Depth first over the call graph on an explicit stack.
  const Graph& g = graph_;
  std::vector<ComputationId> order;
  order.reserve(g.computations_.size());
  enum : std::uint8_t { kNew, kOpen, kDone };
  std::vector<std::uint8_t> state(g.computations_.size(), kNew);
  struct Frame {
    ComputationId computation;
    InstructionId instruction;
    std::size_t called;
  };
  std::vector<Frame> stack;
  for (ComputationId start = 0; start < g.num_computations(); ++start) {
    if (state[static_cast<std::size_t>(start)] != kNew) continue;
    stack.push_back({start, g.computation(start).first, 0});
    state[static_cast<std::size_t>(start)] = kOpen;
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const Computation& computation = g.computation(frame.computation);
      if (frame.instruction == computation.first + computation.count) {
        state[static_cast<std::size_t>(frame.computation)] = kDone;
        order.push_back(frame.computation);
        stack.pop_back();
        continue;
      }
      const Span<const ComputationId> called = g.called(frame.instruction);
      if (frame.called == called.size()) {
        ++frame.instruction;
        frame.called = 0;
        continue;
      }
      const ComputationId callee = called[frame.called++];
      std::uint8_t& callee_state = state[static_cast<std::size_t>(callee)];
      if (callee_state == kOpen) {
        const Instruction& caller = g.instruction(frame.instruction);
        fail(caller.name,
             label_of(caller) + " calls " + quoted(g.computation(callee).name) + ", which calls " +
                 quoted(computation.name) + " in turn",
             "computations must not call each other in a circle");
      }
      if (callee_state == kNew) {
        callee_state = kOpen;
        stack.push_back({callee, g.computation(callee).first, 0});
      }
    }
  }
  return order;
}

// Requires the computations that the instruction's form calls; without them nothing else can be checked.
void GraphBuilder::require_called(InstructionId id) const {
  const Instruction& i = graph_.instruction(id);
  const auto must_call = [&](std::int32_t n, const char* what) {
    if (i.num_called == n) return;
    fail(i.name, label_of(i) + " calls " + std::to_string(i.num_called) + " computations, expected " + what);
  };
  switch (i.opcode) {
    case Opcode::kCall:
    case Opcode::kMap:
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
    case Opcode::kScatter: return must_call(1, "to_apply");
    case Opcode::kFusion: return must_call(1, "calls");
    case Opcode::kWhile: return must_call(2, "condition and body");
    case Opcode::kConditional: return must_call(i.num_operands - 1, "as many as operands after the first");
    case Opcode::kSelectAndScatter: return must_call(2, "select and scatter");
    default: return;
  }
}

void GraphBuilder::check_calls() {
  for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
    require_called(id);
    examine(id, [&] { check_call(id); });
  }
  if (graph_.faulty_.empty()) return;
  std::sort(graph_.faulty_.begin(), graph_.faulty_.end());
  graph_.faulty_.erase(std::unique(graph_.faulty_.begin(), graph_.faulty_.end()), graph_.faulty_.end());
}

void GraphBuilder::check_call(InstructionId id) const {
  const Graph& g = graph_;
  const Instruction& i = g.instruction(id);
  const auto called = static_cast<std::size_t>(i.num_called);
  const auto operands = static_cast<std::size_t>(i.num_operands);
  const auto callee = [&](std::size_t n) -> const Computation& { return g.computation(g.called(id)[n]); };
  const auto text = [&](ShapeId s) { return short_text(g.shape(s).text); };
  const auto parameters = [&](std::size_t n, std::size_t expected) {
    if (callee(n).parameters.size() == expected) return;
    fail(i.name, label_of(i) + " needs a computation of " + std::to_string(expected) + " parameters, but " +
                     quoted(callee(n).name) + " has " + std::to_string(callee(n).parameters.size()));
  };
  const auto fits = [&](ShapeId a, ShapeId b, std::size_t n, const char* what) {
    if (a == b || same_dimensions(g, a, b)) return;
    fail(i.name,
         label_of(i) + " has " + text(a) + " where " + quoted(callee(n).name) + " has " + text(b) + " as " + what);
  };
  const auto parameter_shape = [&](std::size_t n, std::size_t p) {
    return g.instruction(callee(n).parameters[p]).shape;
  };
  const auto root_shape = [&](std::size_t n) { return g.instruction(callee(n).root).shape; };
  switch (i.opcode) {
    case Opcode::kCall:
    case Opcode::kFusion:
      // An asynchronous start may get its operands later: it is a computation of nothing but such a call.
      if (operands == 0 && i.opcode == Opcode::kCall && g.computation(i.computation).count == 1) break;
      parameters(0, operands);
      for (std::size_t p = 0; p < operands; ++p) {
        fits(g.instruction(g.operands(id)[p]).shape, parameter_shape(0, p), 0, "parameter");
      }
      fits(i.shape, root_shape(0), 0, "result");
      break;
    case Opcode::kAsyncStart:
      if (i.opcode_name == "async-start" && called == 1) parameters(0, operands);
      break;
    case Opcode::kMap: parameters(0, operands); break;
    case Opcode::kWhile:
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}}) {
        parameters(n, 1);
        fits(g.instruction(g.operands(id)[0]).shape, parameter_shape(n, 0), n, "parameter");
      }
      fits(i.shape, root_shape(1), 1, "result");
      if (g.shape(root_shape(0)).type != ElementType::kPred) {
        fail(i.name, label_of(i) + ": the condition " + quoted(callee(0).name) + " gives " + text(root_shape(0)) +
                         ", expected pred[]");
      }
      break;
    case Opcode::kConditional:
      for (std::size_t n = 0; n < called; ++n) {
        parameters(n, 1);
        fits(g.instruction(g.operands(id)[n + 1]).shape, parameter_shape(n, 0), n, "parameter");
        fits(i.shape, root_shape(n), n, "result");
      }
      break;
    case Opcode::kReduce:
    case Opcode::kReduceWindow: parameters(0, operands); break;
    case Opcode::kSort:
      if (called == 1) parameters(0, operands * 2);
      break;
    case Opcode::kScatter: parameters(0, (operands - 1) / 2 * 2); break;
    case Opcode::kSelectAndScatter:
      parameters(0, 2);
      parameters(1, 2);
      break;
    default: break;
  }
}

}  // namespace automap::graph
