#include "plan/systems/rivals/pipedream.h"

#include <algorithm>
#include <utility>

#include "common/base/numbers.h"
#include "common/pipeline/cost.h"

namespace automap::rivals {
namespace {

using pipeline::Problem;

// The best first stage from a unit and a device on.
struct Choice {
  double slowest_ms = kInfinity;  // of it and all behind it
  int u1 = 0, d1 = 0, variant = 0;
};

}  // namespace

double pipedream_stage_ms(const Problem& problem, int p0, int p1, int d0, int d1, int* variant) {
  const pipeline::DeviceGroup& group = problem.group(d0, d1);
  if (!group.valid) return kInfinity;
  const int behind = problem.num_devices() - d0, here = d1 - d0;
  const int in_flight = std::min(problem.micro_batches(), (behind + here - 1) / here);
  const bool needs_variable = problem.stages_need_variables(d1 < problem.num_devices() || d0 > 0 ? 2 : 1);
  const auto ms_of = [&](int v) { return problem.compute_ms(p0, p1, group, v) + problem.sync_ms(p0, p1, group, v); };
  return least_of_variants(problem, p0, p1, group, in_flight, needs_variable, ms_of, variant);
}

double pipedream_send_ms(const Problem& problem, int p, int d0, int d1) {
  return 2 * problem.transfer_ms(p, d0, d1, std::min(problem.num_devices(), d1 + (d1 - d0)));
}

std::optional<ChainPlan> pipedream_chain(const Problem& problem, const std::vector<int>& ends, int max_stages,
                                         double below_ms) {
  const int units = static_cast<int>(ends.size()), devices = problem.num_devices();
  const int most_stages = std::min({max_stages, units, devices});
  const auto start = [&](int unit) { return unit == 0 ? 0 : ends[at(unit - 1)]; };
  const auto state = [&](int left, int unit, int device) {
    return (at(left) * at(units) + at(unit)) * at(devices) + at(device);
  };
  std::vector<Choice> best(state(most_stages + 1, 0, 0));  // by stages left, first unit and device
  for (int u0 = units; u0-- > 0;) {
    for (int d0 = devices; d0-- > 0;) {
      for (const int size : problem.group_sizes()) {
        const int d1 = d0 + size;
        if (d1 > devices) break;
        if (!problem.group(d0, d1).valid) continue;
        const bool last = d1 == devices;
        for (int u1 = last ? units : u0 + 1; u1 <= units - (last ? 0 : 1); ++u1) {
          if (hopeless_stage(problem, start(u0), start(u1), problem.group(d0, d1), below_ms)) break;
          Choice one{0, u1, d1, 0};
          one.slowest_ms = pipedream_stage_ms(problem, start(u0), start(u1), d0, d1, &one.variant);
          if (one.slowest_ms == kInfinity) continue;
          if (u1 == units) {
            Choice& here = best[state(1, u0, d0)];
            if (one.slowest_ms < here.slowest_ms) here = one;
            continue;
          }
          one.slowest_ms = std::max(one.slowest_ms, pipedream_send_ms(problem, start(u1), d0, d1));
          for (int left = 2; left <= most_stages; ++left) {
            Choice& here = best[state(left, u0, d0)];
            const double ms = std::max(one.slowest_ms, best[state(left - 1, u1, d1)].slowest_ms);
            if (ms < here.slowest_ms) here = {ms, u1, d1, one.variant};
          }
        }
      }
    }
  }
  int stages = 0;
  ChainPlan found;
  found.objective_ms = kInfinity;
  for (int count = 1; count <= most_stages; ++count) {
    const double ms = best[state(count, 0, 0)].slowest_ms;
    if (ms < found.objective_ms) {
      found.objective_ms = ms;
      stages = count;
    }
  }
  if (stages == 0) return std::nullopt;
  found.plan.schedule = pipeline::Schedule::k1f1b;
  for (int left = stages, unit = 0, device = 0; left >= 1; --left) {
    const Choice& one = best[state(left, unit, device)];
    found.plan.variants.push_back(static_cast<std::uint8_t>(one.variant));
    unit = one.u1;
    device = one.d1;
    if (left == 1) break;
    found.plan.cuts.push_back(start(unit));
    found.plan.device_cuts.push_back(device);
  }
  // PipeDream keeps fewer micro-batches in flight in front of small stages than a synchronous schedule does.
  if (!pipeline::feasible(problem, found.plan)) {
    found.plan.schedule = pipeline::Schedule::kAdaptive;
    if (!pipeline::feasible(problem, found.plan)) return std::nullopt;
  }
  return found;
}

Planner pipedream(const pipeline::Profile& profile, int max_stages) {
  return [ends = unit_ends(profile, kPipeDreamUnits), max_stages](const Problem& problem, double below_ms) {
    return pipedream_chain(problem, ends, max_stages, below_ms);
  };
}

}  // namespace automap::rivals
