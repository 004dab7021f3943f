#include <algorithm>

#include "common/base/numbers.h"
#include "plan/systems/placement/planning.h"
#include "plan/systems/placement/units.h"

namespace automap::placement {
namespace {

double fastest_ms(const Workload& workload, bool on_accelerators, double accelerator_ms, double cpu_ms) {
  double out = kInfinity;
  if (workload.accelerators > 0 && on_accelerators) out = accelerator_ms;
  if (workload.cpus > 0) out = std::min(out, cpu_ms);
  return out;
}

double longest_path(const Workload& workload) {
  std::vector<double> end(workload.nodes.size(), 0);
  std::vector<std::vector<int>> next(workload.nodes.size());
  for (const auto& [from, to] : workload.edges) next[static_cast<std::size_t>(from)].push_back(to);
  double out = 0;
  for (const int v : topological_order(workload)) {
    const Node& node = workload.nodes[static_cast<std::size_t>(v)];
    double& done = end[static_cast<std::size_t>(v)];
    done += fastest_ms(workload, node.on_accelerators, node.accelerator_ms, node.cpu_ms);
    out = std::max(out, done);
    for (const int w : next[static_cast<std::size_t>(v)]) {
      end[static_cast<std::size_t>(w)] = std::max(end[static_cast<std::size_t>(w)], done);
    }
  }
  return out;
}

// Every unit somewhere, and all of them on k accelerators and l cores that are busy all the time.
double least_load(const Workload& workload) {
  double largest = 0, total = 0, per_cpu = 0;
  for (const Unit& unit : colour_units(workload).units) {
    largest = std::max(largest, fastest_ms(workload, unit.on_accelerators, unit.accelerator_ms, unit.cpu_ms));
    if (!unit.on_accelerators || unit.accelerator_ms == 0) continue;
    total += unit.accelerator_ms;
    per_cpu = std::max(per_cpu, unit.cpu_ms > 0 ? unit.accelerator_ms / unit.cpu_ms : kInfinity);
  }
  const double capacity = workload.accelerators + (workload.cpus > 0 ? per_cpu * workload.cpus : 0);
  return capacity > 0 ? std::max(largest, total / capacity) : largest;
}

}  // namespace

double simple_bound_ms(const Workload& workload, Objective objective) {
  return objective == Objective::kLatency ? longest_path(workload) : least_load(workload);
}

}  // namespace automap::placement
