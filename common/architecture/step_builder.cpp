#include "common/architecture/step_builder.h"

#include <cmath>
#include <utility>

#include "common/architecture/to_graph.h"

namespace automap::architecture {

using graph::Opcode;

Value StepBuilder::batch(const std::string& name, Array array) {
  return tape_.parameter("batch['" + name + "']", std::move(array));
}

// [samples, patch, features of a patch]
Value StepBuilder::patches() {
  const std::int64_t side = model_.image / model_.patch, patch = model_.patch, channels = model_.image_channels;
  const std::int64_t n = settings_.samples;
  const Value pixels = as_compute(batch("pixels", {Type::kF32, {n, model_.image, model_.image, channels}}));
  const Value cut = tape_.transpose(tape_.reshape(pixels, {n, side, patch, side, patch, channels}), {0, 1, 3, 2, 4, 5});
  return tape_.reshape(cut, {n, side * side, patch * patch * channels});
}

Value StepBuilder::embedded(const Stack& stack, bool first) {
  const std::int64_t n = settings_.samples;
  Value x = kNoValue;
  enter("embeddings");
  if (model_.input == InputKind::kImages) {
    x = as_compute(batch("pixels", {Type::kF32, {n, model_.image, model_.image, model_.image_channels}}));
    enter("");
    return x;
  }
  if (model_.input == InputKind::kPatches) {
    x = linear(patches(), "patch", model_.hidden, true);
    if (model_.class_token) {
      const Value token = as_compute(weight("class_token", {model_.hidden}));
      x = tape_.concatenate({tape_.broadcast(token, {n, 1, model_.hidden}, {2}), x}, 1);
    }
  } else {
    if (table_ == kNoValue) table_ = weight("tokens", {model_.vocabulary, model_.hidden});
    const Value ids = batch(first ? "tokens" : "target_tokens", {Type::kS32, {n, stack.sequence}});
    x = tape_.take(as_compute(table_), ids, 0);
  }
  const Dims dims = tape_.dims(x);
  if (model_.positions > 0) {
    const Value all = as_compute(weight("positions", {model_.positions, model_.hidden}));
    x = tape_.add(x, tape_.broadcast(tape_.slice(all, 0, 0, dims[1]), dims, {1, 2}));
  }
  if (model_.token_types > 0) {
    const Value types = weight("token_types", {model_.token_types, model_.hidden});
    const Value ids = batch("token_types", {Type::kS32, {n, dims[1]}});
    x = tape_.add(x, tape_.take(as_compute(types), ids, 0));
  }
  if (model_.embedding_norm) x = norm("norm", x);
  x = dropped(x, model_.dropout);
  if (model_.conditioned) {
    // The time of the noise as 256 waves, through two products, and the class.
    const Value waves = as_compute(batch("time_waves", {Type::kF32, {n, 256}}));
    const Value time = linear(activated(Activation::kSilu, linear(waves, "time_up", model_.hidden, true)), "time_down",
                              model_.hidden, true);
    const Value classes = as_compute(weight("classes", {model_.classes + 1, model_.hidden}));
    condition_ =
        activated(Activation::kSilu, tape_.add(time, tape_.take(classes, batch("classes", {Type::kS32, {n}}), 0)));
  }
  enter("");
  return x;
}

// One block of a layer with its norms. `around` scales its input and output, where the model is conditioned.
Value StepBuilder::layer(const LayerGroup& group, Value x) {
  const Dims dims = tape_.dims(x);
  std::vector<Value> modulations;
  if (model_.conditioned) {
    const auto parts = static_cast<std::int64_t>(3 * group.blocks.size());
    const Value all = linear(condition_, "modulation", parts * model_.hidden, true);
    for (std::int64_t i = 0; i < parts; ++i) {
      modulations.push_back(
          tape_.broadcast(tape_.slice(all, 1, i * model_.hidden, (i + 1) * model_.hidden), dims, {0, 2}));
    }
  }
  const Value whole = x;
  Value shared = kNoValue;
  std::map<std::string, int> seen;  // kinds of blocks in front
  for (std::size_t i = 0; i < group.blocks.size(); ++i) {
    const Block& one = group.blocks[i];
    const char* const kind = one.kind == BlockKind::kAttention     ? (one.cross ? "cross_attention" : "attention")
                             : one.kind == BlockKind::kConvolution ? "convolution"
                                                                   : "mlp";
    const int before = seen[kind]++;
    const std::string again = before == 0 ? "" : "_" + std::to_string(before);
    const std::string name = kind + again + "_norm";
    Value y = model_.parallel ? whole : x;
    if (model_.conditioned) {
      y = normalized(y);
      const Value scale = tape_.shifted(tape_.convert(modulations[3 * i + 1], tape_.type(y)), 1);
      y = as_compute(tape_.add(tape_.multiply(y, scale), tape_.convert(modulations[3 * i], tape_.type(y))));
    } else if (model_.norm == NormPlace::kBefore || model_.norm == NormPlace::kAround) {
      if (model_.parallel && model_.one_norm) {
        if (shared == kNoValue) shared = norm(name, y);
        y = shared;
      } else {
        y = norm(name, y);
      }
    }
    if (before == 0) {
      y = block(one, y);
    } else {
      in("again" + again, [&] { y = block(one, y); });
    }
    y = dropped(y, model_.dropout);
    if (model_.norm == NormPlace::kAround) y = norm(name + "_out", y);
    if (model_.norm == NormPlace::kAfter) y = norm(name, y);
    if (model_.conditioned) y = tape_.multiply(y, modulations[3 * i + 2]);
    // A convolution that changes the size of its images goes on alone.
    x = tape_.dims(y) == tape_.dims(x) ? tape_.add(x, y) : y;
    if (model_.norm == NormPlace::kBehind) x = norm(name, x);
  }
  return x;
}

Value StepBuilder::run(const Stack& stack, Value x) {
  position_table_ = kNoValue;
  std::int64_t number = 0;
  for (const LayerGroup& group : stack.groups) {
    for (std::int64_t i = 0; i < group.repeat; ++i) {
      const std::size_t from = tape_.begin_again();
      enter(stack.scope + "/" + std::to_string(number++));
      x = layer(group, x);
      if (settings_.remat == Remat::kLayer) tape_.end_again(from);
    }
  }
  enter("");
  if (model_.final_norm) x = norm(stack.scope == "encoder" ? "encoder_norm" : "norm", x);
  return x;
}

Value StepBuilder::loss_of(Value x) {
  const std::int64_t n = settings_.samples;
  const Dims dims = tape_.dims(x);
  if (model_.head == HeadKind::kNoise) {
    if (model_.conditioned) {
      enter("norm");
      const Value both = linear(condition_, "modulation", 2 * model_.hidden, true);
      const auto half = [&](std::int64_t i) {
        return tape_.convert(
            tape_.broadcast(tape_.slice(both, 1, i * model_.hidden, (i + 1) * model_.hidden), dims, {0, 2}),
            Type::kF32);
      };
      const Value y = tape_.convert(normalized(x), Type::kF32);
      x = as_compute(tape_.add(tape_.multiply(y, tape_.shifted(half(1), 1)), half(0)));
      enter("");
    }
    const std::int64_t features = model_.patch * model_.patch * model_.image_channels;
    // The noise, and how sure the model is of it.
    const Value guess = linear(x, "output", 2 * features, true);
    enter("loss");
    const Value noise = batch("noise", {Type::kF32, {n, dims[1], 2 * features}});
    const Value apart = tape_.subtract(tape_.convert(guess, Type::kF32), noise);
    const Value sum = tape_.reduce_sum(tape_.multiply(apart, apart), {0, 1, 2});
    return tape_.scaled(sum, 1 / static_cast<double>(tape_.at(apart).array.elements()));
  }
  if (model_.head == HeadKind::kClasses) {
    const std::int64_t rank = static_cast<std::int64_t>(dims.size());
    if (model_.class_token) {
      x = tape_.reshape(tape_.slice(x, 1, 0, 1), {n, dims[2]});
    } else {
      Dims places;
      double count = 1;
      for (std::int64_t i = 1; i + 1 < rank; ++i) {
        places.push_back(i);
        count *= static_cast<double>(dims[static_cast<std::size_t>(i)]);
      }
      x = tape_.scaled(tape_.reduce_sum(x, places), 1 / count);
    }
    const Value logits = linear(x, "output", model_.classes, true);
    enter("loss");
    return cross_entropy(logits, batch("labels", {Type::kS32, {n}}));
  }
  enter("output");
  if (model_.head_transform) {
    x = norm("norm", activated(Activation::kGelu, linear(x, "transform", model_.hidden, true)));
  }
  Value logits = kNoValue;
  if (model_.tied) {
    logits = tape_.dot(x, as_compute(table_), {{2}, {1}, {}, {}});
    if (model_.head_bias) {
      logits = tape_.add(logits, along_last(as_compute(weight("bias", {model_.vocabulary})), tape_.dims(logits)));
    }
  } else {
    logits = linear(x, "logits", model_.vocabulary, model_.head_bias);
  }
  enter("loss");
  return cross_entropy(logits, batch("labels", {Type::kS32, {n, dims[1]}}));
}

void StepBuilder::update(const std::vector<Value>& gradients) {
  const bool moments = settings_.optimizer != Optimizer::kSgd;
  const Array one{Type::kF32, {}};
  Value first = kNoValue, second = kNoValue;
  if (moments) {
    const Value count = tape_.parameter("opt_state[0].count", {Type::kS32, {}});
    const Value next = tape_.shifted(count, 1);
    results_.push_back(next);
    parameters_.push_back(count);
    const Value steps = tape_.convert(next, Type::kF32);
    const auto correction = [&](double rate) {
      return tape_.subtract(tape_.filled(1, one), tape_.binary(Opcode::kPower, tape_.filled(rate, one), steps));
    };
    first = correction(0.9);
    second = correction(0.999);
  }
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const Value w = weights_[i].value;
    const Array array = tape_.at(w).array;
    const Value g = gradients[i] == kNoValue ? tape_.filled(0, array) : gradients[i];
    const auto state = [&](const char* name) { return tape_.parameter(name + weights_[i].path, array); };
    const auto done = [&](Value value, Value of) {
      results_.push_back(value);
      parameters_.push_back(of);
    };
    Value step = kNoValue;
    if (moments) {
      const Value mean = state("opt_state[0].mu"), square = state("opt_state[0].nu");
      const Value new_mean = tape_.add(tape_.scaled(mean, 0.9), tape_.scaled(g, 0.1));
      const Value new_square = tape_.add(tape_.scaled(square, 0.999), tape_.scaled(tape_.multiply(g, g), 0.001));
      const auto spread = [&](Value x) { return tape_.broadcast(x, array.dims, {}); };
      const Value root = tape_.unary(Opcode::kSqrt, tape_.divide(new_square, spread(second)));
      step = tape_.divide(tape_.divide(new_mean, spread(first)), tape_.shifted(root, 1e-8));
      if (settings_.optimizer == Optimizer::kAdamW && array.rank() > 1) step = tape_.add(step, tape_.scaled(w, 0.1));
      done(new_mean, mean);
      done(new_square, square);
    } else {
      const Value trace = state("opt_state[0].trace");
      step = tape_.add(g, tape_.scaled(trace, 0.9));
      done(step, trace);
    }
    done(tape_.subtract(w, tape_.scaled(step, 1e-4)), w);
  }
}

