// A partitioning problem without its module: the linkage groups of variable dimensions that can be split, the value of
// each, and their exclusions. Searchers and the learning environment (partition_env.h) see only this.
//
// Splitting group g is worth `value(g)` whatever else is split (values are additive: docs/sharding.md says where that
// is exact), so the best plan is a maximum-weight independent set of the exclusion graph, under the memory limit.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace automap::models {

struct PartitionVariable {
  std::string name;
  std::vector<std::int64_t> dims;
  double bytes = 0;
};

struct PartitionGroup {
  // (variable, dimension), ascending; at most one dimension per variable. Not empty.
  std::vector<std::pair<std::int32_t, std::int32_t>> members;
  double saved_ms = 0;       // compute time less per step and device when it is split, >= 0
  double collective_ms = 0;  // collectives more, >= 0
  double saved_bytes = 0;    // memory less per device, >= 0
  double collective_bytes = 0;
  std::int32_t collectives = 0;
  std::vector<std::int32_t> excludes;  // other groups, ascending, symmetric
};

enum class PartitionObjective : std::uint8_t {
  kCount,  // the paper's: most partitioned variables
  kTime,   // least estimated step time within the memory
};

struct PartitionProblem {
  std::vector<PartitionVariable> variables;
  // Only groups that can be split and hold a variable.
  std::vector<PartitionGroup> groups;
  // Dimensions of the variables that cannot be split at all (no group), ascending.
  std::vector<std::pair<std::int32_t, std::int32_t>> impossible;
  double compute_ms = 0;      // of a step with nothing split
  double collective_ms = 0;   // that every plan pays
  double memory_bytes = 0;    // per device with nothing split
  double capacity_bytes = 0;  // of a device; 0: no limit
  PartitionObjective objective = PartitionObjective::kCount;

  std::int32_t num_dims() const;  // over all variables
  // kCount: number of variables it partitions. kTime: saved_ms - collective_ms.
  double value(std::int32_t group) const;
};

// Throws Error(kInternal) when members, exclusions or numbers are not as promised above.
void check_partition_problem(const PartitionProblem& problem);

struct PartitionScore {
  std::int32_t variables = 0;  // partitioned
  double value = 0;            // sum of value()
  double step_ms = 0, compute_ms = 0, collective_ms = 0, memory_bytes = 0, collective_bytes = 0;
  bool fits = true;       // memory
  bool conflict = false;  // two chosen groups exclude each other
};
PartitionScore score(const PartitionProblem& problem, const std::vector<std::int32_t>& chosen);

}  // namespace automap::models
