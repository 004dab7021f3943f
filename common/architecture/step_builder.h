// The training step of a model, written on a tape.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/architecture/model.h"
#include "common/architecture/tape.h"
#include "common/graph/graph.h"

namespace automap::architecture {

struct StepSettings {
  std::int64_t samples = 1;
  Type compute = Type::kF32;
  Optimizer optimizer = Optimizer::kAdamW;
  Remat remat = Remat::kNone;
};

class StepBuilder {
 public:
  StepBuilder(const Model& model, const StepSettings& settings) : model_(model), settings_(settings) {}

  // `source` names the model in errors.
  graph::Graph build(const std::string& source);
  // After build().
  double num_weights() const;

 private:
  struct Weight {
    std::string path;  // "['layers']['0']['attention']"
    Value value = kNoValue;
  };
  // Shift, scale and gate of a conditioned block; kNoValue: none.
  struct Modulation {
    Value shift = kNoValue, scale = kNoValue, gate = kNoValue;
  };

  // --- layers.cpp: what every part is made of ---
  void enter(const std::string& scope) { tape_.set_scope(scope); }
  void in(const std::string& part, const std::function<void()>& body);
  Value weight(const std::string& name, const Dims& dims);
  Value as_compute(Value x) { return tape_.convert(x, settings_.compute); }
  Value linear(Value x, const std::string& name, std::int64_t out, bool bias);
  Value along_last(Value vector, const Dims& dims);
  Value norm(const std::string& name, Value x);
  Value normalized(Value x);
  Value activated(Activation activation, Value x);
  Value softmax(Value x);
  Value cross_entropy(Value logits, Value labels);
  // x with a share `rate` of its values, drawn anew at every call, 0.
  Value dropped(Value x, double rate);

  // --- blocks.cpp: the four families ---
  Value block(const Block& block, Value x);
  Value attention(const Block& block, Value x);
  Value attended(const Block& block, Value query, Value key, Value value);
  Value compressed_attention(const Block& block, Value x);
  Value masked(const Block& block, Value scores, std::int64_t queries, std::int64_t keys);
  Value position_bias(const Block& block, std::int64_t queries, std::int64_t keys);
  Value rotated(Value x, std::int64_t features);
  Value mlp(const Block& block, Value x, std::int64_t hidden);
  Value experts(const Block& block, Value x);
  Value convolution(const Block& block, Value x);

  // --- step_builder.cpp: the whole ---
  Value embedded(const Stack& stack, bool first);
  Value patches();
  Value run(const Stack& stack, Value x);
  Value layer(const LayerGroup& group, Value x);
  Value loss_of(Value x);
  Value batch(const std::string& name, Array array);
  void update(const std::vector<Value>& gradients);

  const Model& model_;
  const StepSettings& settings_;
  Tape tape_;
  std::vector<Weight> weights_;
  std::vector<Value> results_, parameters_;  // new values, and of which parameter (kNoValue: of none)
  Value table_ = kNoValue;                   // of the tokens, for tied heads
  Value encoded_ = kNoValue;                 // what cross attention reads
  Value condition_ = kNoValue;
  Value position_table_ = kNoValue;  // of the stack, for biases by distance
  Value key_ = kNoValue;             // that the step's random bits are drawn by
  int drawn_ = 0;                    // how often they were
};

}  // namespace automap::architecture
