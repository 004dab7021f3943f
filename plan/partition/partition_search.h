// Searchers of a partitioning problem: they choose the linkage groups to split.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/base/work.h"
#include "models/partition_problem.h"

namespace automap::partition {

// The units of work that --effort gives a search.
std::int64_t search_units(Effort effort);

struct SearchLimits {
  // Work, which is counted: a search that only this ends is the same on every run.
  std::int64_t units = search_units(Effort::kNormal);
  // Wall time, two additional stops: from when a search begins, and (of all searches of a command) until this time of
  // steady_seconds().
  double budget_s = std::numeric_limits<double>::infinity();
  double ends_s = std::numeric_limits<double>::infinity();
  std::uint64_t seed = 1;
};
// With StopToken as one more stop.
WorkLimits work_limits(const SearchLimits& limits);

struct PartitionAnswer {
  std::string algorithm;
  std::vector<std::int32_t> groups;  // split, ascending; no two exclude each other
  models::PartitionScore score;
  // No plan is worth more (PartitionScore::value; infinity when unknown). proven: value == bound.
  double bound = 0;
  bool proven = false;
  // The search did not come to its end: for want of time (the budget or StopToken), or of counted work.
  bool cut_by_time = false, cut_by_effort = false;
  double seconds = 0;
  // Statistics of the algorithm's own run, for the report: episodes, nodes, first_stage_variables, ...
  std::vector<std::pair<std::string, double>> statistics;
};

// Groups by size (variables settled), largest first, each split when nothing excludes it (the paper's order): first
// stage; then replicated variables are reopened. With kTime: by value, only groups that help.
PartitionAnswer search_greedy(const models::PartitionProblem& problem, const SearchLimits& limits);

// Exact: branch and bound over connected parts of the exclusion graph; bound by weighted clique cover; the memory limit
// by the same tree. Equal parts (repeated layers) are solved once. Stops at the limits with the best so far and a valid
// bound.
PartitionAnswer search_enumerate(const models::PartitionProblem& problem, const SearchLimits& limits);

// Local search on value (add, swap 1-2, 2-1, restarts), memory as a penalty: the quick answer where enumerate does
// not come to an end.
PartitionAnswer search_cost(const models::PartitionProblem& problem, const SearchLimits& limits);

// The Rainbow DQN on this problem's environment; in programs built with LibTorch (plan/partition/learned).
using RainbowSearch = std::function<PartitionAnswer(const models::PartitionProblem&, const SearchLimits&,
                                                    const std::string& policy_path)>;

struct SearchRequest {
  std::string algorithm = "auto";  // auto | rainbow | greedy | enumerate | cost
  SearchLimits limits;
  std::string policy;     // for rainbow: start from this policy; empty: from scratch
  RainbowSearch rainbow;  // empty: built without LibTorch
};
// The answers of all algorithms that ran, best first (auto: greedy, enumerate, and cost when enumerate is not proven).
// Throws Error(kUsage) for an unknown algorithm, or rainbow without LibTorch; Error(kInfeasible) when nothing fits in
// the memory.
std::vector<PartitionAnswer> run_search(const models::PartitionProblem& problem, const SearchRequest& request);

}  // namespace automap::partition
