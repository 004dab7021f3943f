// FlexFlow's search (section 6): Markov chain Monte Carlo over strategies, by the Metropolis rule.
//
// A chain begins at a start. A proposal gives an operator drawn with equal chances another configuration (proposals.h);
// it is taken with probability min(1, exp(beta (cost - cost'))). A chain ends when its budget is spent, or when it has
// found nothing better than its best for half of it (the paper). The budget of a search is shared out evenly between
// its chains: data parallel, expert and random starts.
//
// beta: the paper gives none, and its code 5, 1 or 1.2 per ms, which depends on the model. Here it is divided by the
// cost of data parallelism, so that one number does for all models: kDefaultBeta takes a step that is longer by 1 % of
// that with probability e^-2.
//
// Ours: the rest of the budget that chains leave goes to shorter ones from further random starts, by turns with smaller
// beta, which leave local optima of single changes; the best of all chains is improved one operator at a time, every
// configuration tried, until none helps (where the budget lasts; at most a fifth of it is kept for that); and data
// parallel and expert strategies are always candidates, whatever the starts. So the result is never longer than these
// and the starts. On a mesh (Placement::kMesh) Proposals::nearest makes the candidates and starts from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/work.h"
#include "plan/systems/soap/machine_links.h"
#include "plan/systems/soap/proposals.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

constexpr double kDefaultBeta = 200;

struct Start {
  std::string name;  // "data parallel"
  Strategy strategy;
};

struct SearchOptions {
  double beta = kDefaultBeta;  // per step of data parallelism, > 0
  std::uint64_t seed = 0;
  double seconds = 0;  // of the budget, for the stop rule; 0: it is counted
  int restarts = 16;   // further random chains, at most
  bool polish = true;
  // A step's cost is its length plus kPenaltyMsPerMb for memory above the devices' capacity (memory.h), so that the
  // result fits where anything near it does. FlexFlow's code has that since 2021; the paper does not.
  bool fit = false;
};
constexpr double kPenaltyMsPerMb = 1;  // MB = 1e6 bytes

// The result of one chain.
struct ChainResult {
  std::string start;
  double start_ms = 0, best_ms = 0;  // with the penalty, where the search shall fit
  std::int64_t proposals = 0, accepted = 0;
  std::int64_t best_at = 0;  // the proposal that made the best one; 0: the start
  bool settled = false;      // nothing better for half of its budget
};

struct SearchResult {
  Strategy strategy;
  double step_ms = 0;
  std::string found_by;  // the start of the chain, and " + polish"
  double data_parallel_ms = 0, expert_ms = 0;
  std::vector<ChainResult> chains;
  std::int64_t proposals = 0;
  bool local_optimum = false;  // no other configuration of one operator is shorter (not Placement::kAny)
};

// `work` limits the search; `starts` may be empty. Strategies are of the space over the machine's devices.
SearchResult search(const Space& space, const MachineLinks& machine, const Proposals& proposals,
                    const std::vector<Start>& starts, const SearchOptions& options, Work& work);

}  // namespace automap::soap
