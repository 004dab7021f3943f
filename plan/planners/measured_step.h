// A measured step corrects the times that plans are made from, so that the measured layout takes exactly that long.
#pragma once

#include "plan/planners/question.h"
#include "plan/planners/score.h"

namespace automap::planners {

// Factors on times: of kernels on all devices; and of collectives and transfers on all links, including those inside
// wide replicas.
struct Correction {
  double compute = 1, network = 1;
  bool changes() const { return compute != 1 || network != 1; }
};

// A measurement further off than this, as a factor, is of something else.
constexpr double kFarthestMeasurement = 20;
// Compute alone is corrected by these factors: kernels that are estimated near what devices can do at all are hardly
// faster, but software that waits between them, or worse kernels, make them several times slower.
constexpr double kFastestCompute = 0.8, kSlowestCompute = 4;

// The question's times corrected; memory stays.
void correct(const Correction& correction, Question* question);
pipeline::Profile corrected(pipeline::Profile profile, const Correction& correction);

// The layout that was scored, with the samples of a micro-batch that were chosen for it and the replicas that there
// were devices for.
Layout as_scored(Layout layout, const ScoredPlan& scored);

// Corrects compute alone where that reaches the measurement, else compute and network by one factor. `layout`
// as_scored(), and as it was `scored` without a correction. Its K stay: chosen again they jump between plans that take
// nearly as long, and the step with them.
Correction find_correction(const Layout& layout, const ScoredPlan& scored, const Question& question,
                           double measured_ms);

}  // namespace automap::planners
