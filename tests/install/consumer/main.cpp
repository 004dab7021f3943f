// A program outside the project: plans a profile of two instructions with the installed library.
#include <cstdio>

#include "common/base/cli.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"

int main() {
  using namespace automap::pipeline;
  Profile profile;
  profile.model = "two instructions";
  profile.c_ms = {3, 3};
  profile.a_bytes = {1e6, 0};
  profile.w_bytes = {1e6, 1e6};
  profile.stash_bytes = {0, 0};
  ProblemOptions options;
  options.micro_batches = 2;
  const Problem problem(profile, load_cluster("config-a"), options);
  Plan plan;
  plan.cuts = {1};
  plan.device_cuts = {8};
  std::printf("%s: %d devices, V = %.6f ms, simulated %.6f ms\n", automap::version().c_str(), problem.num_devices(),
              value_ms(problem, plan), simulate_step_ms(problem, plan));
  return feasible(problem, plan) ? 0 : 1;
}
