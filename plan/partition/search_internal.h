// Shared code of the searchers.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/base/work.h"
#include "models/partition_problem.h"
#include "plan/partition/independent_set.h"
#include "plan/partition/partition_search.h"

namespace automap::partition::internal {

// Scores that fit into the memory come first, then those that are worth more; among those that do not fit, those that
// need less. Of equal value the faster plan.
bool better(const models::PartitionScore& a, const models::PartitionScore& b);

// An answer with `groups` sorted and scored; bound unknown.
PartitionAnswer make_answer(const models::PartitionProblem& problem, std::string algorithm,
                            std::vector<std::int32_t> groups);

// The searchers, on work that others share.
PartitionAnswer greedy(const models::PartitionProblem& problem, Work& work);
PartitionAnswer enumerate(const models::PartitionProblem& problem, Work& work);
PartitionAnswer cost(const models::PartitionProblem& problem, std::uint64_t seed, Work& work);

// Prices, units of work: a group that is looked at, and one that it excludes.
constexpr std::int64_t kPerGroup = 20, kPerExcluded = 4;
inline std::int64_t units_of(const models::PartitionGroup& group) {
  return kPerGroup + kPerExcluded * static_cast<std::int64_t>(group.excludes.size());
}

// Measures time, for reports only.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A set of groups that changes one group at a time.
class Choice {
 public:
  explicit Choice(const models::PartitionProblem& problem);
  bool has(std::int32_t group) const { return in_[static_cast<std::size_t>(group)] != 0; }
  // Chosen groups that exclude it.
  std::int32_t conflicts(std::int32_t group) const { return conflicts_[static_cast<std::size_t>(group)]; }
  void add(std::int32_t group);  // whatever it conflicts with
  void remove(std::int32_t group);
  // Takes out the groups that exclude it, then adds it.
  void put(std::int32_t group);
  // The change of value that put() would make; gain_bytes: of the bytes saved.
  double gain(std::int32_t group) const;
  double gain_bytes(std::int32_t group) const;
  double value() const { return value_; }
  double saved_bytes() const { return saved_bytes_; }
  std::vector<std::int32_t> groups() const;
  void clear();

 private:
  const models::PartitionProblem& problem_;
  std::vector<double> values_;
  std::vector<char> in_;
  std::vector<std::int32_t> conflicts_;
  double value_ = 0, saved_bytes_ = 0;
};

// Makes the change that loses least value per byte, until the choice fits or nothing helps. False: it does not fit.
bool make_fit(const models::PartitionProblem& problem, Choice* choice);

// Takes `group` out and everything in that it alone excluded, in the order of `place`, when that gains value. False: it
// does not, and nothing has changed.
bool make_room(const models::PartitionProblem& problem, const std::vector<std::int32_t>& place, std::int32_t group,
               double least_gain, Choice* choice);

// Bytes that a plan has to save; 0 or less: everything fits.
double needed_bytes(const models::PartitionProblem& problem);

}  // namespace automap::partition::internal
