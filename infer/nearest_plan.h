// Finds the shortest plan that a framework can run, where it cannot run the plan that answers the question.
#pragma once

#include <optional>
#include <string>

#include "common/pipeline/plan_json.h"
#include "infer/input.h"
#include "plan/emit/to_type.h"
#include "plan/planners/question.h"

namespace automap::infer {

struct NearestPlan {
  std::optional<pipeline::PlanDocument> document;  // with what is typed to run it
  bool one_stage = false;                          // the question had to be asked for one stage
  std::string why;                                 // there is none
};

// Asks the question, whose framework is the one, again: as it is, and where the framework cannot be told the answer,
// for one stage. `explored`: plans of other kinds are looked at, too. Stopped by a signal (StopToken).
NearestPlan nearest_plan(planners::Question question, const PlanInput& input, bool explored, bool sequence_parallel,
                         const emit::EmitOptions& options);

}  // namespace automap::infer
