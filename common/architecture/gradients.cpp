// Reverse-mode derivatives of a tape: from the loss back, every operation gives its inputs their share.
#include <algorithm>
#include <numeric>

#include "common/architecture/tape.h"
#include "common/base/check.h"

namespace automap::architecture {

using graph::Opcode;

namespace {

std::int64_t rank_of(const Dims& dims) {
  return static_cast<std::int64_t>(dims.size());
}

Dims others(std::int64_t rank, const Dims& a, const Dims& b) {
  Dims out;
  for (std::int64_t i = 0; i < rank; ++i) {
    if (std::find(a.begin(), a.end(), i) == a.end() && std::find(b.begin(), b.end(), i) == b.end()) out.push_back(i);
  }
  return out;
}

Dims counted(std::int64_t from, std::size_t count) {
  Dims out(count);
  std::iota(out.begin(), out.end(), from);
  return out;
}

}  // namespace

Value Tape::seen(Value value) const {
  const auto at = static_cast<std::size_t>(value);
  return at < copies_.size() && copies_[at] != kNoValue ? copies_[at] : value;
}

void Tape::give(Value input, Value gradient, std::vector<Value>* gradients, const std::vector<bool>& wanted) {
  const auto at = static_cast<std::size_t>(input);
  if (!wanted[at] || gradient == kNoValue) return;
  Value& sum = (*gradients)[at];
  sum = sum == kNoValue ? gradient : add(sum, gradient);
}

// The two of a product are products of its gradient with the other operand.
void Tape::pull_dot(Value value, Value gradient, std::vector<Value>* gradients, const std::vector<bool>& wanted) {
  const Node node = at(value);
  for (std::size_t side = 0; side < 2; ++side) {
    const Value of = node.inputs[side];
    if (!wanted[static_cast<std::size_t>(of)]) continue;
    const Value other = node.inputs[1 - side];
    const Dims &contracting = node.more[side], &other_contracting = node.more[1 - side];
    const Dims &batch = node.more[2 + side], &other_batch = node.more[3 - side];
    const Dims free = others(rank_of(dims(of)), batch, contracting);
    const Dims other_free = others(rank_of(dims(other)), other_batch, other_contracting);
    // The gradient's dimensions: batch, those free in the left one, those free in the right one.
    const auto batches = static_cast<std::int64_t>(batch.size());
    const std::int64_t other_at = side == 0 ? batches + rank_of(free) : batches;
    const Value product =
        dot(gradient, seen(other),
            {counted(other_at, other_free.size()), other_free, counted(0, batch.size()), other_batch});
    // Its dimensions: batch, free, then the contracted ones in the order that the other operand has them in.
    Dims sorted = other_contracting;
    std::sort(sorted.begin(), sorted.end());
    Dims order(dims(of).size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      order[static_cast<std::size_t>(batch[i])] = static_cast<std::int64_t>(i);
    }
    for (std::size_t i = 0; i < free.size(); ++i) {
      order[static_cast<std::size_t>(free[i])] = batches + static_cast<std::int64_t>(i);
    }
    for (std::size_t i = 0; i < contracting.size(); ++i) {
      const auto place = std::find(sorted.begin(), sorted.end(), other_contracting[i]) - sorted.begin();
      order[static_cast<std::size_t>(contracting[i])] = batches + rank_of(free) + place;
    }
    give(of, transpose(product, order), gradients, wanted);
  }
}

// By the input: the gradient, spread by the stride, with the kernel turned round. By the kernel: the input with the
// gradient as a kernel, samples as channels.
void Tape::pull_convolution(Value value, Value gradient, std::vector<Value>* gradients,
                            const std::vector<bool>& wanted) {
  const Node node = at(value);
  const Value x = node.inputs[0], kernel = node.inputs[1];
  const std::int64_t stride = node.window.stride;
  Window by_input, by_kernel;
  by_input.left_dilation = by_kernel.right_dilation = stride;
  by_input.reversed = true;
  by_input.labels = "b01f_01oi->b01f";
  by_kernel.labels = "f01b_i01o->01bf";
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t size = node.window.size[i], low = node.window.low[i], in = dims(x)[i + 1];
    const std::int64_t spread = (node.array.dims[i + 1] - 1) * stride + 1;
    by_input.size.push_back(size);
    by_input.low.push_back(size - 1 - low);
    by_input.high.push_back(in + low - spread);
    by_kernel.size.push_back(node.array.dims[i + 1]);
    by_kernel.low.push_back(low);
    by_kernel.high.push_back(size - 1 + spread - in - low);
  }
  if (wanted[static_cast<std::size_t>(x)]) {
    give(x, convolution(gradient, seen(kernel), at(x).array, std::move(by_input)), gradients, wanted);
  }
  if (wanted[static_cast<std::size_t>(kernel)]) {
    give(kernel, convolution(seen(x), gradient, at(kernel).array, std::move(by_kernel)), gradients, wanted);
  }
}

