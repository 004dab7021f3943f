// A candidate is a plan that a search found for a question; all candidates are priced by one cost model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/mixed_widths.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "plan/planners/bounds.h"
#include "plan/planners/question.h"
#include "plan/planners/step_plan.h"

namespace automap::planners {

struct Candidate {
  std::string kind;      // a row of kinds.h
  std::string found_by;  // a planner as PlanResult names it, or the kind
  StepSize size;         // the split of the batch, and the devices; of stages of different widths: of single devices
  // The problem that prices the plan: for one width the problem of its replicas, else the one of every width.
  std::shared_ptr<const pipeline::Problem> problem;
  std::shared_ptr<const pipeline::MixedProblem> mixed;
  pipeline::PlacedPlan placed;  // the stages, on these; none: there is no plan
  pipeline::Plan plan;          // of one width: on `problem`, device_cuts count replicas
  std::string layout;           // as frameworks name it, "dp=2,pp=3", where it is one
  double step_ms = 0;           // V; of an ordered schedule, which has none, the simulated step
  double simulated_step_ms = 0;
  // The memory of the device with the smallest share of free memory. Without a plan: the need of the plan with the
  // least memory if memory is the reason, else 0.
  double memory_bytes = 0, capacity_bytes = 0;
  std::string why;                                // what limits it; without a plan: why there is none
  std::string left_out;                           // why it is not the plan though it is shorter
  std::optional<pipeline::Schedule> of_schedule;  // the row's, where that looks for plans of an ordered schedule

  bool found() const { return !placed.stages.empty(); }
  bool of_one_width() const { return mixed == nullptr; }
  bool ordered() const { return found() && !is_alternating(placed.plan.schedule); }
  int num_stages() const { return placed.num_stages(); }
  int num_devices() const { return placed.num_devices(); }              // single ones
  std::vector<int> devices() const { return placed.device_numbers(); }  // of the cluster, 0-based, by stage
  int width() const;                                                    // of the widest stage's replicas
  pipeline::MixedPlan mixed_plan() const;                               // of stages of any widths, on `mixed`
};

// A row of this kind without a plan.
Candidate no_candidate(const std::string& kind, const std::string& why);
// A plan of one width, on a problem of the split; counted.
Candidate candidate_of(const std::string& kind, std::shared_ptr<const pipeline::Problem> problem, pipeline::Plan plan);
// The plan that a search found; no plan where it found none.
Candidate candidate_of(const std::string& kind, StepPlan found);
Candidate candidate_of(const std::string& kind, std::shared_ptr<const pipeline::MixedProblem> problem,
                       const pipeline::MixedPlan& plan);

// Bounds of a search, with what they are about.
Bounds bounds_of(const StepPlan& found);

// Returns `one`, which is of one width, on a problem of the question's own options, if the question asks for such plans
// (the stage count, the schedule, variants that its options have, and the split of the batch left open) and the plan is
// feasible there. Returns nothing otherwise, and `why_not` says why.
std::optional<Candidate> as_asked(const Question& question, const Candidate& one, std::string* why_not = nullptr);

// "4 stages on 2, 2, 2, 2 devices, replicas of 2, micro-batches of 8".
std::string plan_text(const pipeline::PlacedPlan& placed);

}  // namespace automap::planners
