// Estimates the times of all instructions of a module in three steps, which are shared as far as possible: the
// structure that holds at any extents (ModuleStructure), the sizes that follow from the extents (measure), and the
// times on the device (estimate).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/hlo_cost.h"
#include "common/machine/device.h"
#include "profile/instruction_times.h"
#include "profile/kernel_model.h"
#include "profile/module_structure.h"

namespace automap::profile {

class TimeEstimator {
 public:
  // `structure` is that of `graph` or of the same module with other extents. Both must stay alive; measure() comes
  // before all else.
  TimeEstimator(const graph::Graph& graph, const ModuleStructure& structure);

  // The extents of `graph` are new, or have changed. Throws as graph::analyze_cost.
  void measure();
  const graph::ModuleCost& cost() const { return cost_; }
  const ModuleStructure& structure() const { return structure_; }
  // The instruction writes an array of its own to memory, at these extents.
  bool is_stored(graph::InstructionId id) const;

  // Throws Error(kData) when an attribute that the estimate needs is malformed.
  InstructionTimes estimate(const machine::DeviceModel& device) const;
  // The times alone: InstructionTimes::ms, InstructionTimes::host_ms.
  std::vector<double> estimate_ms(const machine::DeviceModel& device) const;
  InstructionTimes::Host estimate_host_ms(const machine::DeviceModel& device) const;

 private:
  friend class DeviceEstimate;

  // The data movement and compute of the loops and reductions of a region, indexed as it is.
  struct Sizes {
    std::vector<char> stored;             // written to memory
    std::vector<double> recompute_bytes;  // read to make a value that is not stored
    std::vector<std::int32_t> cluster;    // the kernel that a loop is part of, by one of its instructions
    std::vector<double> moved_bytes;      // by a loop or reduction in that kernel
    std::vector<double> operations;       // vector work of a loop
  };
  // The totals of a computation that is one fused loop.
  struct Summary {
    double operations = 0;                // vector work of one execution
    double drawn_bytes = 0;               // random numbers made in it
    std::vector<double> parameter_bytes;  // read of each parameter
  };

  std::size_t at(graph::InstructionId id) const { return static_cast<std::size_t>(id); }
  graph::Opcode opcode(graph::InstructionId id) const { return graph_.instruction(id).opcode; }
  double bytes(graph::InstructionId id) const { return bytes_[at(id)]; }
  double vector_operations(graph::InstructionId id) const;
  double drawn_bytes(graph::InstructionId id) const;
  double read_bytes(graph::InstructionId reader, graph::InstructionId value) const;
  bool is_fused(const Region& region, const Sizes& sizes, std::size_t i) const;
  void summarize(graph::ComputationId c);
  void decide_stores(graph::ComputationId c);
  bool is_stored(const Region& region, const Sizes& sizes, std::size_t i);
  void join_kernels(const Region& region, Sizes& sizes);
  void join_siblings(const Region& region, Sizes& sizes);
  void find_moves(const Region& region, Sizes& sizes);

  const graph::Graph& graph_;
  const ModuleStructure& structure_;
  graph::ModuleCost cost_;
  std::vector<Sizes> sizes_;        // by computation; of regions
  std::vector<Summary> summaries_;  // by computation
  std::vector<std::int32_t> levels_;
  std::unordered_map<std::int32_t, std::int32_t> sibling_of_level_;
  std::vector<double> bytes_;  // by instruction: of its shape
};

// Time of every instruction of the module. Throws Error(kData) when an attribute that the estimate needs is malformed
// (hlo_attributes.h).
InstructionTimes estimate_times(const graph::Graph& graph, const machine::DeviceModel& device);

}  // namespace automap::profile
