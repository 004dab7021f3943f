// PipeDream's planner (Narayanan et al., SOSP 2019, 3.1; published as msr-fiddle/pipedream,
// optimizer/optimizer_graph_hierarchical.py): stages of layers on any number of devices each, so that the slowest stage
// or transfer of the steady state is as fast as can be,
//
//     A(j, m) = min over i, m' of max(A(i, m - m'), 2 send(i), T(i+1 .. j, m'))
//
// T: forward and backward of one micro-batch on m' replicas and the exchange of the stage's gradients, which its
// asynchronous pipeline does for every micro-batch; send: one way, to a group as large as its own; ms. Memory is
// counted as there: stage by stage, with ceil(devices from here on / devices here) micro-batches in flight.
// Computation and exchange are added up, as in the published code.
// Departures: consecutive devices in the cluster's order instead of levels of a hierarchy, our costs, at most
// `max_stages` stages, and no versions of weights, which a synchronous step does not need.
#pragma once

#include "plan/systems/rivals/chain.h"

namespace automap::rivals {

constexpr int kPipeDreamUnits = 32;

// The best plan for one problem, of those whose stages leave hope of a simulated step below below_ms; its objective_ms
// is A. Nothing when none fits.
std::optional<ChainPlan> pipedream_chain(const pipeline::Problem& problem, const std::vector<int>& ends, int max_stages,
                                         double below_ms = std::numeric_limits<double>::infinity());
// T of a stage, the least over the variants that fit; infinite when none does.
double pipedream_stage_ms(const pipeline::Problem& problem, int p0, int p1, int d0, int d1, int* variant = nullptr);
// 2 send at cut p between (d0, d1] and the devices behind it.
double pipedream_send_ms(const pipeline::Problem& problem, int p, int d0, int d1);
Planner pipedream(const pipeline::Profile& profile, int max_stages);

}  // namespace automap::rivals
