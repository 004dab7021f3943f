// Finds plans whose stages have different widths (common/pipeline/mixed_widths.h), starting from plans of one width, by
// moves that the simulation judges; and a lower bound on plans of any widths.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/exact.h"
#include "common/pipeline/mixed_widths.h"
#include "plan/planners/candidate.h"
#include "plan/planners/question.h"

namespace automap::planners {

// The shortest found on the devices and near the split of the batch of `found`, a plan of one width with its bounds;
// of the stage counts that the request allows, the options' variants and the schedule adaptive. Empty: none has stages
// of different widths, the request leaves the schedule out, or the profile knows one width only.
std::optional<Candidate> best_mixed(const std::string& kind, const Question& question, const Candidate& found,
                                    const Bounds& bounds);

// A lower bound on both V and the simulated step of every plan whose stages may have any widths, over the splits of the
// batch and the numbers of devices that `bounds`, those of `found`, cover; with the adaptive schedule where the widths
// differ. 0: there are no bounds, or none is known.
pipeline::LowerBound any_width_bound(const Question& question, const Candidate& found, const Bounds& bounds);

}  // namespace automap::planners
