// DAPPLE's planner (Fan et al., PPoPP 2021; arXiv 2007.01045, 4): plans are judged by the length of a synchronous step
// whose transfers are stages of their own,
//
//     L = T_w + T_s + T_e
//     T_w = sum of F_0 .. F_Q            the first micro-batch reaches the pivot stage Q
//     T_s = (M - 1) (F_Q + B_Q)          the steady phase there
//     T_e = max over stages s of AR_s + (s <= Q: B_s + .. + B_Q; s > Q: -(B_Q+1 + .. + B_s-1))
//
// Q: from the last stage on, s instead of Q where (M - 1)(F_s + B_s) > (M - 1)(F_Q + B_Q) + sum_{s<k<Q} (F_k + B_k).
// All ms. The search is that of its published planner (AlibabaPAI/DAPPLE): one stage; every plan of two; of more the
// plan whose longest stage or transfer is shortest; and one device a stage. The least L wins. Departures: consecutive
// devices in the cluster's order (its three ways to place a stage are there for machines that others partly use), our
// costs, only stages that fit with min(M, stages left) in flight; and no copies of the whole pipeline beside each
// other, which our plans do not have.
#pragma once

#include <limits>
#include <vector>

#include "plan/systems/rivals/chain.h"

namespace automap::rivals {

constexpr int kDappleUnits = 32;

// One stage or transfer, ms of one micro-batch; `sync_ms` once a step.
struct DappleStage {
  double forward_ms = 0, backward_ms = 0, sync_ms = 0;
};
// L of stages and transfers in their order. Worked case: F 1, B 2 | transfer 1, 1 | F 2, B 4, sync 5 and M = 3: the
// pivot is the last, L = (1 + 1 + 2) + 2 * 6 + (5 + 4) = 25.
double dapple_length_ms(const std::vector<DappleStage>& stages, int micro_batches);
// The pivot of the above.
int dapple_pivot(const std::vector<DappleStage>& stages, int micro_batches);
// L of a plan of the problem.
double dapple_length_ms(const pipeline::Problem& problem, const pipeline::Plan& plan);

// For 1 .. max_stages stages: the plan whose longest stage or transfer is shortest (forward and backward; transfers
// both ways, to a group as large as the sender's, since the next one's is not known then). Infinite where none fits.
// `cuts` and `device_cuts` as pipeline::Plan's.
struct DappleBlocks {
  std::vector<int> cuts, device_cuts;
  double longest_ms = std::numeric_limits<double>::infinity();
};
// Stages leave hope of a simulated step below below_ms.
std::vector<DappleBlocks> dapple_blocks(const pipeline::Problem& problem, const std::vector<int>& ends, int max_stages,
                                        double below_ms = std::numeric_limits<double>::infinity());

// The plan it finds; its objective_ms is L. Nothing when none fits.
std::optional<ChainPlan> dapple_chain(const pipeline::Problem& problem, const std::vector<int>& ends, int max_stages,
                                      double below_ms = std::numeric_limits<double>::infinity());
Planner dapple(const pipeline::Profile& profile, int max_stages);

}  // namespace automap::rivals
