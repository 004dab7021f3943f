// Problems small enough to try all plans of, and the least objective of all of them (plan/systems/rivals/chain.h).
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "common/base/numbers.h"
#include "common/pipeline/random_problem.h"
#include "plan/systems/rivals/chain.h"

namespace automap::rivals {

inline pipeline::RandomProblem small(std::uint64_t seed) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = 3;
  options.max_instructions = 8;
  options.min_servers = 1;
  options.max_servers = 3;
  options.min_devices = 1;
  options.max_devices = 3;
  options.whole = 0.7;
  options.heterogeneous = 0.3;
  options.with_memory_limit = 0.5;
  return pipeline::random_problem(seed, options);
}

// The least objective of all plans that begin behind p0 and d0 with exactly `left` stages.
inline double least(const pipeline::Problem& problem, const GroupSizes& sizes, Transfers transfers, int p0, int d0,
                    int left, double sum, double longest) {
  if (left == 0) {
    const bool all = p0 == problem.num_instructions() && d0 == problem.num_devices();
    return all ? sum + (problem.micro_batches() - 1) * longest : kInfinity;
  }
  double best = kInfinity;
  if (d0 == problem.num_devices()) return best;
  for (int p1 = p0 + 1; p1 <= problem.num_instructions(); ++p1) {
    for (const int size : sizes(d0)) {
      const double ms = stage_ms(problem, p0, p1, d0, d0 + size, left, transfers);
      if (ms == kInfinity) continue;
      best = std::min(best, least(problem, sizes, transfers, p1, d0 + size, left - 1, sum + ms, std::max(longest, ms)));
    }
  }
  return best;
}

inline std::vector<int> every_position(const pipeline::Problem& problem) {
  std::vector<int> ends;
  for (int p = 1; p <= problem.num_instructions(); ++p) ends.push_back(p);
  return ends;
}

inline planners::PlanRequest of_stages(int most) {
  planners::PlanRequest request;
  request.max_stages = most;
  return request;
}

}  // namespace automap::rivals
