#include "plan/planners/bounds.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace automap::planners {

BoundScope Bounds::scope(int all_devices) const {
  // Of each width: the micro-batches considered on each number of devices.
  std::map<int, std::map<int, std::set<double>>> of_widths;
  std::set<double> all;
  std::set<int, std::greater<>> counts;
  for (const StepSize& one : considered) {
    const int devices = one.devices > 0 ? one.devices * one.width : all_devices;
    counts.insert(devices);
    of_widths[one.width][devices].insert(one.samples);
    all.insert(one.samples);
  }
  BoundScope scope;
  for (const int devices : counts) {
    const bool whole = std::all_of(of_widths.begin(), of_widths.end(), [&](const auto& of_width) {
      const auto& [width, on] = of_width;
      const auto sizes = on.find(devices);
      return sizes == on.end() ? devices % width != 0 : sizes->second == all;
    });
    (whole ? scope.devices : scope.devices_in_part).push_back(devices);
  }
  return scope;
}

void Bounds::include(const StepSize& size, double least_ms, const std::string& how) {
  if (std::find(considered.begin(), considered.end(), size) != considered.end()) return;
  considered.push_back(size);
  if (value_ms > least_ms) method = how;
  value_ms = std::min(value_ms, least_ms);
  simulated_ms = std::min(simulated_ms, least_ms);
}

void Bounds::hold(double step_ms, double simulated_step_ms) {
  value_ms = std::min(value_ms, step_ms);
  simulated_ms = std::min(simulated_ms, simulated_step_ms);
}

}  // namespace automap::planners
