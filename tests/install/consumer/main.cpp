// A program outside the project: values a plan of two instructions with the installed library, and lets it plan a chain
// of forty with a policy.
#include <cstdio>
#include <memory>
#include <vector>

#include "common/base/cli.h"
#include "common/machine/cluster.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"
#include "models/features.h"
#include "models/policy.h"
#include "plan/planners/planner.h"
#include "plan/planners/shipped_policy.h"

namespace {

using namespace automap::pipeline;

// The policy compiled in, or, in a build without one, a network that says nothing.
std::shared_ptr<const automap::models::Policy> some_policy() {
  if (auto shipped = automap::planners::shipped_policy(Objective::kValue)) return shipped;
  automap::models::Architecture architecture;
  architecture.features = automap::models::kFeatures;
  architecture.feature_version = automap::models::kFeatureVersion;
  architecture.hidden = {4};
  const std::vector<float> weights(automap::models::Policy::num_weights(architecture), 0.0f);
  return std::make_shared<const automap::models::Policy>(architecture, weights);
}

bool plans_with_a_policy() {
  Profile profile;
  profile.model = "a chain";
  profile.c_ms.assign(40, 2);
  profile.a_bytes.assign(40, 1e6);
  profile.w_bytes.assign(40, 1e6);
  profile.stash_bytes.assign(40, 0);
  const Problem problem(profile, automap::machine::load_cluster("config-b"), ProblemOptions());
  automap::planners::PlanRequest request;
  request.planner = automap::planners::PlannerKind::kPolicy;
  request.policy = some_policy();
  const automap::planners::PlanResult result = make_plan(problem, request);
  if (!result.plan) return false;
  std::printf("planned by %s: %d stages, V = %.6f ms\n", result.planner.c_str(), result.plan->num_stages(),
              result.step_ms);
  return feasible(problem, *result.plan);
}

}  // namespace

int main() {
  Profile profile;
  profile.model = "two instructions";
  profile.c_ms = {3, 3};
  profile.a_bytes = {1e6, 0};
  profile.w_bytes = {1e6, 1e6};
  profile.stash_bytes = {0, 0};
  ProblemOptions options;
  options.micro_batches = 2;
  const Problem problem(profile, automap::machine::load_cluster("config-a"), options);
  Plan plan;
  plan.cuts = {1};
  plan.device_cuts = {8};
  std::printf("%s: %d devices, V = %.6f ms, simulated %.6f ms\n", automap::version().c_str(), problem.num_devices(),
              value_ms(problem, plan), simulate_step_ms(problem, plan));
  return feasible(problem, plan) && plans_with_a_policy() ? 0 : 1;
}
