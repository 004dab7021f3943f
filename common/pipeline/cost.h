// V: the length of one synchronous 1F1B step in closed form. The one implementation, used by everything.
// docs/cost-model.md derives every term; schedule.h has the event recurrence that V approximates from below.
#pragma once

#include <string>
#include <vector>

#include "common/base/span.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::pipeline {

// One micro-batch through the pipeline. forward/backward/allreduce: [S] ms; transfer: [S-1] ms one way.
struct PipelineTimes {
  std::vector<double> forward_ms, backward_ms, allreduce_ms, transfer_ms;
  int num_stages() const { return static_cast<int>(forward_ms.size()); }
};

// Times of every stage and transfer of a structurally valid plan (see valid_structure).
PipelineTimes pipeline_times(const Problem& problem, const Plan& plan);
// The same into vectors that are there already.
void pipeline_times(const Problem& problem, const Plan& plan, PipelineTimes& times);

// L of design: max of the path terms plus the all-reduce the backward drain does not hide, ms.
// Worked case (S = 2, M = 2, F = B = 1, no transfer, no all-reduce, 1f1b): L = P + (M-1)T = 4 + 2 = 6.
double step_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form);

// Its two parts. Without all-reduce no schedule is shorter than the path terms; the all-reduce that the drain does not
// hide is at least 0.
double path_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form);
double exposed_allreduce_ms(const PipelineTimes& times);

// step_length_ms(pipeline_times(...)). Does not look at memory or variables: that is feasible().
double value_ms(const Problem& problem, const Plan& plan);

// Cuts strictly increasing within 1..n-1 and 1..D-1, as many device cuts as cuts.
bool valid_structure(const Problem& problem, const Plan& plan);

// Empty when the plan may run, else the reason in words with the stage named ("stage 2 needs 18.2 GiB
// of 16.0 GiB on each device", "stage 3 has no trainable variable").
std::string infeasible_reason(const Problem& problem, const Plan& plan);
bool feasible(const Problem& problem, const Plan& plan);

}  // namespace automap::pipeline