void Tape::pull(Value value, Value g, std::vector<Value>* gradients, const std::vector<bool>& wanted) {
  const Node node = at(value);  // a copy: more nodes come
  const auto to = [&](std::size_t input, Value gradient) { give(node.inputs[input], gradient, gradients, wanted); };
  const auto wants = [&](std::size_t input) { return wanted[static_cast<std::size_t>(node.inputs[input])]; };
  const auto in = [&](std::size_t input) { return seen(node.inputs[input]); };
  const Value out = seen(value);
  switch (node.opcode) {
    case Opcode::kAdd:
      to(0, g);
      to(1, g);
      return;
    case Opcode::kSubtract:
      to(0, g);
      if (wants(1)) to(1, unary(Opcode::kNegate, g));
      return;
    case Opcode::kMultiply:
      if (wants(0)) to(0, multiply(g, in(1)));
      if (wants(1)) to(1, multiply(g, in(0)));
      return;
    case Opcode::kDivide:
      if (wants(0)) to(0, divide(g, in(1)));
      if (wants(1)) to(1, unary(Opcode::kNegate, divide(multiply(g, out), in(1))));
      return;
    case Opcode::kNegate: to(0, unary(Opcode::kNegate, g)); return;
    case Opcode::kExponential: to(0, multiply(g, out)); return;
    case Opcode::kLog: to(0, divide(g, in(0))); return;
    case Opcode::kRsqrt: to(0, multiply(g, scaled(divide(out, in(0)), -0.5))); return;
    case Opcode::kTanh: {
      const Value one = filled(1, node.array);
      to(0, multiply(g, subtract(one, multiply(out, out))));
      return;
    }
    case Opcode::kErf: {  // 2 / sqrt(pi) exp(-x^2)
      const Value inner = unary(Opcode::kExponential, unary(Opcode::kNegate, multiply(in(0), in(0))));
      to(0, multiply(g, scaled(inner, 1.1283791670955126)));
      return;
    }
    case Opcode::kLogistic: {
      const Value one = filled(1, node.array);
      to(0, multiply(g, multiply(out, subtract(one, out))));
      return;
    }
    case Opcode::kMaximum: {  // with a constant: a rectifier
      const Value zero = filled(0, node.array);
      to(0, select(compare("GT", in(0), in(1)), g, zero));
      return;
    }
    case Opcode::kConvert: to(0, convert(g, type(node.inputs[0]))); return;
    case Opcode::kBroadcast: {
      if (!wants(0)) return;
      const Value sum = reduce_sum(g, others(rank_of(node.array.dims), node.numbers, {}));
      to(0, sum);
      return;
    }
    case Opcode::kReshape: to(0, reshape(g, dims(node.inputs[0]))); return;
    case Opcode::kTranspose: {
      Dims back(node.numbers.size());
      for (std::size_t i = 0; i < back.size(); ++i) {
        back[static_cast<std::size_t>(node.numbers[i])] = static_cast<std::int64_t>(i);
      }
      to(0, transpose(g, back));
      return;
    }
    case Opcode::kSlice: {
      const std::int64_t all = dims(node.inputs[0])[static_cast<std::size_t>(node.numbers[0])];
      to(0, pad(g, node.numbers[0], node.numbers[1], all - node.numbers[2]));
      return;
    }
    case Opcode::kPad: {
      const std::int64_t inner = dims(node.inputs[0])[static_cast<std::size_t>(node.numbers[0])];
      to(0, slice(g, node.numbers[0], node.numbers[1], node.numbers[1] + inner));
      return;
    }
    case Opcode::kConcatenate: {
      std::int64_t from = 0;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const std::int64_t size = dims(node.inputs[i])[static_cast<std::size_t>(node.numbers[0])];
        if (wants(i)) to(i, slice(g, node.numbers[0], from, from + size));
        from += size;
      }
      return;
    }
    case Opcode::kReduce: {
      if (!node.name.empty()) return;  // a maximum
      const Dims all = dims(node.inputs[0]);
      to(0, broadcast(g, all, others(rank_of(all), node.numbers, {})));
      return;
    }
    case Opcode::kSelect: {
      const Value zero = filled(0, node.array);
      if (wants(1)) to(1, select(in(0), g, zero));
      if (wants(2)) to(2, select(in(0), zero, g));
      return;
    }
    case Opcode::kGather: {
      if (!wants(0)) return;
      Dims places = dims(node.inputs[1]);
      places.pop_back();
      const Value zero = filled(0, at(node.inputs[0]).array);
      to(0, put(zero, reshape(in(1), places), g, node.numbers[0]));
      return;
    }
    case Opcode::kScatter: {
      to(0, g);
      if (!wants(2)) return;
      Dims places = dims(node.inputs[1]);
      places.pop_back();
      to(2, take(g, reshape(in(1), places), node.numbers[0]));
      return;
    }
    case Opcode::kDot: pull_dot(value, g, gradients, wanted); return;
    case Opcode::kConvolution: pull_convolution(value, g, gradients, wanted); return;
    default: return;  // parameters, constants, places, comparisons, sorts: nothing flows through
  }
}

