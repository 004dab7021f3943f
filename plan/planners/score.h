// Scores a given plan: one from a file, or a layout as frameworks name it (dp=8,pp=4,micro-batch-size=2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/numbers.h"
#include "common/machine/cluster.h"
#include "common/pipeline/mixed_widths.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/given_plan.h"
#include "plan/planners/question.h"

namespace automap::planners {

// Megatron's and DeepSpeed's words. micro_batch_size counts samples per replica, so mb = dp * micro_batch_size.
struct Layout {
  int dp = 1, pp = 1;                 // dp 0: as many as there are devices for
  int tp = 1;                         // devices of a replica, which hold its tensors in parts
  std::int64_t micro_batch_size = 0;  // 0: not said
  int micro_batches = 0;              // of a step, where its words said so (gas=4), for the question; else 0
  pipeline::StageVariant variant;
  pipeline::Schedule schedule = pipeline::Schedule::kAdaptive;
  // [pp chunks] of the model's one stack in each part, part p on stage p mod pp; empty: spread evenly. The last may be
  // kRestOfLayers.
  std::vector<int> layers = {};
  // The layer behind the stack that the last part begins with, where `layers` says 0 of it; empty, or none of the
  // model's: the first.
  std::string behind = {};
  int chunks = 1;              // parts of the model on each stage: interleaved 1F1B
  int layers_per_chunk = 0;    // instead of `chunks`: what each has of the model's stack; 0: not said
  bool one_replica = false;    // dp is 1 because its words do not name it
  int parts_of_stage() const;  // as `chunks`, or as the schedule fixes it
  bool interleaved() const { return chunks > 1 || layers_per_chunk > 0; }
  std::string text() const;  // "dp=8,pp=4,micro-batch-size=2,zero=1"
};
constexpr int kRestOfLayers = -1;
// Interleaved 1F1B is of no fewer, as Megatron asks.
constexpr int kLeastInterleavedStages = 3;

// Options of the command line that apply to every stage; empty: none.
struct StageOverrides {
  std::optional<int> zero;
  std::optional<bool> recompute;
  std::optional<pipeline::Schedule> schedule;
};

// Throws Error(kUsage) naming the key or value that is wrong and what was expected, and where a key contradicts the
// overrides. Where neither names a schedule it is the framework's.
Layout parse_layout(std::string_view text, const StageOverrides& overrides,
                    const Framework& framework = any_framework());

// The most stages a layout can have: whole layers of the model's stacks, or layers of any kind where none is numbered;
// 1 where the profile names none.
int most_layout_stages(const pipeline::Profile& profile);

struct ScoredPlan {
  // The problem that `placed` stands on: of one width, or, where stages are of several, of all of these.
  std::unique_ptr<pipeline::Problem> problem;
  std::unique_ptr<pipeline::MixedProblem> mixed;
  pipeline::PlacedPlan placed;
  pipeline::Plan plan;  // on `problem`; device_cuts count replicas
  double step_ms = 0, simulated_step_ms = 0;
  std::string infeasible;               // why it cannot run; empty: it can
  double missing_bytes = 0;             // on each device of the stage that lacks the most memory; 0: it fits
  int missing_stage = 0;                // from 1
  double fullest_share = 0;             // the largest share of a device's memory that a stage uses
  std::vector<std::string> departures;  // where it was not counted as the file says, one sentence each
};

// `plan` on a problem of these options; K is chosen where the plan is adaptive and says none. Throws Error(kData)
// naming `source` when the cuts are none of this model and cluster, K exceeds the micro-batches, or the devices of a
// stage do not divide its samples. Where no K makes it shorter than hopeless_ms, K is chosen quickly, and left out of
// the plan.
ScoredPlan score_plan(const pipeline::CheckedProfile& profile, const machine::Cluster& cluster,
                      const pipeline::ProblemOptions& options, pipeline::Plan plan, const std::string& source,
                      double hopeless_ms = kInfinity);

// Scores stages of any widths, which the profile has to know; `profile` and `cluster` are those of single devices.
ScoredPlan score_mixed(const pipeline::CheckedProfile& profile, const machine::Cluster& cluster,
                       const pipeline::ProblemOptions& options, pipeline::MixedPlan plan, const std::string& source);

// A plan file's plan. What the step request and the overrides name goes before what the file says, and is told in
// `departures`. Throws Error(kData) naming the file: more devices than the cluster has, and as score_plan().
ScoredPlan score_given(GivenPlan given, const Question& question, const StageOverrides& overrides);

// Whole layers spread evenly over the stages, the first stages taking one more where they do not divide, or as the
// layout says; what stands in front of the first layer goes to the first stage, what stands behind to the last. Throws
// Error(kUsage) when the layout asks for more devices or stages than there are, or does not divide the batch. Where
// neither it nor the question says how many samples a replica computes at once it is chosen, as `departures` says.
// `warmup`: K of each stage, of a layout whose schedule is adaptive and which names its micro-batch-size; empty:
// chosen. `hopeless_ms` as of score_plan().
ScoredPlan score_layout(const Layout& layout, const Question& question, const std::vector<int>& warmup = {},
                        double hopeless_ms = kInfinity);

}  // namespace automap::planners
