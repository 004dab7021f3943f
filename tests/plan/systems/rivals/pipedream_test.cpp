// PipeDream's program beside every plan there is.
#include "plan/systems/rivals/pipedream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/pipeline/cost.h"
#include "tests/plan/systems/rivals/small_chains.h"

namespace automap::rivals {
namespace {

using pipeline::Problem;

// The least slowest stage or transfer of all plans that begin behind p0 and d0 with exactly `left` stages.
double least_slowest(const Problem& problem, int p0, int d0, int left) {
  double best = kInfinity;
  for (int p1 = p0 + 1; p1 <= problem.num_instructions(); ++p1) {
    for (int d1 = d0 + 1; d1 <= problem.num_devices(); ++d1) {
      const bool last = left == 1;
      if (last != (p1 == problem.num_instructions()) || last != (d1 == problem.num_devices())) continue;
      const double ms = pipedream_stage_ms(problem, p0, p1, d0, d1);
      if (ms == kInfinity) continue;
      if (last) {
        best = std::min(best, ms);
      } else {
        const double sent = pipedream_send_ms(problem, p1, d0, d1);
        best = std::min(best, std::max({ms, sent, least_slowest(problem, p1, d1, left - 1)}));
      }
    }
  }
  return best;
}

TEST(PipeDream, FindsTheLeastOfItsObjective) {
  int found = 0, pipelines = 0, none = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Problem problem = small(seed).problem();
    double expected = kInfinity;
    for (int stages = 1; stages <= 4; ++stages) expected = std::min(expected, least_slowest(problem, 0, 0, stages));
    const std::optional<ChainPlan> plan = pipedream_chain(problem, every_position(problem), 4);
    // A plan that fits as PipeDream counts memory may not fit as the schedule does.
    if (!plan) {
      ++none;
      continue;
    }
    ++found;
    pipelines += plan->plan.num_stages() > 1;
    ASSERT_NEAR(plan->objective_ms, expected, 1e-9 * expected);
    ASSERT_TRUE(pipeline::feasible(problem, plan->plan));
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(pipelines, 50);
  EXPECT_LT(none, 150);
}

// Two layers of 6 ms on two devices without weights: one each takes 6 ms a micro-batch, both on both as much; behind a
// narrow link both on both is better.
TEST(PipeDream, LeavesACutThatIsTooWide) {
  pipeline::Profile profile;
  profile.model = "two";
  profile.device = "V100";
  profile.forward_fraction = 1.0 / 3;
  profile.micro_batch_size = 2;
  for (int i = 0; i < 2; ++i) {
    profile.c_ms.push_back(6);
    profile.a_bytes.push_back(20e6);  // 4 ms at 5 GB/s, there and back 8
    profile.w_bytes.push_back(i == 0 ? 4e6 : 0);
    profile.stash_bytes.push_back(0);
    profile.layer.push_back("layer " + std::to_string(i));
  }
  machine::Cluster cluster;
  cluster.name = "pair";
  cluster.devices["V100"].memory_gib = 16;
  cluster.servers.push_back({2, 1, 100, 5, "V100"});
  pipeline::ProblemOptions options;
  options.micro_batches = 4;
  options.memory = false;
  const std::vector<int> ends = {1, 2};
  const Problem wide(profile, cluster, options);
  const std::optional<ChainPlan> alone = pipedream_chain(wide, ends, 4);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->plan.num_stages(), 1);
  EXPECT_NEAR(alone->objective_ms, 6 + wide.sync_ms(0, 2, wide.group(0, 2)), 1e-9);
  profile.a_bytes = {1e6, 1e6};
  const Problem narrow(profile, cluster, options);
  const std::optional<ChainPlan> cut = pipedream_chain(narrow, ends, 4);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->plan.cuts, std::vector<int>{1});
  EXPECT_NEAR(cut->objective_ms, 6, 1e-9);
}

}  // namespace
}  // namespace automap::rivals
