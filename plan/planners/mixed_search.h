// Plans whose stages are of different widths (common/pipeline/mixed_widths.h), found from plans of one width by moves
// judged by simulation; and what no plan is below, whatever its widths.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/pipeline/exact.h"
#include "common/pipeline/mixed_widths.h"
#include "plan/planners/candidate.h"
#include "plan/planners/question.h"

namespace automap::planners {

struct MixedChoice {
  std::unique_ptr<pipeline::MixedProblem> problem;
  pipeline::MixedPlan plan;  // with its warm-up
  double simulated_step_ms = 0;
};

// The shortest found on the devices and near the split of the batch of `found`, a plan of one width with its bounds;
// of the stage counts that the request allows, the options' variants and the schedule adaptive. Empty: none has stages
// of different widths, the request leaves the schedule out, or the profile knows one width only.
std::optional<MixedChoice> best_mixed(const Question& question, const Candidate& found, const Bounds& bounds);

// What neither V nor the simulated step of any plan is below whose stages may be of any widths, of the splits of the
// batch and the numbers of devices that `bounds`, those of `found`, are about; with the adaptive schedule where the
// widths differ. 0: there are no bounds, or none is known.
pipeline::LowerBound any_width_bound(const Question& question, const Candidate& found, const Bounds& bounds);

}  // namespace automap::planners
