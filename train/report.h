// What a run says about itself: tables of gaps, report.md, run.json.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "train/evaluation.h"
#include "train/options.h"
#include "train/trainer.h"

namespace automap::train {

// Planners against held-out sets: gaps and time. For a terminal, or as a Markdown table.
std::string quality_table(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners, bool markdown);
// Greedy, beam and corridor against families of problems (Markdown).
std::string family_table(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners);
Json quality_json(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners);

// One page. `policy_planners`: plan() of the best policy; `started_with`: that of the policy training began with (may
// be empty).
std::string report_markdown(const TrainOptions& options, const ProblemSource& source, const Evaluation& evaluation,
                            const TrainResult& result, const std::vector<PlannerLengths>& policy_planners,
                            const std::vector<PlannerLengths>& started_with, int threads);

// Machine, versions, seeds, command line.
Json run_json(int argc, const char* const* argv, const TrainOptions& options, const ProblemSource& source, int threads,
              const std::string& torch);

}  // namespace automap::train
