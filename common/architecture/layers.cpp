// Building blocks of all layers: weights, products, norms, activations, losses.
#include <algorithm>
#include <cmath>

#include "common/architecture/step_builder.h"

namespace automap::architecture {

using graph::Opcode;

namespace {

std::int64_t last_dim(const Dims& dims) {
  return static_cast<std::int64_t>(dims.size()) - 1;
}

Dims all_but_last(const Dims& dims) {
  Dims out;
  for (std::int64_t i = 0; i + 1 < static_cast<std::int64_t>(dims.size()); ++i) out.push_back(i);
  return out;
}

}  // namespace

void StepBuilder::in(const std::string& part, const std::function<void()>& body) {
  const std::string outer = tape_.scope();
  enter(outer.empty() ? part : outer + "/" + part);
  body();
  enter(outer);
}

// Named by the scope that it stands in, as a tree of them would be.
Value StepBuilder::weight(const std::string& name, const Dims& dims) {
  std::string path;
  std::string rest = tape_.scope() + "/" + name;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    if (end > 0) path += "['" + rest.substr(0, end) + "']";
    rest.erase(0, end + 1);
  }
  const Value value = tape_.parameter("params" + path, {Type::kF32, dims});
  weights_.push_back({path, value});
  return value;
}

Value StepBuilder::along_last(Value vector, const Dims& dims) {
  return tape_.broadcast(vector, dims, {last_dim(dims)});
}

Value StepBuilder::linear(Value x, const std::string& name, std::int64_t out, bool bias) {
  Value y = kNoValue;
  in(name, [&] {
    const Dims dims = tape_.dims(x);
    const Value kernel = as_compute(weight("kernel", {dims.back(), out}));
    y = tape_.dot(x, kernel, {{last_dim(dims)}, {0}, {}, {}});
    if (bias) y = tape_.add(y, along_last(as_compute(weight("bias", {out})), tape_.dims(y)));
  });
  return y;
}

// By the mean square (RMS), or by mean and variance, of the last dimension, which are taken in 32 bits.
Value StepBuilder::normalized(Value x) {
  const Dims dims = tape_.dims(x);
  const Dims rows = all_but_last(dims);
  const double size = static_cast<double>(dims.back());
  const auto mean = [&](Value of) { return tape_.scaled(tape_.reduce_sum(of, {last_dim(dims)}), 1 / size); };
  Value wide = tape_.convert(x, Type::kF32);
  if (!model_.rms_norm) wide = tape_.subtract(wide, tape_.broadcast(mean(wide), dims, rows));
  const Value scale = tape_.unary(Opcode::kRsqrt, tape_.shifted(mean(tape_.multiply(wide, wide)), 1e-6));
  if (model_.rms_norm) return tape_.multiply(x, tape_.broadcast(as_compute(scale), dims, rows));
  return tape_.multiply(wide, tape_.broadcast(scale, dims, rows));
}

Value StepBuilder::norm(const std::string& name, Value x) {
  Value y = kNoValue;
  in(name, [&] {
    const Dims dims = tape_.dims(x);
    y = normalized(x);
    const Value scale = tape_.convert(weight("scale", {dims.back()}), tape_.type(y));
    y = tape_.multiply(y, along_last(scale, dims));
    if (!model_.rms_norm) y = tape_.add(y, along_last(weight("bias", {dims.back()}), dims));
    y = as_compute(y);
  });
  return y;
}

Value StepBuilder::activated(Activation activation, Value x) {
  switch (activation) {
    case Activation::kSilu: return tape_.multiply(x, tape_.unary(Opcode::kLogistic, x));
    case Activation::kRelu: return tape_.binary(Opcode::kMaximum, x, tape_.filled(0, tape_.at(x).array));
    case Activation::kGelu: {
      const Value inner = tape_.unary(Opcode::kErf, tape_.scaled(x, std::sqrt(0.5)));
      return tape_.multiply(tape_.scaled(x, 0.5), tape_.shifted(inner, 1));
    }
    case Activation::kGeluTanh: {
      const Value cube = tape_.multiply(tape_.multiply(x, x), x);
      const Value inner = tape_.scaled(tape_.add(x, tape_.scaled(cube, 0.044715)), 0.7978845608028654);
      return tape_.multiply(tape_.scaled(x, 0.5), tape_.shifted(tape_.unary(Opcode::kTanh, inner), 1));
    }
  }
  return x;
}

Value StepBuilder::softmax(Value x) {
  const Dims dims = tape_.dims(x);
  const Dims rows = all_but_last(dims);
  const auto spread = [&](Value row) { return tape_.broadcast(row, dims, rows); };
  const Value above = tape_.subtract(x, spread(tape_.reduce_max(x, {last_dim(dims)})));
  const Value shares = tape_.unary(Opcode::kExponential, above);
  return tape_.divide(shares, spread(tape_.reduce_sum(shares, {last_dim(dims)})));
}

Value StepBuilder::dropped(Value x, double rate) {
  if (rate <= 0) return x;
  const Array array = tape_.at(x).array;
  // Other bits at every place, as the step has one key.
  const Value key = tape_.shifted(key_, drawn_++);
  const Value least = tape_.filled(std::floor(rate * 4294967296.0), {Type::kU32, array.dims});
  const Value kept = tape_.compare("GE", tape_.random_bits(key, array.dims), least);
  return tape_.select(kept, tape_.scaled(x, 1 / (1 - rate)), tape_.filled(0, array));
}

// The mean over all rows; a label's logit is fetched.
Value StepBuilder::cross_entropy(Value logits, Value labels) {
  const Value x = tape_.convert(logits, Type::kF32);
  const Dims dims = tape_.dims(x);
  const Dims rows = all_but_last(dims);
  const std::int64_t last = last_dim(dims);
  const Value highest = tape_.reduce_max(x, {last});
  const Value above = tape_.subtract(x, tape_.broadcast(highest, dims, rows));
  const Value sum = tape_.reduce_sum(tape_.unary(Opcode::kExponential, above), {last});
  const Value normalizer = tape_.add(tape_.unary(Opcode::kLog, sum), highest);
  Dims one = tape_.dims(labels);
  one.push_back(1);
  const Value label = tape_.reshape(tape_.take(x, tape_.reshape(labels, one), last), tape_.dims(labels));
  const Value each = tape_.subtract(normalizer, label);
  const double count = static_cast<double>(tape_.at(each).array.elements());
  Dims all;
  for (std::int64_t i = 0; i < last; ++i) all.push_back(i);
  return tape_.scaled(tape_.reduce_sum(each, all), 1 / count);
}

}  // namespace automap::architecture
