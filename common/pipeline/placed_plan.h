// A plan with each stage placed on the problem of the stage's own width. The description of a plan (plan_json.h), its
// limits and the reasons why it cannot run are derived from this, for plans of one width and of several
// (mixed_widths.h) alike.
#pragma once

#include <string>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/work_simulation.h"

namespace automap::pipeline {

struct PlacedPart {
  int p0 = 0, p1 = 0;  // instructions (p0, p1]
  Link behind = {};    // to the next part, where another group runs that; else none
};

struct PlacedStage {
  const Problem* problem = nullptr;    // its devices are replicas of the stage's width
  std::vector<PlacedPart> parts = {};  // one, but of schedules that run several on each group of devices
  int d0 = 0, d1 = 0;                  // devices (d0, d1] of the problem
  int variant = 0;
  const PlacedPart& part() const { return parts.front(); }  // where there is one
  int width() const { return problem->options().width; }
  const DeviceGroup& group() const { return problem->group(d0, d1); }
  // Its single devices as the cluster numbers them that the problem's were chosen from, 0-based.
  std::vector<int> device_numbers() const;
};

struct PlacedPlan {
  Plan plan;  // device_cuts of single devices
  std::vector<PlacedStage> stages;
  int num_stages() const { return static_cast<int>(stages.size()); }
  int num_devices() const { return stages.back().d1 * stages.back().width(); }
  std::vector<int> device_numbers() const;  // of all stages, in their order
  // The stage that runs a part of the model, and the number of the part in that stage, both from 0.
  struct PartOf {
    int stage = 0, number = 0;
  };
  std::vector<PartOf> parts() const;
  // The problem of the first stage. All stages agree on the step (micro-batches, options except the width, positions,
  // servers).
  const Problem& problem() const { return *stages.front().problem; }
};

// A structurally valid plan (valid_structure) of one width. The problem must outlive it.
PlacedPlan place(const Problem& problem, const Plan& plan);

// The functions of cost.h, schedule.h and warmup.h for plans of one width, extended to these. Groups must be valid,
// except for infeasible_reason. An ordered schedule has no V: value_ms is its simulated step.
PipelineTimes pipeline_times(const PlacedPlan& placed);  // of alternating schedules
std::vector<int> in_flight_of(const PlacedPlan& placed);
std::vector<double> memory_of(const PlacedPlan& placed);  // bytes of each stage's devices, with that in flight
std::vector<MemoryParts> memory_parts_of(const PlacedPlan& placed);
double fullest_share(const PlacedPlan& placed);  // of that in what a stage's devices have, the largest
double value_ms(const PlacedPlan& placed);
double simulate_step_ms(const PlacedPlan& placed);
std::string infeasible_reason(const PlacedPlan& placed);
// simulate_step_ms of an ordered schedule where infeasible_reason is empty, else infinite; by times and lists of work
// that the caller has made for both.
double feasible_step_ms(const PlacedPlan& placed, const WorkTimes& times, const WorkOrder& order);
// The warm-up that choose_warmup fills in, of eager as many as memory allows; of other schedules: none.
std::vector<int> chosen_warmup(const PlacedPlan& placed, Work* work = nullptr);

}  // namespace automap::pipeline
