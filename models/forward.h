// The forward pass of small fully connected networks on the CPU, without any library: the fastest of a few variants is
// chosen at run time, and all of them give the same bits. Every output is one sum in a fixed order (vectors run over
// outputs, or over 16 interleaved parts of a narrow layer's sum), nothing is fused, and exp and log are our own.
// A policy therefore plans the same on every machine.
#pragma once

#include <cstddef>
#include <vector>

namespace automap::models {

enum class Isa { kGeneric, kAvx2, kAvx512 };
const char* to_string(Isa isa);  // "generic", "avx2", "avx512"
bool isa_supported(Isa isa);     // by this program and this processor
Isa best_isa();                  // the fastest supported

class ForwardNetwork {
 public:
  // Dense layers with ReLU of `hidden` sizes, then linear heads side by side on the last of them. weights: per layer
  // and head [in][out] row-major, then bias [out].
  ForwardNetwork(int inputs, const std::vector<int>& hidden, const std::vector<int>& heads, const float* weights);

  int inputs() const { return inputs_; }
  int outputs() const { return outputs_; }  // all heads together

  // inputs [count][inputs()], outputs [count][outputs()]: head after head.
  void run(const float* inputs, int count, float* outputs, Isa isa = best_isa()) const;

 private:
  struct Layer {
    int in = 0, out = 0;
    // Wide layers: panels of 32 outputs, [panels][in][32]. Narrow ones (fewer than 8 outputs): [out][padded in].
    std::vector<float> weights, bias;
    bool narrow = false;
  };
  static Layer pack(int in, int out, const float* weights, bool narrow);

  int inputs_ = 0, outputs_ = 0;
  int widest_ = 0;  // floats per row of activations
  std::vector<Layer> layers_, heads_;
};

// values[i] = base[i] + 0.1 log(1 + exp(values[i])), the error below 1e-7 of the larger.
void residual_softplus(const float* base, int count, float* values, Isa isa = best_isa());

// values[i] = base[i] + range[i * stride] / (1 + exp(-values[i])).
void between(const float* base, const float* range, int stride, int count, float* values, Isa isa = best_isa());

// The mean of a distribution over `atoms` points evenly on [low, high], from its logits: logits [count][atoms],
// means [count].
void categorical_mean(const float* logits, int count, int atoms, float low, float high, float* means,
                      Isa isa = best_isa());

}  // namespace automap::models
