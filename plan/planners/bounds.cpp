#include "plan/planners/bounds.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "common/machine/chosen_devices.h"

namespace automap::planners {

BoundScope Bounds::scope(const machine::Cluster& cluster) const {
  const int all_of_them = cluster.num_devices();
  // By width: the micro-batches considered on each number of devices.
  std::map<int, std::map<int, std::set<double>>> of_widths;
  std::set<double> all;
  std::set<int, std::greater<>> counts;
  for (const StepSize& one : considered) {
    const int devices = one.devices > 0 ? one.devices * one.width : all_of_them;
    counts.insert(devices);
    of_widths[one.width][devices].insert(one.samples);
    all.insert(one.samples);
  }
  // There is one choice of all devices of servers that are alike, and one of some devices of one server.
  const std::vector<int> alike = machine::alike_servers(cluster);
  const bool one_kind = std::all_of(alike.begin(), alike.end(), [](int first) { return first == 0; });
  BoundScope scope;
  scope.all = all_devices;
  for (const int devices : counts) {
    const bool one_choice = one_kind && (devices == all_of_them || alike.size() == 1);
    const bool whole =
        all_devices || (one_choice && std::all_of(of_widths.begin(), of_widths.end(), [&](const auto& of) {
                          const auto& [width, on] = of;
                          const auto sizes = on.find(devices);
                          return sizes == on.end() ? devices % width != 0 : sizes->second == all;
                        }));
    (whole ? scope.devices : scope.devices_in_part).push_back(devices);
  }
  return scope;
}

void Bounds::include(const StepSize& size, double least_ms, const std::string& how) {
  if (std::find(considered.begin(), considered.end(), size) != considered.end()) return;
  considered.push_back(size);
  if (open) return;
  if (value_ms > least_ms) method = how;
  value_ms = std::min(value_ms, least_ms);
  simulated_ms = std::min(simulated_ms, least_ms);
}

void Bounds::drop() {
  value_ms = simulated_ms = 0;
  method.clear();
  open = false;
  of_value.clear();
}

void Bounds::hold(double step_ms, double simulated_step_ms) {
  value_ms = std::min(value_ms, step_ms);
  simulated_ms = std::min(simulated_ms, simulated_step_ms);
}

}  // namespace automap::planners
