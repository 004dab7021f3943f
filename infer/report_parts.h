// What the report of an answer consists of, each part of it for itself: infer/report.cpp prints them behind one
// another, infer/explain.cpp one of them. Every part ends with a newline, or is empty. `width`: ReportOptions::width.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "infer/report.h"

namespace automap::infer {

// What each stage is and what it takes.
std::string stage_table(const pipeline::PlanDocument& document, const pipeline::Problem& problem, int width);
// Bytes on each device of a stage, by part; parts that no stage has are left out.
std::string memory_table(const pipeline::PlanDocument& document, int width);
// What no plan can be below, and rules that cost much.
std::string bounds_text(const pipeline::PlanDocument& document);
std::string limits_text(const pipeline::PlanDocument& document);
// How far the numbers under the plan are expected to be off.
std::string estimates_text(const pipeline::PlanDocument& document);
// How the devices of a replica hold its tensors.
std::string inside_replicas_text(const pipeline::PlanDocument& document);
// What becomes of the plan when the numbers under it are a little wrong.
std::string sensitivity_text(const std::vector<pipeline::PlanSensitivity>& rows, int width);
// The best plans of other widths, kinds and planners.
std::string compared_text(const pipeline::PlanDocument& document, const ReportOptions& options);
// Where the model is cut.
std::string cuts_text(const pipeline::PlanDocument& document, int width);

}  // namespace automap::infer
