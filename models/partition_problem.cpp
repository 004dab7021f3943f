#include "models/partition_problem.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"

namespace automap::models {

namespace {

// Bytes are whole; sums of their shares are not, to the last bit.
constexpr double kHalfByte = 0.5;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kInternal, "partition problem: " + what, "this is a bug in AutoMap; please report it");
}

std::string text(const std::pair<std::int32_t, std::int32_t>& member) {
  return "(variable " + std::to_string(member.first) + ", dimension " + std::to_string(member.second) + ")";
}

void check_number(double value, const char* name) {
  if (!std::isfinite(value) || value < 0) fail(std::string(name) + " is " + std::to_string(value));
}

}  // namespace

std::int32_t PartitionProblem::num_dims() const {
  std::size_t sum = 0;
  for (const PartitionVariable& variable : variables) sum += variable.dims.size();
  return static_cast<std::int32_t>(sum);
}

double PartitionProblem::value(std::int32_t group) const {
  const PartitionGroup& g = groups[static_cast<std::size_t>(group)];
  if (objective == PartitionObjective::kCount) return static_cast<double>(g.members.size());
  return g.saved_ms - g.collective_ms;
}

void check_partition_problem(const PartitionProblem& problem) {
  const auto num_variables = static_cast<std::int32_t>(problem.variables.size());
  const auto num_groups = static_cast<std::int32_t>(problem.groups.size());
  check_number(problem.compute_ms, "compute_ms");
  check_number(problem.collective_ms, "collective_ms");
  check_number(problem.memory_bytes, "memory_bytes");
  check_number(problem.capacity_bytes, "capacity_bytes");
  std::vector<std::vector<std::int32_t>> owner(
      problem.variables.size());  // of every dimension: group, -1, -2 impossible
  for (std::size_t v = 0; v < problem.variables.size(); ++v) owner[v].assign(problem.variables[v].dims.size(), -1);
  const auto claim = [&](const std::pair<std::int32_t, std::int32_t>& member, std::int32_t by) {
    if (member.first < 0 || member.first >= num_variables) fail(text(member) + " is not among the variables");
    auto& dims = owner[static_cast<std::size_t>(member.first)];
    if (member.second < 0 || member.second >= static_cast<std::int32_t>(dims.size()))
      fail(text(member) + " is not among the dimensions");
    if (dims[static_cast<std::size_t>(member.second)] != -1) fail(text(member) + " stands in two places");
    dims[static_cast<std::size_t>(member.second)] = by;
  };
  for (std::int32_t g = 0; g < num_groups; ++g) {
    const PartitionGroup& group = problem.groups[static_cast<std::size_t>(g)];
    const std::string name = "group " + std::to_string(g);
    if (group.members.empty()) fail(name + " is empty");
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      if (i > 0 && group.members[i].first <= group.members[i - 1].first)
        fail(name + ": members are not ascending, or two are of one variable");
      claim(group.members[i], g);
    }
    check_number(group.saved_ms, "saved_ms");
    check_number(group.collective_ms, "collective_ms");
    check_number(group.saved_bytes, "saved_bytes");
    check_number(group.collective_bytes, "collective_bytes");
    if (group.collectives < 0) fail(name + ": collectives below 0");
    for (std::size_t i = 0; i < group.excludes.size(); ++i) {
      const std::int32_t other = group.excludes[i];
      if (other < 0 || other >= num_groups || other == g) fail(name + " excludes " + std::to_string(other));
      if (i > 0 && other <= group.excludes[i - 1]) fail(name + ": exclusions are not ascending");
      const auto& back = problem.groups[static_cast<std::size_t>(other)].excludes;
      if (!std::binary_search(back.begin(), back.end(), g))
        fail(name + " excludes " + std::to_string(other) + ", but not the other way round");
    }
  }
  for (std::size_t i = 0; i < problem.impossible.size(); ++i) {
    if (i > 0 && !(problem.impossible[i - 1] < problem.impossible[i])) fail("impossible dimensions are not ascending");
    claim(problem.impossible[i], -2);
  }
  for (const auto& dims : owner) {
    for (std::size_t a = 0; a < dims.size(); ++a) {
      for (std::size_t b = a + 1; b < dims.size(); ++b) {
        if (dims[a] < 0 || dims[b] < 0) continue;
        const auto& excludes = problem.groups[static_cast<std::size_t>(dims[a])].excludes;
        if (!std::binary_search(excludes.begin(), excludes.end(), dims[b]))
          fail("groups " + std::to_string(dims[a]) + " and " + std::to_string(dims[b]) +
               " hold two dimensions of one variable and do not exclude each other");
      }
    }
  }
}

PartitionScore score(const PartitionProblem& problem, const std::vector<std::int32_t>& chosen) {
  // Sums in ascending order, whatever the order of the choice: equal choices have equal scores.
  std::vector<std::int32_t> sorted = chosen;
  std::sort(sorted.begin(), sorted.end());
  PartitionScore result;
  double saved_ms = 0, saved_bytes = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const PartitionGroup& group = problem.groups[static_cast<std::size_t>(sorted[i])];
    result.variables += static_cast<std::int32_t>(group.members.size());
    result.value += problem.value(sorted[i]);
    saved_ms += group.saved_ms;
    saved_bytes += group.saved_bytes;
    result.collective_ms += group.collective_ms;
    result.collective_bytes += group.collective_bytes;
    if (result.conflict) continue;
    // The shorter list is looked up in the longer one: a choice may be of ten thousand groups that exclude nothing.
    const auto rest = sorted.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const auto& excludes = group.excludes;
    result.conflict =
        (rest != sorted.end() && *rest == sorted[i]) ||
        (excludes.size() < static_cast<std::size_t>(sorted.end() - rest)
             ? std::any_of(excludes.begin(), excludes.end(),
                           [&](std::int32_t other) { return std::binary_search(rest, sorted.end(), other); })
             : std::any_of(rest, sorted.end(), [&](std::int32_t other) {
                 return std::binary_search(excludes.begin(), excludes.end(), other);
               }));
  }
  result.compute_ms = std::max(0.0, problem.compute_ms - saved_ms);
  result.collective_ms += problem.collective_ms;
  result.step_ms = result.compute_ms + result.collective_ms;
  result.memory_bytes = std::max(0.0, problem.memory_bytes - saved_bytes);
  result.fits = problem.capacity_bytes <= 0 || result.memory_bytes <= problem.capacity_bytes + kHalfByte;
  return result;
}

}  // namespace automap::models
