// Optima of the papers' form of the problem (fractional replicas, 1f1b, gradient sync behind the step, no optimizer,
// the full value) as the solver found them before stages knew anything else: recorded at commit edc5d4e.
#include <gtest/gtest.h>

#include <vector>

#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"

namespace automap::pipeline {
namespace {

TEST(ExactStored, PapersOptimaStayAsTheyWere) {
  // The optima of each problem, by stage count from 1 on; 0: no plan.
  const std::vector<std::vector<double>> stored = {
      {3617.8414781730135, 3832.3264133218149},
      {961.72804589173597, 554.89779776729165, 573.02157791579816, 596.38005397751965, 624.71745944823374},
      {1001.92732301618, 838.43289678252881, 846.01272319484247, 862.46133946283294, 896.30128213449507},
      {1161.2648857580366, 1030.878208703085, 978.04930000146635, 1017.2723768617159, 1057.0090394564197},
      {5219.5924033372039, 3544.9748043314175, 3157.0767573369858, 3141.1321263642458, 2885.4123811192881},
      {1414.7080897650508, 939.58164353792915, 900.79457672580349, 962.8423451506859},
      {0, 0, 0},
      {0, 2848.6107212614834, 2887.2590341100504, 2929.4453321428555, 2997.3111801759314},
      {0, 0, 0, 0, 0},
      {995.93605875086485, 1069.229883039493, 1139.7901561048566, 1236.8173490339498},
  };
  for (std::size_t seed = 0; seed < stored.size(); ++seed) {
    RandomProblemOptions kinds;
    kinds.min_servers = 1;
    kinds.max_servers = 3;
    kinds.min_devices = 2;
    kinds.max_devices = 5;
    kinds.with_allreduce = 0.8;
    kinds.heterogeneous = 0.4;
    kinds.with_latency = 0.3;
    kinds.with_memory_limit = 0.3;
    kinds.forward_heavy = 0.2;
    kinds.with_zeros = 0.2;
    const RandomProblem made = random_problem(seed, kinds);
    const Problem problem = made.problem();
    ExactOptions options;
    options.schedule = seed % 3 == 2 ? Schedule::k1f1bOverlap : Schedule::k1f1b;
    options.max_stages = 5;
    options.pivots = grid_pivots(problem.num_instructions(), 48);
    const ExactResult result = solve_exact(problem, options);
    ASSERT_EQ(result.by_stages.size(), stored[seed].size());
    for (std::size_t s = 0; s < stored[seed].size(); ++s) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " stages " << s + 1);
      const ExactStageResult& found = result.by_stages[s];
      EXPECT_TRUE(found.proven);
      ASSERT_EQ(found.plans.empty(), stored[seed][s] == 0);
      if (!found.plans.empty()) {
        EXPECT_NEAR(found.value_ms.front(), stored[seed][s], 1e-9 * stored[seed][s]);
      }
    }
  }
}

}  // namespace
}  // namespace automap::pipeline
