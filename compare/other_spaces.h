// Systems whose plans are no pipelines of ours to begin with: FlexFlow's strategies (plan/soap), divisions by compiler
// heuristics (plan/heuristics), and placements (plan/placement).
#pragma once

#include "common/pipeline/placed_plan.h"
#include "compare/systems.h"

namespace automap::compare {

// Of the module at the step's whole batch; what is above the devices' memory is penalised. A strategy that is data
// parallel alone is one stage of ours, and judged so; any other by FlexFlow's simulator.
Answer plan_flexflow(const Question& question);

// Of the module at the step's whole batch, a device for every kernel; of the heuristics' divisions that fit the one
// whose step is shortest by their simulator.
Answer plan_heuristics(const Question& question);

// Of a workload as it is. Of a model its layers, for every split of the batch, on single devices; the contiguous
// placement is a pipeline of ours, and the one that is simulated shortest counts. By: the exact programme or what is
// left of it; along orders; greedy; local search; along a merged chain.
Answer plan_tarnawski(const Question& question);
Answer plan_orders(const Question& question);
Answer plan_greedy(const Question& question);
Answer plan_local_search(const Question& question);
Answer plan_scotch(const Question& question);
Answer plan_merged_chain(const Question& question);

// "4 stages of 8 devices, 16 micro-batches of 32": replicas x width of each stage.
std::string plan_text(const pipeline::PlacedPlan& placed);

}  // namespace automap::compare
