#include <algorithm>
#include <limits>
#include <numeric>

#include "common/base/numbers.h"
#include "plan/partition/search_internal.h"

namespace automap::partition {
namespace internal {

bool better(const models::PartitionScore& a, const models::PartitionScore& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits && a.memory_bytes != b.memory_bytes) return a.memory_bytes < b.memory_bytes;
  if (a.value != b.value) return a.value > b.value;
  return a.step_ms < b.step_ms;
}

PartitionAnswer make_answer(const models::PartitionProblem& problem, std::string algorithm,
                            std::vector<std::int32_t> groups) {
  std::sort(groups.begin(), groups.end());
  PartitionAnswer answer;
  answer.algorithm = std::move(algorithm);
  answer.score = models::score(problem, groups);
  answer.groups = std::move(groups);
  answer.bound = std::numeric_limits<double>::infinity();
  return answer;
}

double needed_bytes(const models::PartitionProblem& problem) {
  return problem.capacity_bytes > 0 ? problem.memory_bytes - problem.capacity_bytes : 0;
}

Choice::Choice(const models::PartitionProblem& problem)
    : problem_(problem), in_(problem.groups.size(), 0), conflicts_(problem.groups.size(), 0) {
  for (std::size_t g = 0; g < problem.groups.size(); ++g)
    values_.push_back(problem.value(static_cast<std::int32_t>(g)));
}

void Choice::add(std::int32_t group) {
  if (has(group)) return;
  in_[at(group)] = 1;
  value_ += values_[at(group)];
  saved_bytes_ += problem_.groups[at(group)].saved_bytes;
  for (const std::int32_t other : problem_.groups[at(group)].excludes) ++conflicts_[at(other)];
}

void Choice::remove(std::int32_t group) {
  if (!has(group)) return;
  in_[at(group)] = 0;
  value_ -= values_[at(group)];
  saved_bytes_ -= problem_.groups[at(group)].saved_bytes;
  for (const std::int32_t other : problem_.groups[at(group)].excludes) --conflicts_[at(other)];
}

void Choice::put(std::int32_t group) {
  for (const std::int32_t other : problem_.groups[at(group)].excludes) remove(other);
  add(group);
}

double Choice::gain(std::int32_t group) const {
  if (has(group)) return 0;
  double sum = values_[at(group)];
  if (conflicts(group) == 0) return sum;
  for (const std::int32_t other : problem_.groups[at(group)].excludes) {
    if (has(other)) sum -= values_[at(other)];
  }
  return sum;
}

double Choice::gain_bytes(std::int32_t group) const {
  if (has(group)) return 0;
  double sum = problem_.groups[at(group)].saved_bytes;
  for (const std::int32_t other : problem_.groups[at(group)].excludes) {
    if (has(other)) sum -= problem_.groups[at(other)].saved_bytes;
  }
  return sum;
}

std::vector<std::int32_t> Choice::groups() const {
  std::vector<std::int32_t> out;
  for (std::size_t g = 0; g < in_.size(); ++g) {
    if (in_[g] != 0) out.push_back(static_cast<std::int32_t>(g));
  }
  return out;
}

void Choice::clear() {
  std::fill(in_.begin(), in_.end(), 0);
  std::fill(conflicts_.begin(), conflicts_.end(), 0);
  value_ = saved_bytes_ = 0;
}

bool make_fit(const models::PartitionProblem& problem, Choice* choice) {
  const double need = needed_bytes(problem);
  if (need <= 0) return true;
  const auto n = static_cast<std::int32_t>(problem.groups.size());
  // Takes `group` out and puts in the groups that only it excluded, the largest first.
  const auto replace = [&](std::int32_t group) {
    std::vector<std::int32_t> freed;
    for (const std::int32_t other : problem.groups[at(group)].excludes) {
      if (choice->conflicts(other) == 1) freed.push_back(other);
    }
    std::stable_sort(freed.begin(), freed.end(), [&](std::int32_t a, std::int32_t b) {
      return problem.groups[at(a)].saved_bytes > problem.groups[at(b)].saved_bytes;
    });
    choice->remove(group);
    std::vector<std::int32_t> added;
    for (const std::int32_t other : freed) {
      if (choice->conflicts(other) != 0) continue;
      choice->add(other);
      added.push_back(other);
    }
    return added;
  };
  // Every change saves more, so this ends; rounding must not let two groups take turns for ever.
  constexpr double kLeastBytes = 0.01;
  while (!models::score(problem, choice->groups()).fits) {
    std::int32_t best = -1;
    double best_price = std::numeric_limits<double>::infinity(), best_bytes = 0;
    const double value = choice->value(), saved = choice->saved_bytes();
    const double missing = std::max(1.0, need - saved);
    for (std::int32_t g = 0; g < n; ++g) {
      double gain = 0, bytes = 0;
      if (choice->has(g)) {
        const std::vector<std::int32_t> added = replace(g);
        gain = choice->value() - value;
        bytes = choice->saved_bytes() - saved;
        for (const std::int32_t other : added) choice->remove(other);
        choice->add(g);
      } else {
        gain = choice->gain(g);
        bytes = choice->gain_bytes(g);
      }
      if (bytes <= kLeastBytes) continue;
      // Bytes beyond the missing ones are worth nothing.
      const double price = -gain / std::min(bytes, missing);
      if (price < best_price || (price == best_price && bytes > best_bytes)) {
        best = g;
        best_price = price;
        best_bytes = bytes;
      }
    }
    if (best < 0) return false;
    if (choice->has(best)) {
      replace(best);
    } else {
      choice->put(best);
    }
  }
  return true;
}

bool make_room(const models::PartitionProblem& problem, const std::vector<std::int32_t>& place, std::int32_t group,
               double least_gain, Choice* choice) {
  std::vector<std::int32_t> freed;
  double most = 0;
  for (const std::int32_t other : problem.groups[at(group)].excludes) {
    if (choice->conflicts(other) != 1 || problem.value(other) <= 0) continue;
    freed.push_back(other);
    most += problem.value(other);
  }
  if (most - problem.value(group) <= least_gain) return false;
  std::sort(freed.begin(), freed.end(), [&](std::int32_t a, std::int32_t b) { return place[at(a)] < place[at(b)]; });
  const double before = choice->value();
  choice->remove(group);
  std::vector<std::int32_t> added;
  for (const std::int32_t other : freed) {
    if (choice->conflicts(other) != 0) continue;
    choice->add(other);
    added.push_back(other);
  }
  if (choice->value() - before > least_gain) return true;
  for (const std::int32_t other : added) choice->remove(other);
  choice->add(group);
  return false;
}

}  // namespace internal

