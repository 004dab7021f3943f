#include "infer/published.h"

#include <utility>
#include <vector>

#include "plan/rivals/alpa.h"
#include "plan/rivals/dapple.h"
#include "plan/rivals/pipedream.h"

namespace automap::infer {

PublishedPlan best_published(const rivals::RivalRequest& request) {
  const std::vector<const char*> names = {"PipeDream", "DAPPLE", "Alpa"};
  rivals::RivalPlan plan = best_over_splits(request, {rivals::pipedream(request.profile, request.max_stages),
                                                      rivals::dapple(request.profile, request.max_stages),
                                                      rivals::alpa(request.profile, request.max_stages)});
  if (!(plan.simulated_step_ms < request.below_ms)) return {};
  return {names[plan.planner], std::move(plan)};
}

}  // namespace automap::infer
