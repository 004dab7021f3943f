// Asks published planners of pipelines (plan/systems/rivals) the same question, and takes their answers as candidates
// for the plan.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "plan/planners/kinds.h"
#include "plan/systems/rivals/chain.h"

namespace automap::rivals {

struct PublishedPlan {
  std::string name;  // "DAPPLE"
  RivalPlan plan;    // plan.problem is null where none is shorter than below_ms
};

// The best by simulation of PipeDream, DAPPLE and Alpa, the quick ones. Splits that cannot come below below_ms are
// left out.
PublishedPlan best_published(const planners::Question& question,
                             double below_ms = std::numeric_limits<double>::infinity());

// The table of kinds of whole plans, with the best of these as a row of it: reported where it is shorter than the plan
// found.
std::vector<planners::KindRow> all_kinds();
// These, or none: where an answer stands alone.
std::vector<planners::KindRow> kinds_beside(bool explored);

}  // namespace automap::rivals
