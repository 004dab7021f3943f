// Records operations on arrays as they are called, and derives their gradients: a training step before it becomes a
// Graph. The operations are HLO's own, as far as layers of models need them.
//
//   Tape tape;
//   const Value w = tape.parameter("params['w']", {Type::kF32, {4, 2}});
//   const Value x = tape.parameter("batch['x']", {Type::kF32, {8, 4}});
//   const Value y = tape.dot(x, w, {{1}, {0}, {}, {}});
//   const Value loss = tape.reduce_sum(tape.multiply(y, y), {0, 1});
//   const std::vector<Value> g = tape.gradients(loss, {w});
//
// Operands must fit: a shape that does not is a bug of the caller, who checks what users say.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/opcode.h"

namespace automap::architecture {

using Type = graph::ElementType;  // kPred, kS32, kU32, kU64, kF32, kBf16 or kF16

using Value = std::int32_t;
constexpr Value kNoValue = -1;
using Dims = std::vector<std::int64_t>;

struct Array {
  Type type = Type::kF32;
  Dims dims;

  std::size_t rank() const { return dims.size(); }
  std::int64_t elements() const;
};

struct DotDims {
  Dims left_contracting, right_contracting, left_batch, right_batch;
};

// The window of a convolution; each field holds one value for each of the two spatial dimensions.
struct Window {
  std::int64_t stride = 1, left_dilation = 1, right_dilation = 1;  // of both
  Dims size, low, high;
  bool reversed = false;
  std::string labels = "b01f_01io->b01f";  // as HLO has them
};

// One operation. The meaning of `numbers` and `more` depends on the operation (tape.cpp).
struct Node {
  graph::Opcode opcode = graph::Opcode::kUnknown;
  Array array;  // of a tuple: unused (optimization barrier, sort), or its second part (random bits)
  std::vector<Value> inputs;
  Dims numbers;
  std::vector<Dims> more;
  double scalar = 0;       // of a constant
  Window window;           // of a convolution
  std::int32_t scope = 0;  // index of Tape::scopes
  bool backward = false;   // in the backward pass, or the optimizer's where there is no scope
  std::string name;        // of a parameter; the direction of a comparison
};

class Tape {
 public:
  Tape();

  // Sets the scope of later operations: "layers/3/attention".
  void set_scope(const std::string& scope);
  const std::string& scope() const { return scopes_[static_cast<std::size_t>(scope_)]; }

  Value parameter(const std::string& name, Array array);
  Value constant(double value, Type type);
  Value filled(double value, Array array);
  Value iota(Array array, std::int64_t dim);

  Value unary(graph::Opcode opcode, Value x);
  Value binary(graph::Opcode opcode, Value a, Value b);
  Value add(Value a, Value b) { return binary(graph::Opcode::kAdd, a, b); }
  Value subtract(Value a, Value b) { return binary(graph::Opcode::kSubtract, a, b); }
  Value multiply(Value a, Value b) { return binary(graph::Opcode::kMultiply, a, b); }
  Value divide(Value a, Value b) { return binary(graph::Opcode::kDivide, a, b); }
  Value scaled(Value x, double factor) { return multiply(x, filled(factor, at(x).array)); }
  Value shifted(Value x, double term) { return add(x, filled(term, at(x).array)); }
  Value convert(Value x, Type type);
  Value bits_as(Value x, Array array);  // the same bits, as other numbers

  // `places`: the dimension of the result that each of x becomes.
  Value broadcast(Value x, const Dims& dims, const Dims& places);
  Value reshape(Value x, const Dims& dims);
  Value transpose(Value x, const Dims& order);
  Value slice(Value x, std::int64_t dim, std::int64_t from, std::int64_t to);
  Value pad(Value x, std::int64_t dim, std::int64_t low, std::int64_t high);
  Value concatenate(const std::vector<Value>& parts, std::int64_t dim);
  Value dot(Value a, Value b, const DotDims& dims);
  // x [samples, height, width, in], kernel [height, width, in, out] -> [samples, height / stride, width / stride, out].
  Value convolution(Value x, Value kernel, std::int64_t stride);
  Value reduce_sum(Value x, const Dims& dims) { return reduce(x, dims, false); }
  // Without a derivative, which its uses do not need.
  Value reduce_max(Value x, const Dims& dims) { return reduce(x, dims, true); }
  Value compare(const std::string& direction, Value a, Value b);
  Value select(Value which, Value a, Value b);
  // x [batch.., n, rest..] at ids [batch.., m..] -> [batch.., m.., rest..], with `batch` leading dimensions alike.
  Value take(Value x, Value ids, std::int64_t batch);
  // x with `rows` added to it at ids: the derivative of take() uses it.
  Value put(Value x, Value ids, Value rows, std::int64_t batch);
  // (keys, values) along the last dimension by ascending keys (descending where asked), both without derivatives.
  std::pair<Value, Value> sort(Value keys, Value values, bool descending);

  // Random bits, 32 in each element, drawn with a key u64[2].
  Value random_bits(Value key, const Dims& dims);

  // Values recorded between the two calls are computed again in the backward pass.
  std::size_t begin_again() const { return nodes_.size(); }
  void end_again(std::size_t from) { again_.push_back({from, nodes_.size()}); }

  // The gradients of `loss`, a scalar, with respect to each of `by`. kNoValue: `loss` does not depend on it.
  std::vector<Value> gradients(Value loss, const std::vector<Value>& by);

  const Node& at(Value value) const { return nodes_[static_cast<std::size_t>(value)]; }
  Dims dims(Value value) const { return at(value).array.dims; }
  Type type(Value value) const { return at(value).array.type; }
  std::size_t size() const { return nodes_.size(); }
  const std::vector<std::string>& scopes() const { return scopes_; }

 private:
  struct Range {
    std::size_t from = 0, to = 0;
  };

  Value push(graph::Opcode opcode, Array array, std::vector<Value> inputs, Dims numbers = {},
             std::vector<Dims> more = {});
  Value reduce(Value x, const Dims& dims, bool largest);
  Value convolution(Value x, Value kernel, Array array, Window window);
  void pull(Value value, Value gradient, std::vector<Value>* gradients, const std::vector<bool>& wanted);
  void give(Value input, Value gradient, std::vector<Value>* gradients, const std::vector<bool>& wanted);
  void pull_dot(Value value, Value gradient, std::vector<Value>* gradients, const std::vector<bool>& wanted);
  void pull_convolution(Value value, Value gradient, std::vector<Value>* gradients, const std::vector<bool>& wanted);
  void repeat(const Range& range, Value* gradient);
  // The value that the backward pass reads for a forward value: the value itself, or the one computed again.
  Value seen(Value value) const;

  std::vector<Node> nodes_;
  std::vector<std::string> scopes_;
  std::map<std::string, std::int32_t> scope_numbers_;
  std::int32_t scope_ = 0;
  bool backward_ = false;
  std::vector<Range> again_;
  std::vector<Value> copies_;  // by forward value, while gradients() runs
  std::map<std::pair<double, Type>, Value> constants_;
};

}  // namespace automap::architecture
