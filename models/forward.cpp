#include "models/forward.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "common/base/check.h"

// This file is compiled with -ffp-contract=off (CMakeLists.txt): a fused multiply-add rounds once where others round
// twice.

namespace automap::models {

namespace {

constexpr int kPanel = 32;  // outputs computed together
constexpr int kParts = 16;  // partial sums of a narrow layer
constexpr int kRows = 64;   // after-states between two layers; their activations stay in the cache
constexpr int kNarrow = 8;

struct Kernels {
  void (*dense)(const float* x, std::size_t x_stride, int rows, const float* weights, const float* bias, int in,
                int panels, bool relu, float* y, std::size_t y_stride);
  void (*dots)(const float* x, std::size_t x_stride, int rows, const float* weights, const float* bias, int in, int out,
               float* y, std::size_t y_stride);
  void (*softplus)(const float* base, int count, float* values);
  void (*between)(const float* base, const float* range, int stride, int count, float* values);
  void (*mean)(const float* logits, int count, int atoms, float low, float high, float* means);
};

int rounded_up(int value, int to) {
  return (value + to - 1) / to * to;
}

namespace generic {
#define AUTOMAP_VEC_BYTES 16
#include "models/forward_kernels.inc"
#undef AUTOMAP_VEC_BYTES
}  // namespace generic

// By hand rather than with target_clones: that needs ifunc, which sanitizers and clang do not take.
#if defined(__x86_64__)
#define AUTOMAP_X86_KERNELS 1
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace avx2 {
#define AUTOMAP_VEC_BYTES 32
#include "models/forward_kernels.inc"
#undef AUTOMAP_VEC_BYTES
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
#endif
namespace avx512 {
#define AUTOMAP_VEC_BYTES 64
#include "models/forward_kernels.inc"
#undef AUTOMAP_VEC_BYTES
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

const Kernels& kernels(Isa isa) {
  AM_DCHECK(isa_supported(isa));
#ifdef AUTOMAP_X86_KERNELS
  if (isa == Isa::kAvx512) return avx512::kKernels;
  if (isa == Isa::kAvx2) return avx2::kKernels;
#endif
  static_cast<void>(isa);
  return generic::kKernels;
}

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    default: return "generic";
  }
}

bool isa_supported(Isa isa) {
#ifdef AUTOMAP_X86_KERNELS
  if (isa == Isa::kAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  }
  if (isa == Isa::kAvx2) return __builtin_cpu_supports("avx2");
#endif
  return isa == Isa::kGeneric;
}

Isa best_isa() {
  static const Isa best = isa_supported(Isa::kAvx512) ? Isa::kAvx512
                          : isa_supported(Isa::kAvx2) ? Isa::kAvx2
                                                      : Isa::kGeneric;
  return best;
}

ForwardNetwork::Layer ForwardNetwork::pack(int in, int out, const float* weights, bool narrow) {
  Layer layer;
  layer.in = in;
  layer.out = out;
  layer.narrow = narrow;
  const std::size_t rows = static_cast<std::size_t>(in), columns = static_cast<std::size_t>(out);
  const float* bias = weights + rows * columns;
  if (narrow) {
    const std::size_t padded = static_cast<std::size_t>(rounded_up(in, kParts));
    layer.weights.assign(columns * padded, 0);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t o = 0; o < columns; ++o) layer.weights[o * padded + i] = weights[i * columns + o];
    }
    layer.bias.assign(bias, bias + columns);
  } else {
    const std::size_t padded = static_cast<std::size_t>(rounded_up(out, kPanel));
    layer.weights.assign(rows * padded, 0);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t o = 0; o < columns; ++o) {
        layer.weights[(o / kPanel * rows + i) * kPanel + o % kPanel] = weights[i * columns + o];
      }
    }
    layer.bias.assign(padded, 0);
    std::copy(bias, bias + columns, layer.bias.begin());
  }
  return layer;
}

