// The four families of blocks: attention, MLP, experts, convolution.
#include <cmath>

#include "common/architecture/step_builder.h"

namespace automap::architecture {

using graph::Opcode;

Value StepBuilder::block(const Block& block, Value x) {
  switch (block.kind) {
    case BlockKind::kAttention: return block.kv_rank > 0 ? compressed_attention(block, x) : attention(block, x);
    case BlockKind::kMlp: return mlp(block, x, block.hidden);
    case BlockKind::kExperts: return experts(block, x);
    case BlockKind::kConvolution: return convolution(block, x);
  }
  return x;
}

// x [samples, position, head, feature], the first `features` of which turn with the position.
Value StepBuilder::rotated(Value x, std::int64_t features) {
  const Dims dims = tape_.dims(x);
  const std::int64_t half = features / 2;
  const Array angles{Type::kF32, {dims[1], half}};
  const Value position = tape_.iota(angles, 0), channel = tape_.iota(angles, 1);
  const double step = -std::log(10000.0) / static_cast<double>(half);
  const Value angle = tape_.multiply(position, tape_.unary(Opcode::kExponential, tape_.scaled(channel, step)));
  const Dims halves{dims[0], dims[1], dims[2], half};
  const auto spread = [&](Opcode opcode) {
    return tape_.broadcast(tape_.convert(tape_.unary(opcode, angle), tape_.type(x)), halves, {1, 3});
  };
  const Value cosine = spread(Opcode::kCosine), sine = spread(Opcode::kSine);
  const Value left = tape_.slice(x, 3, 0, half), right = tape_.slice(x, 3, half, features);
  std::vector<Value> parts{tape_.subtract(tape_.multiply(left, cosine), tape_.multiply(right, sine)),
                           tape_.add(tape_.multiply(left, sine), tape_.multiply(right, cosine))};
  if (features < dims[3]) parts.push_back(tape_.slice(x, 3, features, dims[3]));
  return tape_.concatenate(parts, 3);
}

Value StepBuilder::masked(const Block& block, Value scores, std::int64_t queries, std::int64_t keys) {
  if (!block.causal && block.window == 0) return scores;
  const Array places{Type::kS32, {queries, keys}};
  const Value query = tape_.iota(places, 0), key = tape_.iota(places, 1);
  const Value kept = tape_.filled(0, {Type::kF32, places.dims}),
              left_out = tape_.filled(-1e9, {Type::kF32, places.dims});
  Value bias = kept;
  if (block.causal) bias = tape_.select(tape_.compare("LE", key, query), kept, left_out);
  if (block.window > 0 && block.window < keys) {
    const Value first = tape_.shifted(query, static_cast<double>(-block.window));
    bias = tape_.select(tape_.compare("GT", key, first), bias, left_out);
  }
  const Dims dims = tape_.dims(scores);
  const auto rank = static_cast<std::int64_t>(dims.size());
  return tape_.add(scores, tape_.broadcast(tape_.convert(bias, tape_.type(scores)), dims, {rank - 2, rank - 1}));
}

// [head, query, key], by how far apart they are.
Value StepBuilder::position_bias(const Block& block, std::int64_t queries, std::int64_t keys) {
  if (position_table_ == kNoValue) position_table_ = weight("relative_bias", {block.position_buckets, block.heads});
  const Array places{Type::kS32, {queries, keys}};
  const Value apart = tape_.unary(Opcode::kAbs, tape_.subtract(tape_.iota(places, 0), tape_.iota(places, 1)));
  const Value farthest = tape_.filled(static_cast<double>(block.position_buckets - 1), places);
  const Value bucket = tape_.binary(Opcode::kMinimum, apart, farthest);
  return tape_.transpose(tape_.take(as_compute(position_table_), bucket, 0), {2, 0, 1});
}

// query [samples, position, head, feature]; keys and values may have fewer heads. -> [samples, position, features]
Value StepBuilder::attended(const Block& block, Value query, Value key, Value value) {
  const Dims q = tape_.dims(query), k = tape_.dims(key);
  const std::size_t from = tape_.begin_again();
  const std::int64_t groups = k[2], each = q[2] / groups;
  const Value grouped = tape_.reshape(query, {q[0], q[1], groups, each, q[3]});
  // [samples, group, query, head of group, key] -> [samples, group, head of group, query, key]
  Value scores = tape_.transpose(tape_.dot(grouped, key, {{4}, {3}, {0, 2}, {0, 2}}), {0, 1, 3, 2, 4});
  if (block.scaled) scores = tape_.scaled(scores, 1 / std::sqrt(static_cast<double>(q[3])));
  const Dims all = tape_.dims(scores);
  if (block.position_buckets > 0) {
    const Value bias = tape_.reshape(position_bias(block, q[1], k[1]), {groups, each, q[1], k[1]});
    scores = tape_.add(scores, tape_.broadcast(bias, all, {1, 2, 3, 4}));
  }
  scores = masked(block, scores, q[1], k[1]);
  const Value weights = dropped(as_compute(softmax(tape_.convert(scores, Type::kF32))), model_.attention_dropout);
  // [samples, group, head of group, query, feature]
  const Value sums = tape_.dot(weights, value, {{4}, {1}, {0, 1}, {0, 2}});
  const Value out = tape_.reshape(tape_.transpose(sums, {0, 3, 1, 2, 4}), {q[0], q[1], q[2] * tape_.dims(value)[3]});
  if (settings_.remat == Remat::kSelective) tape_.end_again(from);
  return out;
}

Value StepBuilder::attention(const Block& b, Value x) {
  Value out = kNoValue;
  in(b.cross ? "cross_attention" : "attention", [&] {
    const Value other = b.cross ? encoded_ : x;
    const auto heads = [&](Value of, std::int64_t count, std::int64_t size) {
      const Dims dims = tape_.dims(of);
      return tape_.reshape(of, {dims[0], dims[1], count, size});
    };
    Value query = kNoValue, key = kNoValue, value = kNoValue;
    if (b.one_product && !b.cross) {
      // Head by head, as frameworks lay it out that split it over devices: the query heads of each key, it, its value.
      const std::int64_t each = b.heads / b.kv_heads, queries = each * b.head_size, keys = queries + b.head_size;
      const std::int64_t all = keys + b.value_size;
      const Value three = heads(linear(x, "qkv", b.kv_heads * all, b.query_bias), b.kv_heads, all);
      const Dims dims = tape_.dims(three);
      query = tape_.reshape(tape_.slice(three, 3, 0, queries), {dims[0], dims[1], b.heads, b.head_size});
      key = tape_.slice(three, 3, queries, keys);
      value = tape_.slice(three, 3, keys, all);
    } else {
      query = heads(linear(x, "query", b.heads * b.head_size, b.query_bias), b.heads, b.head_size);
      key = heads(linear(other, "key", b.kv_heads * b.head_size, b.query_bias), b.kv_heads, b.head_size);
      value = heads(linear(other, "value", b.kv_heads * b.value_size, b.query_bias), b.kv_heads, b.value_size);
    }
    if (b.head_norm) {
      query = norm("query_norm", query);
      key = norm("key_norm", key);
    }
    if (b.rotary) {
      const std::int64_t features = b.rotary_size > 0 ? b.rotary_size : b.head_size;
      query = rotated(query, features);
      key = rotated(key, features);
    }
    out = linear(attended(b, query, key, value), "output", tape_.dims(x)[2], b.bias);
  });
  return out;
}

// Queries, and keys with values, by way of few features (DeepSeek); a part of every key is the same for all heads.
Value StepBuilder::compressed_attention(const Block& b, Value x) {
  Value out = kNoValue;
  in("attention", [&] {
    const Dims dims = tape_.dims(x);
    const std::int64_t turned = b.rotary_size, still = b.head_size - turned;
    Value query = x;
    if (b.query_rank > 0) query = norm("query_norm", linear(x, "query_down", b.query_rank, b.bias));
    query =
        tape_.reshape(linear(query, "query", b.heads * b.head_size, false), {dims[0], dims[1], b.heads, b.head_size});
    const Value down = linear(x, "kv_down", b.kv_rank + turned, b.bias);
    const Value few = norm("kv_norm", tape_.slice(down, 2, 0, b.kv_rank));
    const Value both = tape_.reshape(linear(few, "kv", b.heads * (still + b.value_size), false),
                                     {dims[0], dims[1], b.heads, still + b.value_size});
    const Value shared = rotated(
        tape_.reshape(tape_.slice(down, 2, b.kv_rank, b.kv_rank + turned), {dims[0], dims[1], 1, turned}), turned);
    const Value of_all = tape_.broadcast(tape_.reshape(shared, {dims[0], dims[1], turned}),
                                         {dims[0], dims[1], b.heads, turned}, {0, 1, 3});
    const Value key = tape_.concatenate({of_all, tape_.slice(both, 3, 0, still)}, 3);
    const Value value = tape_.slice(both, 3, still, still + b.value_size);
    out = linear(attended(b, rotated(query, turned), key, value), "output", dims[2], b.bias);
  });
  return out;
}

Value StepBuilder::mlp(const Block& b, Value x, std::int64_t hidden) {
  Value out = kNoValue;
  in("mlp", [&] {
    Value inner = kNoValue;
    if (b.gated) {
      const Value gate = activated(b.activation, linear(x, "gate", hidden, b.bias));
      inner = tape_.multiply(gate, linear(x, "up", hidden, b.bias));
    } else {
      inner = activated(b.activation, linear(x, "up", hidden, b.bias));
    }
    out = linear(inner, "down", tape_.dims(x).back(), b.bias);
  });
  return out;
}

// Every token goes to the experts that score it highest. Of a sample the tokens are put in the order of their experts,
// and each expert takes an equal share of them, as if tokens were spread evenly.
Value StepBuilder::experts(const Block& b, Value x) {
  Value out = kNoValue;
  in("experts", [&] {
    const Dims dims = tape_.dims(x);
    const std::int64_t samples = dims[0], positions = dims[1], width = dims[2];
    const std::int64_t places = positions * b.chosen;
    const std::int64_t room = (places + b.experts - 1) / b.experts;  // of an expert
    const Value scores = tape_.convert(linear(x, "router", b.experts, false), Type::kF32);
    const Value shares = softmax(scores);
    const Array numbers{Type::kS32, tape_.dims(shares)};
    const Value best = tape_.slice(tape_.sort(shares, tape_.iota(numbers, 2), true).second, 2, 0, b.chosen);
    const Value chosen = tape_.take(shares, best, 2);
    const Value total = tape_.broadcast(tape_.reduce_sum(chosen, {2}), tape_.dims(chosen), {0, 1});
    const Value gates = tape_.reshape(tape_.divide(chosen, total), {samples, places});
    const Array flat{Type::kS32, {samples, places}};
    const Value order = tape_.sort(tape_.reshape(best, flat.dims), tape_.iota(flat, 1), false).second;
    const Value token = tape_.binary(Opcode::kDivide, order, tape_.filled(static_cast<double>(b.chosen), flat));
    const Value gate = as_compute(tape_.take(gates, order, 1));
    Value rows = tape_.pad(tape_.take(x, token, 1), 1, 0, room * b.experts - places);
    rows = tape_.reshape(rows, {samples, b.experts, room, width});
    // [expert, samples, room, feature] from here on
    const auto product = [&](Value of, std::int64_t expert_dim, const std::string& name, std::int64_t size) {
      Value y = kNoValue;
      in(name, [&] {
        const Value kernel = as_compute(weight("kernel", {b.experts, tape_.dims(of)[3], size}));
        y = tape_.dot(of, kernel, {{3}, {1}, {expert_dim}, {0}});
      });
      return y;
    };
    Value inner = activated(b.activation, product(rows, 1, b.gated ? "gate" : "up", b.hidden));
    if (b.gated) inner = tape_.multiply(inner, product(rows, 1, "up", b.hidden));
    Value back = tape_.transpose(product(inner, 0, "down", width), {1, 0, 2, 3});
    back = tape_.slice(tape_.reshape(back, {samples, b.experts * room, width}), 1, 0, places);
    back = tape_.multiply(back, tape_.broadcast(gate, tape_.dims(back), {0, 1}));
    out = tape_.put(tape_.filled(0, {tape_.type(x), dims}), token, back, 1);
    if (b.shared_hidden > 0) {
      in("shared", [&] { out = tape_.add(out, mlp(b, x, b.shared_hidden)); });
    }
  });
  return out;
}

Value StepBuilder::convolution(const Block& b, Value x) {
  Value out = kNoValue;
  in("convolution", [&] {
    const Value kernel = as_compute(weight("kernel", {b.kernel, b.kernel, tape_.dims(x)[3], b.channels}));
    out = tape_.convolution(x, kernel, b.stride);
    if (b.bias) out = tape_.add(out, along_last(as_compute(weight("bias", {b.channels})), tape_.dims(out)));
    out = activated(b.activation, out);
  });
  return out;
}

}  // namespace automap::architecture
