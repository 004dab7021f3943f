// Reports of a run: tables of gaps, report.md, run.json.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "train/evaluation.h"
#include "train/options.h"
#include "train/trainer.h"

namespace automap::train {

// A table of planners by held-out sets, with gaps and time, for a terminal or as Markdown.
std::string quality_table(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners, bool markdown);
// A Markdown table of greedy, beam and corridor by families of problems.
std::string family_table(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners);
Json quality_json(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners);

// The difference of a policy's search to another search on the same problems; below 0 the policy is better.
struct Difference {
  std::string planner, to;
  PairedDifference paired;
  // The policy is the one of many that was best on these very problems: an interval around the difference shows nothing
  // then, and there is no verdict.
  bool chosen_by = false;
};
// Differences to the same searches without a network, of the policy's last search to random weights, and to
// `started_with` (may be empty).
std::vector<Difference> differences_of(const Evaluation& evaluation, const std::vector<PlannerLengths>& planned,
                                       const std::vector<PlannerLengths>& started_with = {});
// What is to be said beside those of a training.
constexpr char kChosenByThese[] =
    "These problems have chosen the policy, which therefore looks better on them than on others, above all against the "
    "start: automap-train --evaluate and --compare ask others.";
std::string difference_table(const std::vector<Difference>& differences, bool markdown);
Json differences_json(const std::vector<Difference>& differences);
// "-0.34 +- 0.12 %", "-0.58 to -0.1 %".
std::string difference_text(const PairedDifference& difference);
std::string interval_text(const Interval& interval);

// "25 evaluations of 191 problems took 16.3 s, their optima and baselines 4 s, together 3.3 % of the run's time"
std::string evaluation_cost(const TrainCounters& counters, const Evaluation& evaluation);

// "the best of 25 evaluations, after 92 160 episodes: mean gap 0.449 %, the start's 2.31 %", or that the start stays
// it.
std::string best_text(const TrainResult& result);

// The report of a run on one page. `policy_planners`: plan() of the best policy; `started_with`: plan() of the policy
// that training began with.
std::string report_markdown(const TrainOptions& options, const ProblemSource& source, const Evaluation& evaluation,
                            const TrainResult& result, const std::vector<PlannerLengths>& policy_planners,
                            const std::vector<PlannerLengths>& started_with, int threads);

// Machine, versions, seeds, command line.
Json run_json(int argc, const char* const* argv, const TrainOptions& options, const ProblemSource& source, int threads,
              const std::string& torch);

}  // namespace automap::train