// Records the range's operations once more. Values that it reads from in front of the range go through a barrier with
// the gradient that asks for it, so that nobody computes it early or takes the two for one.
void Tape::repeat(const Range& range, Value* gradient) {
  std::vector<Value> reads{*gradient};
  for (std::size_t i = range.from; i < range.to; ++i) {
    for (const Value input : nodes_[i].inputs) {
      const Opcode opcode = at(input).opcode;
      const bool inside = static_cast<std::size_t>(input) >= range.from;
      if (inside || opcode == Opcode::kConstant || opcode == Opcode::kIota || opcode == Opcode::kParameter) continue;
      if (std::find(reads.begin(), reads.end(), input) == reads.end()) reads.push_back(input);
    }
  }
  std::vector<Value> inputs;
  for (const Value read : reads) inputs.push_back(seen(read));
  const Value barrier = push(Opcode::kOptBarrier, {}, inputs);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const Value behind = push(Opcode::kGetTupleElement, at(reads[i]).array, {barrier}, {static_cast<std::int64_t>(i)});
    if (i == 0) {
      *gradient = behind;
    } else {
      copies_[static_cast<std::size_t>(reads[i])] = behind;
    }
  }
  for (std::size_t i = range.from; i < range.to; ++i) {
    if (nodes_[i].opcode == Opcode::kParameter || nodes_[i].opcode == Opcode::kConstant) continue;
    Node copy = nodes_[i];
    for (Value& input : copy.inputs) input = seen(input);
    copy.backward = true;
    nodes_.push_back(std::move(copy));
    copies_[i] = static_cast<Value>(nodes_.size() - 1);
  }
  // Nodes in front of the range go back to the values that were read, not to those behind the barrier.
  for (std::size_t i = 1; i < reads.size(); ++i) copies_[static_cast<std::size_t>(reads[i])] = kNoValue;
}

std::vector<Value> Tape::gradients(Value loss, const std::vector<Value>& by) {
  const std::size_t count = nodes_.size();
  std::vector<bool> wanted(count, false);
  for (const Value value : by) wanted[static_cast<std::size_t>(value)] = true;
  for (std::size_t i = 0; i < count; ++i) {
    for (const Value input : nodes_[i].inputs) {
      if (wanted[static_cast<std::size_t>(input)]) wanted[i] = true;
    }
  }
  const std::int32_t scope = scope_;
  backward_ = true;
  copies_.assign(count, kNoValue);
  std::vector<Value> gradients(count, kNoValue);
  scope_ = at(loss).scope;
  gradients[static_cast<std::size_t>(loss)] = constant(1, type(loss));
  auto range = again_.rbegin();
  for (std::size_t i = static_cast<std::size_t>(loss) + 1; i-- > 0;) {
    if (!wanted[i] || gradients[i] == kNoValue) continue;
    scope_ = nodes_[i].scope;
    while (range != again_.rend() && i < range->from) ++range;
    if (range != again_.rend() && i < range->to) {
      repeat(*range, &gradients[i]);
      ++range;
    }
    if (nodes_[i].opcode == Opcode::kParameter) continue;
    const Value gradient = gradients[i];
    pull(static_cast<Value>(i), gradient, &gradients, wanted);
  }
  std::vector<Value> out;
  for (const Value value : by) out.push_back(gradients[static_cast<std::size_t>(value)]);
  backward_ = false;
  copies_.clear();
  scope_ = scope;
  return out;
}

}  // namespace automap::architecture
