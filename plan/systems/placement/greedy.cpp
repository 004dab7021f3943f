#include "plan/systems/placement/baselines.h"
#include "plan/systems/placement/linearized.h"

namespace automap::placement {

std::optional<std::vector<int>> greedy(const Workload& workload, const Units& units) {
  std::vector<int> out(units.units.size(), -1);
  int accelerator = 0;
  double left = workload.memory_bytes;
  const std::vector<int> order = unit_orders(units, 1).front();
  for (const int u : order) {
    const Unit& unit = units.units[static_cast<std::size_t>(u)];
    const bool possible = unit.on_accelerators && unit.bytes <= workload.memory_bytes;
    if (possible && accelerator < workload.accelerators && unit.bytes > left) {
      ++accelerator;
      left = workload.memory_bytes;
    }
    int& device = out[static_cast<std::size_t>(u)];
    if (possible && accelerator < workload.accelerators) {
      device = accelerator;
      left -= unit.bytes;
    } else {
      if (workload.cpus == 0) return std::nullopt;
      device = workload.accelerators;  // the first core: of latency they are one pool
    }
  }
  return out;
}

std::optional<std::vector<int>> one_accelerator(const Workload& workload, const Units& units) {
  if (workload.accelerators == 0) return std::nullopt;
  for (const Unit& unit : units.units) {
    if (!unit.on_accelerators) return std::nullopt;
  }
  return std::vector<int>(units.units.size(), 0);
}

}  // namespace automap::placement
