// Random partitioning problems, small and large, for the tests of the environment and of the searchers on it.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "common/base/rng.h"
#include "models/partition_problem.h"

namespace automap::models {

struct RandomProblemOptions {
  int variables = 12, groups = 8;
  double impossible = 0.2;  // share of dimensions
  double exclusions = 0.1;  // pairs of groups beyond those of one variable
  PartitionObjective objective = PartitionObjective::kCount;
  double capacity = 0;  // over the memory with nothing split; 0: no limit
};

inline PartitionProblem random_partition_problem(const RandomProblemOptions& options, std::uint64_t seed) {
  Rng rng(seed, 77, 0);
  PartitionProblem problem;
  problem.objective = options.objective;
  std::vector<PartitionGroup> groups(static_cast<std::size_t>(options.groups));
  std::set<std::pair<std::size_t, std::size_t>> excluding;
  std::vector<std::vector<int>> of_variable;
  for (std::int32_t v = 0; v < options.variables; ++v) {
    PartitionVariable variable;
    variable.name = "v" + std::to_string(v);
    variable.dims.assign(rng.below(4), 16);
    variable.bytes = static_cast<double>(1 + rng.below(1000));
    std::vector<int> used;
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(variable.dims.size()); ++d) {
      const int g = options.groups > 0 ? static_cast<int>(rng.below(static_cast<std::uint64_t>(options.groups))) : 0;
      const bool taken = std::find(used.begin(), used.end(), g) != used.end();
      if (options.groups == 0 || taken || rng.uniform() < options.impossible) {
        problem.impossible.emplace_back(v, d);
        continue;
      }
      groups[static_cast<std::size_t>(g)].members.emplace_back(v, d);
      used.push_back(g);
    }
    of_variable.push_back(used);
    problem.variables.push_back(variable);
  }
  // Only groups with members stay.
  std::vector<std::int32_t> number(groups.size(), -1);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].members.empty()) continue;
    number[g] = static_cast<std::int32_t>(problem.groups.size());
    problem.groups.push_back(groups[g]);
  }
  for (const std::vector<int>& used : of_variable) {
    for (const int a : used) {
      for (const int b : used) {
        if (a != b) excluding.emplace(number[static_cast<std::size_t>(a)], number[static_cast<std::size_t>(b)]);
      }
    }
  }
  for (std::size_t a = 0; a < problem.groups.size(); ++a) {
    for (std::size_t b = a + 1; b < problem.groups.size(); ++b) {
      if (rng.uniform() >= options.exclusions) continue;
      excluding.emplace(a, b);
      excluding.emplace(b, a);
    }
  }
  for (const auto& [a, b] : excluding) problem.groups[a].excludes.push_back(static_cast<std::int32_t>(b));
  double saved_bytes = 0;
  for (PartitionGroup& group : problem.groups) {
    group.saved_ms = rng.uniform(0, 2);
    group.collective_ms = rng.uniform() < 0.3 ? 0 : rng.uniform(0, 1.5);
    group.saved_bytes = rng.uniform(0, 1000);
    group.collective_bytes = 1000 * group.collective_ms;
    group.collectives = group.collective_ms > 0 ? 1 : 0;
    problem.compute_ms += 1.2 * group.saved_ms;
    saved_bytes += group.saved_bytes;
  }
  problem.collective_ms = 0.5;
  problem.memory_bytes = 1.5 * saved_bytes + 10;
  problem.capacity_bytes = options.capacity * problem.memory_bytes;
  return problem;
}

}  // namespace automap::models
