#include "plan/systems/rivals/galvatron.h"

#include <algorithm>
#include <utility>

namespace automap::rivals {
namespace {

constexpr double kGap = 0.002;  // largest t that differ by less are one

}  // namespace

std::optional<ChainPlan> galvatron_chain(const pipeline::Problem& problem, const std::vector<int>& ends, int max_stages,
                                         double gap) {
  const int devices = problem.num_devices();
  std::optional<ChainPlan> best;
  for (int stages = 1; stages <= std::min(devices, max_stages); ++stages) {
    if (devices % stages != 0) continue;
    const int size = devices / stages;
    const auto sizes = [size](int d0) { return d0 % size == 0 ? std::vector<int>{size} : std::vector<int>{}; };
    std::optional<ChainPlan> found = best_chain(problem, ends, sizes, stages, gap, Transfers::kCounted);
    if (found && (!best || found->objective_ms < best->objective_ms)) best = std::move(found);
  }
  return best;
}

Planner galvatron(const pipeline::Profile& profile, int max_stages) {
  return [ends = unit_ends(profile, kGalvatronUnits), max_stages](const pipeline::Problem& problem, double) {
    return galvatron_chain(problem, ends, max_stages, kGap);
  };
}

}  // namespace automap::rivals
