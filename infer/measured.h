// --measured-step compares the estimate of a measured layout with the measurement, says if the factor between them is
// usual, and corrects times by it.
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
// Warnings, one sentence each: what the planner assumed about the layout, and that it does not fit although it ran.
std::vector<std::string> measured_warnings(const pipeline::MeasuredStep& step, const planners::ScoredPlan& scored);
// The reason why the correction does not apply to the question's times: other devices, other work or other software.
// Empty: it does.
std::string other_times(const pipeline::MeasuredStep& step, const planners::Question& question,
                        const std::string& software);
planners::Correction correction_of(const pipeline::MeasuredStep& step);
// A warning that the plan, by corrected times, uses more than its devices' peak; empty: it does not.
std::string beyond_peak(const pipeline::PlanUtilization& plan);

// Estimate, measurement, factor and class, and what is corrected: for the head of a report.
std::string measured_text(const pipeline::MeasuredStep& step);
// The line about the correction in the list of premises.
std::string correction_text(const pipeline::MeasuredStep& step);

}  // namespace automap::infer
