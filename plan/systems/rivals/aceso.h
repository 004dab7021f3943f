// Aceso's kind of search (Liu et al., EuroSys 2024, "Efficient Parallel DNN Training through Iterative Bottleneck
// Alleviation"; the rules are those of its published search, microsoft/SuperScaler,
// search/aceso_{search,policy,prims}).
//
// For every number of stages it begins with a balanced configuration, equal compute on equal groups, and then relieves
// the bottleneck again and again: the longest stage, or, where something does not fit, the one that needs the largest
// share of its memory. The resources of that stage (compute, communication, memory) are ranked by its part in all
// stages', and the primitives that trade that resource are tried: operators to another stage, relayed through those
// between; twice or half the devices, from or to others. Up to kAcesoHops primitives follow each other, the most
// promising first, until the step is shorter; then the search goes on from there. Where none is shorter, it goes on
// from the best configuration met that is within kAcesoNear. No configuration is looked at twice.
//
// The objective is that of chain.h with transfers, ms. Departures:
// - Tensor width and micro-batch size are no primitives: every width and split is searched (best_over_splits).
// - Recomputation and ZeRO are settled behind every primitive, for a stage as a whole: of those that fit the least t.
// - Operators move one by one or by whole layers, and groups of devices also pass on the fewest that leave both
//   sizes that a stage may have.
// - The idlest stage is the one with the least t, or share of memory, whatever its devices achieve.
// - Effort is counted in configurations, not in seconds. No fine-tuning of single operators: a stage has one width.
#pragma once

#include "plan/systems/rivals/chain.h"

namespace automap::rivals {

constexpr int kAcesoHops = 7;        // primitives in a row, as published
constexpr int kAcesoCandidates = 3;  // configurations followed from each
constexpr int kAcesoTrial = 120;     // configurations proposed for one stage of one of them
constexpr double kAcesoNear = 1.2;   // of the shortest step
constexpr int kAcesoEffort = 1000;   // configurations proposed from each start

// The best plan found on all devices from balanced starts of up to max_stages stages, cut between layers (`ends`, as
// unit_ends) and between any operators; nothing when none that was met fits. `effort`: configurations proposed from
// each start, itself included, so that 1 gives the best start.
std::optional<ChainPlan> aceso_chain(const pipeline::Problem& problem, const std::vector<int>& ends, int max_stages,
                                     int effort);
Planner aceso(const pipeline::Profile& profile, int max_stages);

}  // namespace automap::rivals
