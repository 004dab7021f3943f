// Scores every uniform layout of a cluster.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "plan/planners/question.h"
#include "plan/planners/score.h"

namespace automap::planners {

struct SweptLayout {
  Layout layout;
  int micro_batches = 0;
  double simulated_step_ms = 0;
  double missing_bytes = 0;  // above 0: does not fit
  int missing_stage = 0;
  double fullest_share = 0;
  double batch() const { return static_cast<double>(layout.micro_batch_size * layout.dp) * micro_batches; }
};
// The layouts that the sweep scores.
struct SweepRequest {
  int min_stages = 1, max_stages = pipeline::kMaxPlanStages;
  std::vector<pipeline::Schedule> schedules = {pipeline::Schedule::kAdaptive};
  bool ordered = false;  // those of question.beside, too, which layouts can name; kInterleaved with its chunks
  // Layouts whose compute alone says that they are neither the best, nor the best of several stages, are left out.
  bool only_best = false;
  WorkLimits limits;  // one layout is always looked at
};
struct Sweep {
  std::vector<SweptLayout> layouts;
  std::size_t left_out = 0;  // for want of time
};
// Scores every uniform layout that uses all devices, has the options' variants and can be run by the question's
// framework: the shortest step comes first, then those that do not fit, the least missing first. Throws Error(kUsage)
// when no layout divides the batch or is within the stages allowed.
Sweep sweep_layouts(const Question& question, const SweepRequest& request);

}  // namespace automap::planners
