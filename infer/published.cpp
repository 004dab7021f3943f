#include "infer/published.h"

#include <utility>

#include "plan/rivals/alpa.h"
#include "plan/rivals/dapple.h"
#include "plan/rivals/pipedream.h"

namespace automap::infer {

PublishedPlan best_published(const rivals::RivalRequest& request) {
  const std::pair<const char*, rivals::RivalPlan (*)(const rivals::RivalRequest&)> planners[] = {
      {"PipeDream", rivals::plan_pipedream},
      {"DAPPLE", rivals::plan_dapple},
      {"Alpa", rivals::plan_alpa},
  };
  PublishedPlan best;
  double below_ms = request.below_ms;
  for (const auto& [name, planner] : planners) {
    rivals::RivalPlan plan =
        planner({request.profile, request.cluster, request.options, request.step, request.max_stages, below_ms});
    if (!plan.problem || !(plan.simulated_step_ms < below_ms)) continue;
    below_ms = plan.simulated_step_ms;
    best = {name, std::move(plan)};
  }
  return best;
}

}  // namespace automap::infer
