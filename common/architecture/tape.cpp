#include "common/architecture/tape.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/base/check.h"

namespace automap::architecture {

using graph::Opcode;

namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

bool holds(const Dims& dims, std::int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

}  // namespace

std::int64_t Array::elements() const {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, [](auto a, auto b) { return a * b; });
}

Tape::Tape() {
  set_scope("");
}

void Tape::set_scope(const std::string& scope) {
  const auto [at, is_new] = scope_numbers_.emplace(scope, static_cast<std::int32_t>(scopes_.size()));
  if (is_new) scopes_.push_back(scope);
  scope_ = at->second;
}

Value Tape::push(Opcode opcode, Array array, std::vector<Value> inputs, Dims numbers, std::vector<Dims> more) {
  Node node;
  node.opcode = opcode;
  node.array = std::move(array);
  node.inputs = std::move(inputs);
  node.numbers = std::move(numbers);
  node.more = std::move(more);
  node.scope = scope_;
  node.backward = backward_;
  nodes_.push_back(std::move(node));
  return static_cast<Value>(nodes_.size() - 1);
}

Value Tape::parameter(const std::string& name, Array array) {
  const Value value = push(Opcode::kParameter, std::move(array), {});
  nodes_.back().name = name;
  return value;
}

Value Tape::constant(double number, Type type) {
  const auto [at, is_new] = constants_.emplace(std::make_pair(number, type), kNoValue);
  if (is_new) {
    at->second = push(Opcode::kConstant, {type, {}}, {});
    nodes_.back().scalar = number;
    nodes_.back().scope = 0;
  }
  return at->second;
}

Value Tape::filled(double number, Array array) {
  const Value one = constant(number, array.type);
  return array.dims.empty() ? one : broadcast(one, array.dims, {});
}

Value Tape::iota(Array array, std::int64_t dim) {
  return push(Opcode::kIota, std::move(array), {}, {dim});
}

Value Tape::unary(Opcode opcode, Value x) {
  return push(opcode, at(x).array, {x});
}

Value Tape::binary(Opcode opcode, Value a, Value b) {
  AM_CHECK(dims(a) == dims(b) && type(a) == type(b));
  return push(opcode, at(a).array, {a, b});
}

Value Tape::convert(Value x, Type wanted) {
  return type(x) == wanted ? x : push(Opcode::kConvert, {wanted, dims(x)}, {x});
}

Value Tape::bits_as(Value x, Array array) {
  return push(Opcode::kBitcastConvert, std::move(array), {x});
}

Value Tape::broadcast(Value x, const Dims& to, const Dims& places) {
  AM_CHECK(places.size() == dims(x).size());
  for (std::size_t i = 0; i < places.size(); ++i) AM_CHECK(to[index(places[i])] == dims(x)[i]);
  return push(Opcode::kBroadcast, {type(x), to}, {x}, places);
}

Value Tape::reshape(Value x, const Dims& to) {
  if (dims(x) == to) return x;
  AM_CHECK((Array{type(x), to}.elements() == at(x).array.elements()));
  return push(Opcode::kReshape, {type(x), to}, {x});
}

Value Tape::transpose(Value x, const Dims& order) {
  if (std::is_sorted(order.begin(), order.end())) return x;
  Dims to;
  for (const std::int64_t dim : order) to.push_back(dims(x)[index(dim)]);
  return push(Opcode::kTranspose, {type(x), to}, {x}, order);
}

Value Tape::slice(Value x, std::int64_t dim, std::int64_t from, std::int64_t to) {
  Array array = at(x).array;
  if (from == 0 && to == array.dims[index(dim)]) return x;
  AM_CHECK(from >= 0 && from < to && to <= array.dims[index(dim)]);
  array.dims[index(dim)] = to - from;
  return push(Opcode::kSlice, std::move(array), {x}, {dim, from, to});
}

Value Tape::pad(Value x, std::int64_t dim, std::int64_t low, std::int64_t high) {
  if (low == 0 && high == 0) return x;
  Array array = at(x).array;
  array.dims[index(dim)] += low + high;
  const Value zero = constant(0, array.type);
  return push(Opcode::kPad, std::move(array), {x, zero}, {dim, low, high});
}

Value Tape::concatenate(const std::vector<Value>& parts, std::int64_t dim) {
  Array array = at(parts.front()).array;
  array.dims[index(dim)] = 0;
  for (const Value part : parts) array.dims[index(dim)] += dims(part)[index(dim)];
  return push(Opcode::kConcatenate, std::move(array), parts, {dim});
}

