#include "plan/systems/rivals/alpa.h"

namespace automap::rivals {

std::vector<int> alpa_submeshes(const pipeline::Problem& problem, int d0) {
  const int devices = problem.num_devices(), server = problem.server_of_device(d0);
  std::vector<int> sizes;
  int end = d0;  // of d0's server
  while (end < devices && problem.server_of_device(end) == server) ++end;
  for (int size = 1; d0 + size <= end; size *= 2) sizes.push_back(size);
  if (d0 > 0 && problem.server_of_device(d0 - 1) == server) return sizes;
  for (; end <= devices; ++end) {
    const bool whole = end == devices || problem.server_of_device(end) != problem.server_of_device(end - 1);
    if (whole && (sizes.empty() || sizes.back() < end - d0)) sizes.push_back(end - d0);
  }
  return sizes;
}

Planner alpa(const pipeline::Profile& profile, int max_stages) {
  return [ends = unit_ends(profile, kAlpaUnits), max_stages](const pipeline::Problem& problem, double below_ms) {
    const auto sizes = [&](int d0) { return alpa_submeshes(problem, d0); };
    return best_chain(problem, ends, sizes, max_stages, kAlpaGap, Transfers::kIgnored, below_ms);
  };
}

}  // namespace automap::rivals
