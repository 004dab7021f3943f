// Estimates the time of single kernels on a device: a roofline with overlap, and matrix products whose efficiency
// depends on the shape (docs/device-model.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

#include "common/graph/graph.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_cost.h"
#include "common/machine/device.h"

namespace automap::profile {

// Vector work per element, in units of one FP32 operation.
constexpr double kTranscendentalOperations = 8;
constexpr double kRandomOperations = 20;  // per random number of 32 bits
constexpr double kDivideOperations = 4;
// Winograd's F(4x4, 3x3): blocks of 4x4 results from 6x6 inputs take 36 multiplications instead of 144.
constexpr double kWinogradSaving = 144.0 / 36;
// The share of the shorter of computing and moving data that hides behind the longer, except in matrix products
// (DeviceModel::matmul_overlap).
constexpr double kOverlap = 0.95;

// Milliseconds a kernel computes and moves data.
struct Work {
  double compute_ms = 0;
  double memory_ms = 0;

  double overlap = kOverlap;

  double sum() const { return compute_ms + memory_ms; }
  double overlapped() const { return sum() - overlap * std::min(compute_ms, memory_ms); }
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

  double memory_ms(double moved_bytes) const { return memory_ms(moved_bytes, device_.memory_efficiency); }
  // FP32 operations on the vector units; those of f64 shapes are slower.
  double vector_ms(double operations, const graph::Shape& shape) const;
  double launch_ms() const { return device_.launch_us * 1e-3; }
  // The time of a kernel that works for `work_ms`: it includes the launch, and is at least a compiled step's host time
  // between two kernels. With slower hosts a pass waits as a whole (host_time.h).
  double kernel_ms(double work_ms) const {
    return std::max(work_ms + launch_ms(), std::min(device_.host_us, machine::kCompiledHostUs) * 1e-3);
  }

  Work reduce_work(graph::InstructionId id) const;
  // The work of an instruction that is a kernel of its own and calls nothing that takes time. `first_is_constant`: its
  // first operand is made of constants, and has to be written before it is updated in place.
  Work kernel_work(graph::InstructionId id, bool first_is_constant) const;
  // `flops` in the type that the matrix product `id` computes in, at `share` of the peak.
  double product_ms(graph::InstructionId id, double flops, double share) const;
  // The time of a collective that the module contains, in one server: as measured where the device's links are known,
  // else by ring formulas at its link (common/machine/collectives.h).
  double collective_ms(graph::InstructionId id) const;

 private:
  std::size_t at(graph::InstructionId id) const { return static_cast<std::size_t>(id); }
  double elements(graph::InstructionId id) const { return static_cast<double>(graph_.shape_of(id).num_elements); }
  double bytes(graph::InstructionId id) const { return static_cast<double>(graph_.shape_of(id).bytes); }
  double operand_bytes(graph::InstructionId id) const;
  double memory_ms(double moved_bytes, double efficiency) const {
    return moved_bytes / (device_.memory_gbytes_per_s * efficiency) * 1e-6;
  }
  double tensor_ms(double flops, std::string_view type, double share) const;
  double dot_ms(graph::InstructionId id) const;
  Work convolution_work(graph::InstructionId id, double moved_ms) const;
  // The work by Winograd's algorithm, which exists for 3x3 windows with stride one only; nullopt: another window.
  std::optional<Work> winograd_work(graph::InstructionId id, const graph::ConvolutionDimensions& dims,
                                    double direct_compute_ms, double moved_ms) const;
  double header_count(std::string_view key) const;

  const graph::Graph& graph_;
  const graph::ModuleCost& cost_;
  const machine::DeviceModel& device_;
  double vector_tflops_, wide_tflops_;
};

// The type of DeviceModel::peak_tflops in which a matrix product or convolution is computed: the wider operand decides,
// f32 is "tf32" unless operand_precision asks for more.
std::string_view matmul_type(const graph::Graph& graph, graph::InstructionId id);

// The share of the peak of its units that one matrix product of `batch` [m, k] x [k, n] in `type` reaches, in (0,
// MatmulEfficiency::share).
double matmul_share_of_peak(const machine::DeviceModel& device, std::string_view type, double batch, double m, double n,
                            double k);

}  // namespace automap::profile
