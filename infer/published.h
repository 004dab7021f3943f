// What published planners of pipelines say of the same question (plan/rivals), as candidates for the plan.
#pragma once

#include <string>

#include "plan/rivals/chain.h"

namespace automap::infer {

struct PublishedPlan {
  std::string name;        // "DAPPLE"
  rivals::RivalPlan plan;  // plan.problem is null where none is shorter than request.below_ms
};

// The best by simulation of PipeDream, DAPPLE and Alpa, the quick ones. Splits that cannot come below request.below_ms
// are left out.
PublishedPlan best_published(const rivals::RivalRequest& request);

}  // namespace automap::infer
