// Extended: real profiles. AUTOMAP_CORPUS names the root of the corpus (its folder `profiles` is read).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>

#include "common/base/error.h"
#include "common/io/profile_file.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/planner.h"
#include "plan/planners/shipped_policy.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/plan/planners/rounding.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

// Lengths that differ by less are equal to the planner.
constexpr std::array<const char*, 3> kClusters = {"config-a", "config-b", "config-c"};

// One test per cluster, so that they run side by side, and every third profile in each: all of them take two minutes.
class PlannerCorpusOn : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Clusters, PlannerCorpusOn, testing::Range(std::size_t{0}, kClusters.size()));

TEST_P(PlannerCorpusOn, AutoIsNeverLongerInSimulationThanAnyPlannerOnRealProfiles) {
  const char* root = std::getenv("AUTOMAP_CORPUS");
  if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: real profiles are not planned";
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::filesystem::path(root) / "profiles")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".txt" && name.find("LICENSE") == std::string::npos) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_GT(paths.size(), kClusters.size());
  for (std::size_t p = GetParam(); p < paths.size(); p += kClusters.size()) {
    const std::string& path = paths[p];
    const pipeline::Profile profile = io::load_profile(path);
    SCOPED_TRACE(path + " on " + kClusters[GetParam()]);
    const pipeline::Problem problem(profile, machine::load_cluster(kClusters[GetParam()]), {});
    PlanRequest request;
    request.effort.units = WorkLimits::kNoEnd;
    request.schedules = {pipeline::Schedule::k1f1b, pipeline::Schedule::k1f1bOverlap};
    request.lower_bound = false;
    request.policy = shipped_policy(Objective::kValue);
    if (!request.policy) request.policy = random_policy();
    const PlanResult best = make_plan(problem, request);
    ASSERT_TRUE(best.plan) << best.infeasible;
    EXPECT_EQ(pipeline::infeasible_reason(problem, *best.plan), "");
    for (PlannerKind planner : all_planners()) {
      for (Objective objective : {Objective::kValue, Objective::kSimulated}) {
        PlanRequest single = request;
        single.planner = planner;
        single.objective = objective;
        const PlanResult other = make_plan(problem, single);
        if (other.plan) {
          EXPECT_LE(best.simulated_step_ms, other.simulated_step_ms * kRounding) << to_string(planner);
        }
      }
    }
    for (pipeline::Schedule schedule : request.schedules) {
      pipeline::ExactOptions exact;
      exact.schedule = schedule;
      exact.pivots = pipeline::grid_pivots(problem.num_instructions(), 128);
      exact.k_best = request.k_best;
      for (const pipeline::ExactStageResult& stage : pipeline::solve_exact(problem, exact).by_stages) {
        for (const pipeline::Plan& plan : stage.plans) {
          EXPECT_LE(best.simulated_step_ms, simulate_step_ms(problem, plan) * kRounding) << stage.stages << " stages";
        }
      }
    }
  }
}

TEST(PlannerCorpus, DefaultRequestsAnswerInTimeWithACertificate) {
  const char* root = std::getenv("AUTOMAP_CORPUS");
  if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: real profiles are not planned";
  const pipeline::Profile profile =
      io::load_profile((std::filesystem::path(root) / "profiles/dapple/bert-48-pbs-2.txt").string());
  for (const char* cluster : {"config-a", "config-c", "a100-4x8", "h200-2x8"}) {
    SCOPED_TRACE(cluster);
    // At most 0.6 s by counted work today, the same on every machine; and of the processor, which others may be using.
    const std::clock_t begin = std::clock();
    const PlanResult result = make_plan(pipeline::Problem(profile, machine::load_cluster(cluster), {}), PlanRequest());
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSanitized ? 40 : 4);
    EXPECT_LT(result.work_units, 2'000'000'000);
    ASSERT_TRUE(result.plan);
    EXPECT_GT(result.lower_bound_ms, 0);
    EXPECT_GE(result.gap, 0);
    EXPECT_LT(result.gap, 0.5);
    EXPECT_FALSE(result.limits.empty());
  }
}

}  // namespace
}  // namespace automap::planners
