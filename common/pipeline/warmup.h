// Chooses the number of micro-batches that each stage of an adaptive plan has in flight, K_s, on the event simulation
// and within memory (design 2.3; Beaumont et al., 1F1B*).
#pragma once

#include <vector>

#include "common/base/work.h"
#include "common/pipeline/cost.h"

namespace automap::pipeline {

// The best of a few good starts: as many as memory allows, 2(S-s)+1, S-s+1 and the groups of 1F1B*, of transfers as
// long as they are, twice and four times that. A few simulations; for searches that judge many plans. Writes K into
// times.in_flight and returns the simulated step, ms.
double quick_warmup(const Problem& problem, const Plan& plan, PipelineTimes& times);

// quick_warmup, then moves of one stage's K by 1, 2 and 4 until none is shorter, then as little memory as a step within
// kWarmupSlack of that needs. Fills plan.warmup of a feasible adaptive plan; other plans stay as they are.
constexpr double kWarmupSlack = 0.001;
void choose_warmup(const Problem& problem, Plan& plan, Work* work = nullptr);

}  // namespace automap::pipeline