PartitionAnswer internal::greedy(const models::PartitionProblem& problem, Work& work) {
  const Stopwatch watch;
  const auto n = static_cast<std::int32_t>(problem.groups.size());
  const bool count = problem.objective == models::PartitionObjective::kCount;
  // The paper's order: by the number of variables that a decision settles. Equal ones: the faster, then the first.
  std::vector<std::int32_t> order(problem.groups.size());
  std::iota(order.begin(), order.end(), 0);
  const auto time_value = [&](std::int32_t g) {
    const models::PartitionGroup& group = problem.groups[static_cast<std::size_t>(g)];
    return group.saved_ms - group.collective_ms;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const double va = problem.value(a), vb = problem.value(b);
    if (va != vb) return va > vb;
    return time_value(a) > time_value(b);
  });

  Choice choice(problem);
  for (const std::int32_t g : order) {
    if (choice.conflicts(g) == 0 && (count || problem.value(g) > 0)) choice.add(g);
  }
  const double first_seconds = watch.seconds();
  const models::PartitionScore first = models::score(problem, choice.groups());

  // Second stage: variables that are replicated are looked at again. A group that was turned down takes the place of
  // the groups that exclude it when that is worth more, and a group makes room for all that it alone excludes when
  // those are worth more together. Every change gains, so this ends.
  double total = 0;
  for (std::int32_t g = 0; g < n; ++g) total += std::abs(problem.value(g));
  const double least_gain = 1e-12 * total;
  std::int64_t reopened = 0;
  std::vector<std::int32_t> place(problem.groups.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    place[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  for (bool changed = true; changed && !work.over();) {
    changed = false;
    for (std::int32_t g = 0; g < n && !work.over(); ++g) {
      work.spend(units_of(problem.groups[static_cast<std::size_t>(g)]));
      if (choice.has(g)) {
        if (!internal::make_room(problem, place, g, least_gain, &choice)) continue;
      } else {
        if (choice.gain(g) <= least_gain) continue;
        choice.put(g);
      }
      ++reopened;
      changed = true;
    }
    // Adds groups that a change has freed.
    for (const std::int32_t g : order) {
      if (choice.conflicts(g) != 0 || choice.has(g) || problem.value(g) <= least_gain) continue;
      choice.add(g);
      changed = true;
    }
  }
  internal::make_fit(problem, &choice);
  PartitionAnswer answer = internal::make_answer(problem, "greedy", choice.groups());
  answer.seconds = watch.seconds();
  answer.statistics = {
      {"first_stage_variables", first.variables}, {"first_stage_value", first.value},
      {"first_stage_seconds", first_seconds},     {"second_stage_variables", answer.score.variables},
      {"second_stage_value", answer.score.value}, {"second_stage_seconds", answer.seconds - first_seconds},
      {"reopened", static_cast<double>(reopened)}};
  return answer;
}

}  // namespace automap::partition
