// How long single kernels take on a device: a roofline with overlap, and matrix products whose efficiency depends on
// the shape (docs/device-model.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "common/graph/graph.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_cost.h"
#include "common/machine/device.h"

namespace automap::profile {

// Vector work per element, in units of one FP32 operation.
constexpr double kTranscendentalOperations = 8;
constexpr double kDivideOperations = 4;
// How much of the shorter of computing and moving data hides behind the longer.
constexpr double kOverlap = 0.95;

// Milliseconds a kernel computes and moves data.
struct Work {
  double compute_ms = 0;
  double memory_ms = 0;

  double sum() const { return compute_ms + memory_ms; }
  double overlapped() const { return sum() - kOverlap * std::min(compute_ms, memory_ms); }
};

class KernelModel {
 public:
  // `cost` is of `graph`; all must stay alive.
  KernelModel(const graph::Graph& graph, const graph::ModuleCost& cost, const machine::DeviceModel& device)
      : graph_(graph),
        cost_(cost),
        device_(device),
        vector_tflops_(device.matmul_tflops("f32")),
        wide_tflops_(device.matmul_tflops("f64")) {}

  double memory_ms(double moved_bytes) const {
    return moved_bytes / (device_.memory_gbytes_per_s * device_.memory_efficiency) * 1e-6;
  }
  // FP32 operations on the vector units; those of f64 shapes are slower.
  double vector_ms(double operations, const graph::Shape& shape) const;
  double launch_ms() const { return device_.launch_us * 1e-3; }

  Work reduce_work(graph::InstructionId id) const;
  // Of an instruction that is a kernel of its own and calls nothing that takes time. `first_is_constant`: its first
  // operand is made of constants, and has to be written before it is updated in place.
  Work kernel_work(graph::InstructionId id, bool first_is_constant) const;
  // `flops` in the type that the matrix product `id` computes in, at `share` of the peak.
  double product_ms(graph::InstructionId id, double flops, double share) const;
  // Of a collective that the module contains: ring formulas at the device's link.
  double collective_ms(graph::InstructionId id) const;

 private:
  std::size_t at(graph::InstructionId id) const { return static_cast<std::size_t>(id); }
  double elements(graph::InstructionId id) const { return static_cast<double>(graph_.shape_of(id).num_elements); }
  double bytes(graph::InstructionId id) const { return static_cast<double>(graph_.shape_of(id).bytes); }
  double operand_bytes(graph::InstructionId id) const;
  double tensor_ms(double flops, std::string_view type, double share) const;
  double dot_ms(graph::InstructionId id) const;
  bool wants_full_precision(graph::InstructionId id) const;
  double convolution_ms(graph::InstructionId id) const;
  bool slides_3x3(graph::InstructionId id, const graph::ConvolutionDimensions& dims) const;
  double header_count(std::string_view key) const;

  const graph::Graph& graph_;
  const graph::ModuleCost& cost_;
  const machine::DeviceModel& device_;
  double vector_tflops_, wide_tflops_;
};

// The share of the peak that one matrix product of `batch` [m, k] x [k, n] reaches, in (0, matmul_efficiency).
double matmul_share_of_peak(const machine::DeviceModel& device, double batch, double m, double n, double k);

}  // namespace automap::profile