Value Tape::dot(Value a, Value b, const DotDims& d) {
  Dims to;
  AM_CHECK(type(a) == type(b));
  for (std::size_t i = 0; i < d.left_batch.size(); ++i) {
    to.push_back(dims(a)[index(d.left_batch[i])]);
    AM_CHECK(to.back() == dims(b)[index(d.right_batch[i])]);
  }
  for (std::size_t i = 0; i < d.left_contracting.size(); ++i) {
    AM_CHECK(dims(a)[index(d.left_contracting[i])] == dims(b)[index(d.right_contracting[i])]);
  }
  const auto add_free = [&](Value x, const Dims& batch, const Dims& contracting) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(dims(x).size()); ++i) {
      if (!holds(batch, i) && !holds(contracting, i)) to.push_back(dims(x)[index(i)]);
    }
  };
  add_free(a, d.left_batch, d.left_contracting);
  add_free(b, d.right_batch, d.right_contracting);
  return push(Opcode::kDot, {type(a), to}, {a, b}, {},
              {d.left_contracting, d.right_contracting, d.left_batch, d.right_batch});
}

Value Tape::reduce(Value x, const Dims& over, bool largest) {
  Array array{type(x), {}};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(dims(x).size()); ++i) {
    if (!holds(over, i)) array.dims.push_back(dims(x)[index(i)]);
  }
  const Value start = constant(largest ? -std::numeric_limits<double>::infinity() : 0, array.type);
  const Value value = push(Opcode::kReduce, std::move(array), {x, start}, over);
  if (largest) nodes_.back().name = "maximum";
  return value;
}

Value Tape::compare(const std::string& direction, Value a, Value b) {
  AM_CHECK(dims(a) == dims(b) && type(a) == type(b));
  const Value value = push(Opcode::kCompare, {Type::kPred, dims(a)}, {a, b});
  nodes_.back().name = direction;
  return value;
}

Value Tape::select(Value which, Value a, Value b) {
  AM_CHECK(dims(a) == dims(b) && dims(which) == dims(a));
  return push(Opcode::kSelect, at(a).array, {which, a, b});
}

Value Tape::take(Value x, Value ids, std::int64_t batch) {
  Array array{type(x), dims(ids)};
  const Dims whole = dims(x);
  array.dims.insert(array.dims.end(), whole.begin() + batch + 1, whole.end());
  Dims with_vector = dims(ids);
  with_vector.push_back(1);
  const Value places = reshape(ids, with_vector);
  return push(Opcode::kGather, std::move(array), {x, places}, {batch});
}

Value Tape::put(Value x, Value ids, Value rows, std::int64_t batch) {
  Dims with_vector = dims(ids);
  with_vector.push_back(1);
  const Value places = reshape(ids, with_vector);
  return push(Opcode::kScatter, at(x).array, {x, places, rows}, {batch});
}

std::pair<Value, Value> Tape::sort(Value keys, Value values, bool descending) {
  const auto last = static_cast<std::int64_t>(dims(keys).size()) - 1;
  const Value both = push(Opcode::kSort, {}, {keys, values}, {last, descending ? 1 : 0});
  const Value first = push(Opcode::kGetTupleElement, at(keys).array, {both}, {0});
  return {first, push(Opcode::kGetTupleElement, at(values).array, {both}, {1})};
}

Value Tape::random_bits(Value key, const Dims& to) {
  AM_CHECK(type(key) == Type::kU64 && dims(key) == Dims{2});
  const Array bits{Type::kU32, to};
  const Value both = push(Opcode::kRngBitGenerator, bits, {key});  // the next key, and them
  return push(Opcode::kGetTupleElement, bits, {both}, {1});
}

Value Tape::convolution(Value x, Value kernel, Array array, Window window) {
  const Value value = push(Opcode::kConvolution, std::move(array), {x, kernel});
  nodes_.back().window = std::move(window);
  return value;
}

Value Tape::convolution(Value x, Value kernel, std::int64_t stride) {
  const Dims in = dims(x), size = dims(kernel);
  AM_CHECK(in.size() == 4 && size.size() == 4 && in[3] == size[2] && type(x) == type(kernel));
  Array array{type(x), {in[0], 0, 0, size[3]}};
  Window window;
  window.stride = stride;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t places = (in[i + 1] + stride - 1) / stride;
    const std::int64_t padding = std::max<std::int64_t>(0, (places - 1) * stride + size[i] - in[i + 1]);
    array.dims[i + 1] = places;
    window.size.push_back(size[i]);
    window.low.push_back(padding / 2);
    window.high.push_back(padding - padding / 2);
  }
  return convolution(x, kernel, std::move(array), std::move(window));
}

}  // namespace automap::architecture
