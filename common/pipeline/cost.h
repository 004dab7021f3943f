// Computes V, the length of one synchronous 1F1B step in closed form. All planners use this implementation.
// docs/cost-model.md derives every term; schedule.h has the event recurrence that V approximates from below. For
// kAdaptive V is that of as many micro-batches in flight as memory allows, which bounds every choice of them from
// below.
#pragma once

#include <string>
#include <vector>

#include "common/base/span.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::pipeline {

// One micro-batch through the pipeline. forward/backward: [S] ms; transfer: [S-1] ms one way.
struct PipelineTimes {
  std::vector<double> forward_ms, backward_ms;
  // [S] the gradient sync that V counts as exposed behind the last backward, and the exchange of shared gradients.
  std::vector<double> allreduce_ms;
  std::vector<double> transfer_ms;
  // Each [S] or empty. The exposed sync simulated bucket by bucket, and the exchange (empty: allreduce_ms); the
  // optimizer, once per step (empty: none).
  std::vector<double> sync_left_ms = {}, optimizer_ms = {};
  // K_s of the simulation and of V, [S]; empty: as the schedule prescribes.
  std::vector<int> in_flight = {}, value_in_flight = {};
  int num_stages() const { return static_cast<int>(forward_ms.size()); }
};

// Times of every stage and transfer of a structurally valid plan (see valid_structure).
PipelineTimes pipeline_times(const Problem& problem, const Plan& plan);
// The same into vectors that are there already.
void pipeline_times(const Problem& problem, const Plan& plan, PipelineTimes& times);

// Appends the times of one more stage, without transfers and micro-batches in flight.
void add_stage_times(const Problem& problem, int p0, int p1, const DeviceGroup& group, int variant,
                     PipelineTimes& times);

// Appends the micro-batches in flight of an adaptive plan: as many as memory allows, at least one; in_flight where the
// plan says none.
void add_most_in_flight(const Problem& problem, int p0, int p1, const DeviceGroup& group, int variant, const Plan& plan,
                        PipelineTimes& times);

// L of design: max of the path terms plus the all-reduce the backward drain does not hide, ms.
// Worked case (S = 2, M = 2, F = B = 1, no transfer, no all-reduce, 1f1b): L = P + (M-1)T = 4 + 2 = 6.
double step_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form);

// Its two parts. Without all-reduce no schedule is shorter than the path terms; the all-reduce and optimizer that the
// drain does not hide are at least 0.
double path_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form);
double exposed_allreduce_ms(const PipelineTimes& times);

// step_length_ms(pipeline_times(...)). Does not look at memory or variables: that is feasible().
double value_ms(const Problem& problem, const Plan& plan);

// The left-over of a sync when a backward of backward_ms ends: buckets are reduced one at a time, in order.
double sync_left_ms(const std::vector<SyncBucket>& buckets, double backward_ms);

// Calls visit(stage from 1, p0, p1, d0, d1) for every stage until it returns false.
template <typename Visit>
void for_each_stage(const Problem& problem, const Plan& plan, const Visit& visit) {
  int p0 = 0, d0 = 0;
  for (int s = 1; s <= plan.num_stages(); ++s) {
    const bool last = s == plan.num_stages();
    const int p1 = last ? problem.num_instructions() : plan.cuts[static_cast<std::size_t>(s - 1)];
    const int d1 = last ? problem.num_devices() : plan.device_cuts[static_cast<std::size_t>(s - 1)];
    if (!visit(s, p0, p1, d0, d1)) return;
    p0 = p1;
    d0 = d1;
  }
}

// K_s of every stage as the plan runs: its warmup, else as the schedule prescribes; for kAdaptive as many as memory
// allows (at least 1) and no more than in front.
std::vector<int> in_flight_of(const Problem& problem, const Plan& plan);

// Cuts strictly increasing within 1..n-1 and 1..D-1, as many device cuts as cuts; variants and warmup empty or one per
// stage, in range, warmup 1..M and never rising.
bool valid_structure(const Problem& problem, const Plan& plan);
bool valid_structure(const Plan& plan, int num_instructions, int num_devices, int micro_batches, int num_variants);

// True if a stage computes so little that it counts as idle; all_ms is the compute of all `stages` stages together.
inline bool idles_beside(double compute_ms, double all_ms, int stages) {
  return compute_ms < kIdleShare * all_ms / stages;
}

// Empty when the plan may run, else the reason in words with the stage named ("stage 2 needs 18.2 GiB of 16.0 GiB on
// each device", "stage 3 has no trainable variable").
std::string infeasible_reason(const Problem& problem, const Plan& plan);
bool feasible(const Problem& problem, const Plan& plan);

}  // namespace automap::pipeline
