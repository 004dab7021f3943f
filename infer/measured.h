// --measured-step: by what factor the estimate of a measured layout is off, whether that is usual, and what it
// corrects.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "plan/planners/measured_step.h"
#include "plan/planners/question.h"
#include "plan/planners/score.h"

namespace automap::infer {

// `layout` as it was `scored` on the question, whose times are not corrected yet. `software`: what runs the step, for
// people. Throws Error(kUsage) where the measurement is too far off to be of that layout and batch.
pipeline::MeasuredStep measured_step(const planners::Layout& layout, const planners::ScoredPlan& scored,
                                     const planners::Question& question, double measured_ms,
                                     const std::string& software);
// What the planner assumed of it, and that it does not fit although it ran: one sentence each.
std::vector<std::string> measured_warnings(const pipeline::MeasuredStep& step, const planners::ScoredPlan& scored);
planners::Correction correction_of(const pipeline::MeasuredStep& step);

// Estimate, measurement, factor and class, and what is corrected: for the head of a report.
std::string measured_text(const pipeline::MeasuredStep& step);
// What is corrected alone, among what the numbers rest on.
std::string correction_text(const pipeline::MeasuredStep& step);

}  // namespace automap::infer
