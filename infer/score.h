// What a given plan takes: one of our plan files, a minimal one (cuts and device cuts), or a layout as frameworks name
// it (dp=8,pp=4,micro-batch-size=2); and the sweep over every uniform layout.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "infer/layers.h"
#include "infer/step_choice.h"

namespace automap::infer {

// Megatron's and DeepSpeed's words. micro_batch_size counts samples per replica, so mb = dp * micro_batch_size.
struct Layout {
  int dp = 1, pp = 1;
  int tp = 1;                         // tensor parallel width; only 1 for now
  std::int64_t micro_batch_size = 0;  // 0: not said
  pipeline::StageVariant variant;
  pipeline::Schedule schedule = pipeline::Schedule::kAdaptive;
  std::string text() const;  // "dp=8,pp=4,micro-batch-size=2,zero=1"
};

// Throws Error(kUsage) naming the key or value that is wrong and what was expected; `schedule` is that of a layout that
// names none.
Layout parse_layout(std::string_view text, pipeline::Schedule schedule);

struct ScoredPlan {
  std::unique_ptr<pipeline::Problem> problem;
  pipeline::Plan plan;
  double step_ms = 0, simulated_step_ms = 0;
  std::string infeasible;    // why it cannot run; empty: it can
  double missing_bytes = 0;  // on each device of the stage that lacks the most memory; 0: it fits
  int missing_stage = 0;     // from 1
  double fullest_share = 0;  // the largest share of a device's memory that a stage uses
};

// `plan` on a problem of these options; K is chosen where the plan is adaptive and says none. Throws Error(kData)
// naming `source` when the cuts are none of this model and cluster, or the devices of a stage do not divide its
// samples.
ScoredPlan score_plan(const pipeline::Profile& profile, const machine::Cluster& cluster,
                      const pipeline::ProblemOptions& options, pipeline::Plan plan, const std::string& source);

// A plan file: automap.plan/2, /1, or a JSON object with cuts and device_cuts (and, if it likes, schedule, in_flight,
// zero, recompute, micro_batch_samples, micro_batches). What the step request names goes before what the file says.
// Throws Error(kData) naming the file: another model, more devices than the cluster has, contradictions.
ScoredPlan score_file(const std::string& path, const pipeline::Profile& profile, const machine::Cluster& cluster,
                      pipeline::ProblemOptions options, const StepRequest& step, pipeline::Schedule schedule);

// Whole layers spread evenly over the stages, the first stages taking one more where they do not divide; what stands in
// front of the first layer goes to the first stage, what stands behind to the last. Throws Error(kUsage) when the
// layout asks for more devices or stages than there are, or does not divide the batch.
ScoredPlan score_layout(const Layout& layout, const pipeline::Profile& profile, const machine::Cluster& cluster,
                        pipeline::ProblemOptions options, const StepRequest& step);

struct SweptLayout {
  Layout layout;
  int micro_batches = 0;
  double simulated_step_ms = 0;
  double missing_bytes = 0;  // above 0: does not fit
  int missing_stage = 0;
  double fullest_share = 0;
  double batch() const { return static_cast<double>(layout.micro_batch_size * layout.dp) * micro_batches; }
};
// Every uniform layout that uses all devices, the shortest step first, then those that do not fit, the least missing
// first. Throws Error(kUsage) when no layout divides the batch.
std::vector<SweptLayout> sweep_layouts(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                       const pipeline::ProblemOptions& options, const StepRequest& step,
                                       pipeline::Schedule schedule);
// Of layouts of one batch, at least one.
std::string sweep_text(const std::vector<SweptLayout>& layouts);
std::string sweep_json(const std::vector<SweptLayout>& layouts);

}  // namespace automap::infer
