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

// `layout` as it was `scored` on the question, whose times are not corrected yet. `software`: whose_times() they are.
// Throws Error(kUsage) where the measurement is too far off to be of that layout and batch.
pipeline::MeasuredStep measured_step(const planners::Layout& layout, const planners::ScoredPlan& scored,
                                     const planners::Question& question, double measured_ms,
                                     const std::string& software);
// What the planner assumed of it, and that it does not fit although it ran: one sentence each.
std::vector<std::string> measured_warnings(const pipeline::MeasuredStep& step, const planners::ScoredPlan& scored);
// Why the correction is none of the question's times: other devices, other work or other software. Empty: it is.
std::string other_times(const pipeline::MeasuredStep& step, const planners::Question& question,
                        const std::string& software);
planners::Correction correction_of(const pipeline::MeasuredStep& step);
// That the plan uses more than its devices can do, by times that the measurement corrected; empty: it does not.
std::string beyond_peak(const pipeline::PlanUtilization& plan);

// Estimate, measurement, factor and class, and what is corrected: for the head of a report.
std::string measured_text(const pipeline::MeasuredStep& step);
// What is corrected alone, among what the numbers rest on.
std::string correction_text(const pipeline::MeasuredStep& step);

}  // namespace automap::infer
