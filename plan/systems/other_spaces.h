// Systems whose plans are not pipelines of ours to begin with: FlexFlow's strategies (plan/systems/soap), divisions by
// compiler heuristics (plan/systems/heuristics), and placements (plan/systems/placement).
#pragma once

#include "common/pipeline/placed_plan.h"
#include "plan/systems/systems.h"

namespace automap::systems {

// Plans the module at the step's whole batch; memory above the devices' capacity is penalised. A strategy that is data
// parallel alone is one stage of ours, and judged so; any other by FlexFlow's simulator.
Answer plan_flexflow(const Question& question);

// Plans the module at the step's whole batch, a device for every kernel. Of the heuristics' divisions that fit, the one
// with the shortest step by their simulator is taken.
Answer plan_heuristics(const Question& question);

// Place a workload as it is. For a model they place its layers, for every split of the batch, on single devices; the
// contiguous placement is a pipeline of ours, and the one with the shortest simulated step counts. Methods, in order:
// the exact programme or an approximation of it; along orders; greedy; local search; Scotch; along a merged chain.
Answer plan_tarnawski(const Question& question);
Answer plan_orders(const Question& question);
Answer plan_greedy(const Question& question);
Answer plan_local_search(const Question& question);
Answer plan_scotch(const Question& question);
Answer plan_merged_chain(const Question& question);

// "4 stages of 8 devices, 16 micro-batches of 32": replicas x width of each stage.
std::string plan_text(const pipeline::PlacedPlan& placed);

}  // namespace automap::systems
