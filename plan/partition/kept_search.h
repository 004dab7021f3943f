// Searches beside groups that are given: some of them are split and some are whole whatever is chosen.
#pragma once

#include <cstdint>
#include <vector>

#include "models/partition_problem.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/partition_search.h"

namespace automap::partition {

struct GivenGroups {
  // Groups of the problem. The two lists need not cover it: the given shardings may decide no group at all.
  std::vector<std::int32_t> split;
  std::vector<std::int32_t> whole;
  PlanEstimate with;  // the step with what is given alone
};

// As run_search: answers hold the groups given, too. Their value is, by count, that of all groups; by time, the savings
// beside the given ones.
std::vector<PartitionAnswer> run_search_beside(const models::PartitionProblem& problem, const GivenGroups& given,
                                               const SearchRequest& request);

}  // namespace automap::partition
