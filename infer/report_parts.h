// The parts of an answer's report: infer/report.cpp prints them one after the other, infer/explain.cpp one of them.
// Every part ends with a newline, or is empty. `width`: ReportOptions::width.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "infer/report.h"

namespace automap::infer {

// A table of the stages with their layers, devices and times.
std::string stage_table(const pipeline::PlanDocument& document, const pipeline::Problem& problem, int width);
// Bytes on each device of a stage, by part; parts that no stage has are left out.
std::string memory_table(const pipeline::PlanDocument& document, int width);
// The lower bounds on all plans, and the rules that cost much.
std::string bounds_text(const pipeline::PlanDocument& document);
std::string limits_text(const pipeline::PlanDocument& document);
// The expected errors of the numbers under the plan.
std::string estimates_text(const pipeline::PlanDocument& document);
// The partition of tensors over the devices of a replica.
std::string inside_replicas_text(const pipeline::PlanDocument& document);
// The effect on the plan of small errors in the numbers under it.
std::string sensitivity_text(const std::vector<pipeline::PlanSensitivity>& rows, int width);
// The best plans of other widths, kinds and planners.
std::string compared_text(const pipeline::PlanDocument& document, const ReportOptions& options);
// The model's cuts.
std::string cuts_text(const pipeline::PlanDocument& document, int width);

}  // namespace automap::infer
