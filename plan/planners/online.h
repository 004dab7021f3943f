// Online pipeline search (Auto-MAP, arXiv 2007.04069, 3.4 and 4.4): a Rainbow DQN learns on the one problem that it
// plans, from scratch or from a policy of other problems. The search is in a library of its own (common/base/plugin.h);
// this header is its interface for programs. No LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "models/policy.h"

namespace automap::planners {

// The user's options of the search.
struct OnlineOptions {
  // Device cuts at most this far from a server boundary (the paper's pruning; its radius is 3); -1: anywhere.
  int server_radius = -1;
  std::uint64_t seed = 1;
  std::uint64_t max_plays = 0;  // over all sessions; 0: as many as there is time for
  bool from_scratch = false;    // else from the planner's policy
  // The file that stores the search's state. It is written now and then and at the end; a search whose file exists
  // resumes from it. Empty: no file.
  std::string state_file;
};

struct OnlineRequest {
  OnlineOptions options;
  pipeline::Objective objective = pipeline::Objective::kSimulated;
  int first_stages = 2, last_stages = 2;  // 2..models::kMaxStages
  std::vector<pipeline::Schedule> schedules = {pipeline::Schedule::k1f1b};
  std::vector<int> pivots;                       // as models::PlanSpaceOptions
  std::shared_ptr<const models::Policy> policy;  // to start from; null: from scratch
};

struct OnlineAnswer {
  std::vector<pipeline::Plan> plans;  // the best of every stage count and schedule, the shortest first
  pipeline::PlanLearning learning;
};

// Plans until `work` is over. Throws Error(kData/kIo) naming the state file when it cannot be used: damaged, of
// another problem or request (says which).
using OnlineSearch =
    std::function<OnlineAnswer(const pipeline::Problem& problem, const OnlineRequest& request, Work& work)>;
// Throws Error(kConfig) when the library is not there.
OnlineSearch find_online_search();

}  // namespace automap::planners
