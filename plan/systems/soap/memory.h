// The memory that a strategy needs on every device in training: weights, their gradients and the optimizer's slots, and
// the stash of the forward pass for the backward pass. The paper does not look at memory; its code since 2021 adds up
// inputs, outputs and weights per device and charges a penalty for memory above the capacity. Here:
//
// - Weights, gradients and slots of a part, once per device for all of its parts that hold the same ones.
// - Of an operator's results that the backward pass reads, each part its share: parts are of equal size.
// - The share of those that a device was sent, once per message (task_graph.h): it is kept there until its backward
//   pass, too.
// - Not here: workspaces, frozen weights, fragments. Peaks are those of a step that keeps everything until it ends.
#pragma once

#include <vector>

#include "plan/systems/soap/machine_links.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

struct DeviceMemory {
  double weight_bytes = 0, gradient_bytes = 0, slot_bytes = 0, kept_bytes = 0;
  double bytes() const { return weight_bytes + gradient_bytes + slot_bytes + kept_bytes; }
};

// By device. Worked case: two devices, one operator with 8 bytes of weights, 8 of gradients, 16 of slots and 4 kept, in
// two parts along samples: each device holds 8 + 8 + 16 + 2.
std::vector<DeviceMemory> memory_of(const Space& space, const Strategy& strategy, const MachineLinks& machine);

// The device that is nearest to, or furthest above, its capacity.
struct Fullest {
  std::int32_t device = 0;
  double bytes = 0, capacity_bytes = 0;
  double share() const { return bytes / capacity_bytes; }
  bool fits() const { return bytes <= capacity_bytes; }
};
Fullest fullest_of(const std::vector<DeviceMemory>& memory, const MachineLinks& machine);

// The same sum, kept up to date while one operator after the other changes, for a search within memory.
class MemoryTally {
 public:
  // Both must stay alive.
  MemoryTally(const Space& space, const MachineLinks& machine, Strategy strategy);
  void change(OperatorId op, const Config& config);
  // Above the capacities, of all devices together.
  double missing_bytes() const;

 private:
  void add(OperatorId op, double sign);  // and its edges
  const Space& space_;
  const MachineLinks& machine_;
  Strategy strategy_;
  std::vector<double> bytes_;
};

}  // namespace automap::soap
