#include "plan/partition/kept_search.h"

#include <algorithm>

#include "common/base/numbers.h"

namespace automap::partition {

std::vector<PartitionAnswer> run_search_beside(const models::PartitionProblem& problem, const GivenGroups& given,
                                               const SearchRequest& request) {
  constexpr std::int32_t kGone = -1;
  std::vector<std::int32_t> number(problem.groups.size(), 0);
  for (const std::int32_t g : given.split) number[at(g)] = kGone;
  for (const std::int32_t g : given.whole) number[at(g)] = kGone;
  models::PartitionProblem rest = problem;
  rest.groups.clear();
  std::vector<std::int32_t> original;
  for (std::size_t g = 0; g < problem.groups.size(); ++g) {
    const models::PartitionGroup& group = problem.groups[g];
    if (number[g] == kGone) {
      rest.impossible.insert(rest.impossible.end(), group.members.begin(), group.members.end());
      continue;
    }
    number[g] = static_cast<std::int32_t>(original.size());
    original.push_back(static_cast<std::int32_t>(g));
    rest.groups.push_back(group);
  }
  std::sort(rest.impossible.begin(), rest.impossible.end());
  for (models::PartitionGroup& group : rest.groups) {
    std::vector<std::int32_t> excludes;
    for (const std::int32_t other : group.excludes) {
      if (number[at(other)] != kGone) excludes.push_back(number[at(other)]);
    }
    group.excludes = std::move(excludes);
  }
  rest.compute_ms = given.with.compute_ms;
  rest.collective_ms = given.with.collective_ms;
  rest.memory_bytes = given.with.memory_bytes;
  std::int32_t variables = 0;
  for (const std::int32_t g : given.split) {
    variables += static_cast<std::int32_t>(problem.groups[at(g)].members.size());
  }
  const double before = problem.objective == models::PartitionObjective::kCount ? variables : 0;
  std::vector<PartitionAnswer> answers = run_search(rest, request);
  for (PartitionAnswer& answer : answers) {
    for (std::int32_t& g : answer.groups) g = original[at(g)];
    answer.groups.insert(answer.groups.end(), given.split.begin(), given.split.end());
    std::sort(answer.groups.begin(), answer.groups.end());
    answer.score.value += before;
    answer.score.variables += variables;
    answer.bound += before;
  }
  return answers;
}

}  // namespace automap::partition