double StepBuilder::num_weights() const {
  double sum = 0;
  for (const Weight& weight : weights_) sum += static_cast<double>(tape_.at(weight.value).array.elements());
  return sum;
}

graph::Graph StepBuilder::build(const std::string& source) {
  if (model_.attention_dropout > 0 || model_.dropout > 0) {
    // Four words, as JAX has keys: it takes no numbers of 64 bits unless asked to.
    key_ = tape_.bits_as(tape_.reshape(tape_.parameter("key", {Type::kU32, {4}}), {2, 2}), {Type::kU64, {2}});
  }
  Value x = kNoValue;
  for (std::size_t i = 0; i < model_.stacks.size(); ++i) {
    x = run(model_.stacks[i], embedded(model_.stacks[i], i == 0));
    if (i + 1 < model_.stacks.size()) encoded_ = x;
  }
  const Value loss = loss_of(x);
  enter("");
  std::vector<Value> by;
  for (const Weight& weight : weights_) by.push_back(weight.value);
  update(tape_.gradients(loss, by));
  std::vector<Result> results;
  for (std::size_t i = 0; i < results_.size(); ++i) results.push_back({results_[i], parameters_[i]});
  results.push_back({loss, kNoValue});
  return to_graph(tape_, results, source);
}

}  // namespace automap::architecture