ForwardNetwork::ForwardNetwork(int inputs, const std::vector<int>& hidden, const std::vector<int>& heads,
                               const float* weights)
    : inputs_(inputs) {
  int in = inputs;
  widest_ = rounded_up(inputs, kPanel);
  const auto add = [&](std::vector<Layer>& layers, int out, bool narrow) {
    layers.push_back(pack(in, out, weights, narrow));
    weights += (static_cast<std::size_t>(in) + 1) * static_cast<std::size_t>(out);
    widest_ = std::max(widest_, rounded_up(out, kPanel));
  };
  for (const int out : hidden) {
    add(layers_, out, false);
    in = out;
  }
  for (const int out : heads) {
    add(heads_, out, out < kNarrow);
    outputs_ += out;
  }
}

void ForwardNetwork::run(const float* inputs, int count, float* outputs, Isa isa) const {
  const Kernels& kernel = kernels(isa);
  const std::size_t stride = static_cast<std::size_t>(widest_);
  const std::size_t block = stride * static_cast<std::size_t>(std::min(count, kRows));
  constexpr std::size_t kOnStack = 2 * 64 * kRows;
  float on_stack[kOnStack];
  std::unique_ptr<float[]> on_heap;
  float* buffer = on_stack;
  if (2 * block > kOnStack) {
    on_heap.reset(new float[2 * block]);
    buffer = on_heap.get();
  }
  float* const buffers[2] = {buffer, buffer + block};
  for (int first = 0; first < count; first += kRows) {
    const int rows = std::min(kRows, count - first);
    const float* x = inputs + static_cast<std::size_t>(first) * static_cast<std::size_t>(inputs_);
    std::size_t x_stride = static_cast<std::size_t>(inputs_);
    int used = 0;
    if (layers_.empty()) {
      // Heads straight on the inputs: they want rows padded with zeros.
      for (int row = 0; row < rows; ++row) {
        float* to = buffers[0] + static_cast<std::size_t>(row) * stride;
        std::copy(x, x + inputs_, to);
        std::fill(to + inputs_, to + stride, 0.0f);
        x += inputs_;
      }
      x = buffers[0];
      x_stride = stride;
      used = 1;
    }
    for (const Layer& layer : layers_) {
      float* y = buffers[used];
      kernel.dense(x, x_stride, rows, layer.weights.data(), layer.bias.data(), layer.in,
                   static_cast<int>(layer.bias.size()) / kPanel, true, y, stride);
      x = y;
      x_stride = stride;
      used = 1 - used;
    }
    float* out = outputs + static_cast<std::size_t>(first) * static_cast<std::size_t>(outputs_);
    for (const Layer& head : heads_) {
      if (head.narrow) {
        kernel.dots(x, x_stride, rows, head.weights.data(), head.bias.data(), rounded_up(head.in, kParts), head.out,
                    out, static_cast<std::size_t>(outputs_));
      } else {
        float* y = buffers[used];
        kernel.dense(x, x_stride, rows, head.weights.data(), head.bias.data(), head.in,
                     static_cast<int>(head.bias.size()) / kPanel, false, y, stride);
        for (int row = 0; row < rows; ++row) {
          const float* from = y + static_cast<std::size_t>(row) * stride;
          std::copy(from, from + head.out, out + static_cast<std::size_t>(row) * static_cast<std::size_t>(outputs_));
        }
      }
      out += head.out;
    }
  }
}

void between(const float* base, const float* range, int stride, int count, float* values, Isa isa) {
  kernels(isa).between(base, range, stride, count, values);
}

void residual_softplus(const float* base, int count, float* values, Isa isa) {
  kernels(isa).softplus(base, count, values);
}

void categorical_mean(const float* logits, int count, int atoms, float low, float high, float* means, Isa isa) {
  kernels(isa).mean(logits, count, atoms, low, high, means);
}

}  // namespace automap::models
