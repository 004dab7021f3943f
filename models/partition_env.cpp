#include "models/partition_env.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::models {
namespace {

// The search for cliques takes about groups * exclusions steps; larger graphs do without.
constexpr std::size_t kMostCliqueSteps = 100000000;

float clamped(double x) {
  return static_cast<float>(std::clamp(x, -1.0, 1.0));
}

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// Compares two values, in [-1, 1]: 0 when they are equal, 1 when the other is nothing.
double comparison(double a, double b) {
  const double sum = std::abs(a) + std::abs(b);
  return sum > 0 ? (a - b) / sum : 0;
}

}  // namespace

const char* const PartitionEnv::kFeatureNames[kFeatures] = {
    "action",
    "second stage",
    "positions passed, share of this stage",
    "dimensions settled, share",
    "dimensions split, share",
    "bytes of split variables, share",
    "value so far, over the bound",
    "value of the greedy completion, over the bound",
    "greedy completion against that of the other action",
    "group's dimensions, share",
    "group's value, over the bound",
    "group's value, over the largest",
    "group's collectives against its savings",
    "group's memory saved, share",
    "undecided groups it excludes, share",
    "its value against the sum of those",
    "its value against a greedy choice of those",
    "its value against the best of those",
    "memory left, over the capacity",
    "memory left after the greedy completion, over the capacity",
    "objective",
    "value undecided, share",
    "sign of the group's value",
    "a greedy completion would take it later",
};

PartitionEnv::PartitionEnv(const PartitionProblem& problem, const PartitionEnvOptions& options)
    : problem_(&problem), options_(options), groups_(problem.groups.size()) {
  std::vector<std::int32_t> first;  // of a variable, in state_
  std::int32_t dims = 0;
  for (const PartitionVariable& variable : problem.variables) {
    first.push_back(dims);
    for (std::size_t d = 0; d < variable.dims.size(); ++d) {
      dim_variable_.push_back(static_cast<std::int32_t>(first.size()) - 1);
      dim_in_.push_back(static_cast<std::int32_t>(d));
      ++dims;
    }
    total_bytes_ += variable.bytes;
  }
  state_.assign(at(dims), 0);

  std::vector<bool> grouped(at(dims), false);
  dim_start_.push_back(0);
  neighbour_start_.push_back(0);
  for (std::size_t g = 0; g < groups_; ++g) {
    const PartitionGroup& group = problem.groups[g];
    double bytes = 0;
    for (const auto& [variable, dim] : group.members) {
      const std::int32_t position = first[at(variable)] + dim;
      grouped[at(position)] = true;
      dims_.push_back(position);
      bytes += problem.variables[at(variable)].bytes;
    }
    dim_start_.push_back(static_cast<std::int32_t>(dims_.size()));
    item_value_.push_back(problem.value(static_cast<std::int32_t>(g)));
    item_bytes_.push_back(bytes);
    if (item_value_[g] > 0) {
      by_value_.push_back(static_cast<std::int32_t>(g));
      total_positive_ += item_value_[g];
      largest_value_ = std::max(largest_value_, item_value_[g]);
    }
  }
  for (std::int32_t d = 0; d < dims; ++d) {
    if (grouped[at(d)]) continue;
    dims_.push_back(d);
    dim_start_.push_back(static_cast<std::int32_t>(dims_.size()));
    item_value_.push_back(0);
    item_bytes_.push_back(0);
  }
  const auto better = [this](std::int32_t a, std::int32_t b) {
    return item_value_[at(a)] != item_value_[at(b)] ? item_value_[at(a)] > item_value_[at(b)] : a < b;
  };
  std::sort(by_value_.begin(), by_value_.end(), better);
  for (const PartitionGroup& group : problem.groups) {
    const std::size_t start = neighbours_.size();
    neighbours_.insert(neighbours_.end(), group.excludes.begin(), group.excludes.end());
    std::sort(neighbours_.begin() + static_cast<std::ptrdiff_t>(start), neighbours_.end(), better);
    neighbour_start_.push_back(static_cast<std::int32_t>(neighbours_.size()));
  }

  order_.resize(options_.prune ? groups_ : item_value_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto size = [this](std::int32_t item) { return dim_start_[at(item) + 1] - dim_start_[at(item)]; };
  std::stable_sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
    const bool grouped_a = at(a) < groups_, grouped_b = at(b) < groups_;
    return grouped_a != grouped_b ? grouped_a : size(a) > size(b);
  });

  unsplit_ms_ = problem.compute_ms + problem.collective_ms;
  find_bound();
  scale_ = bound_ > 0 ? bound_ : problem.objective == PartitionObjective::kTime && unsplit_ms_ > 0 ? unsplit_ms_ : 1;
  mark_.assign(groups_, 0);
  reset();
}

void PartitionEnv::find_bound() {
  // A group's value spread over its variables; of each variable one dimension can be split.
  std::vector<double> most(problem_->variables.size(), 0);
  for (const std::int32_t g : by_value_) {
    const std::vector<std::pair<std::int32_t, std::int32_t>>& members = problem_->groups[at(g)].members;
    for (const auto& [variable, dim] : members) {
      most[at(variable)] = std::max(most[at(variable)], item_value_[at(g)] / static_cast<double>(members.size()));
    }
  }
  bound_ = std::accumulate(most.begin(), most.end(), 0.0);
  // Rounding must not push the bound below a value that is reached.
  const double slack = 1e-12 * total_positive_;
  if (problem_->objective == PartitionObjective::kCount) {
    bound_ = std::round(bound_);
  } else {
    bound_ += slack;
  }
  if (by_value_.size() * (by_value_.size() + neighbours_.size()) > kMostCliqueSteps) return;

  // Always the group with the least weight left, with as many of its neighbours as exclude each other: of a clique at
  // most one is split, so that this weight can be taken from all and added once.
  std::vector<double> left(groups_, 0);
  std::vector<std::int32_t> open(by_value_.rbegin(), by_value_.rend());
  for (const std::int32_t g : open) left[at(g)] = item_value_[at(g)];
  const auto adjacent = [this](std::int32_t a, std::int32_t b) {
    const std::vector<std::int32_t>& others = problem_->groups[at(a)].excludes;
    return std::binary_search(others.begin(), others.end(), b);
  };
  double cover = 0;
  std::vector<std::int32_t> clique;
  while (!open.empty()) {
    const auto least = std::min_element(open.begin(), open.end(),
                                        [&](std::int32_t a, std::int32_t b) { return left[at(a)] < left[at(b)]; });
    const std::int32_t g = *least;
    clique.assign(1, g);
    for (std::int32_t i = neighbour_start_[at(g)]; i < neighbour_start_[at(g) + 1]; ++i) {
      const std::int32_t other = neighbours_[at(i)];
      if (left[at(other)] <= 0) continue;
      if (std::all_of(clique.begin() + 1, clique.end(), [&](std::int32_t c) { return adjacent(c, other); })) {
        clique.push_back(other);
      }
    }
    const double weight = left[at(g)];
    cover += weight;
    for (const std::int32_t c : clique) left[at(c)] = c == g ? 0 : left[at(c)] - weight;
    open.erase(std::remove_if(open.begin(), open.end(), [&](std::int32_t o) { return left[at(o)] <= 0; }), open.end());
  }
  if (problem_->objective == PartitionObjective::kTime) cover += slack;
  bound_ = std::min(bound_, cover);
}

void PartitionEnv::reset() {
  std::fill(state_.begin(), state_.end(), std::int8_t{0});
  status_.assign(item_value_.size(), Status::kOpen);
  excluded_by_.assign(groups_, 0);
  stage_ = 1;
  conflict_ = false;
  total_reward_ = value_ = saved_bytes_ = split_bytes_ = 0;
  open_positive_ = total_positive_;
  settled_dims_ = split_dims_ = 0;
  open_items_ = static_cast<std::int32_t>(order_.size());
  if (options_.prune) {
    for (std::size_t item = groups_; item < status_.size(); ++item) {
      status_[item] = Status::kImpossible;
      state_[at(dims_[at(dim_start_[item])])] = -1;
      ++settled_dims_;
    }
  }
  next_position(0);
}

// Settles all dimensions of an item and returns what that pays.
double PartitionEnv::settle(std::int32_t item, std::int8_t value) {
  const std::int32_t begin = dim_start_[at(item)], end = dim_start_[at(item) + 1], size = end - begin;
  const bool paid = status_[at(item)] == Status::kReopened;
  for (std::int32_t i = begin; i < end; ++i) state_[at(dims_[at(i)])] = value;
  settled_dims_ += size;
  --open_items_;
  open_positive_ -= std::max(0.0, item_value_[at(item)]);
  if (problem_->objective == PartitionObjective::kTime) {
    return value > 0 ? share(item_value_[at(item)], unsplit_ms_) : 0;
  }
  return size * ((value > 0 ? kSplitReward : kWholeReward) - (paid ? kWholeReward : 0));
}

double PartitionEnv::step(int action) {
  AM_CHECK(!done() && (action == 0 || action == 1));
  const std::int32_t item = order_[static_cast<std::size_t>(position_)];
  const bool grouped = at(item) < groups_;
  double reward = 0;
  if (action == 1 && (!grouped || excluded_by_[at(item)] > 0)) {
    conflict_ = true;
    position_ = -1;
    total_reward_ += kConflictReward;
    return kConflictReward;
  }
  if (action == 1) {
    reward += settle(item, 1);
    status_[at(item)] = Status::kSplit;
    const std::int32_t size = dim_start_[at(item) + 1] - dim_start_[at(item)];
    split_dims_ += size;
    split_bytes_ += item_bytes_[at(item)];
    value_ += item_value_[at(item)];
    saved_bytes_ += problem_->groups[at(item)].saved_bytes;
    for (std::int32_t i = neighbour_start_[at(item)]; i < neighbour_start_[at(item) + 1]; ++i) {
      const std::int32_t other = neighbours_[at(i)];
      ++excluded_by_[at(other)];
      Status& status = status_[at(other)];
      if (!options_.prune) continue;
      if (status == Status::kOpen || status == Status::kReopened) {
        reward += settle(other, -1);
        status = Status::kExcluded;
      }
    }
  } else {
    reward += settle(item, -1);
    status_[at(item)] = Status::kAgainst;
  }
  next_position(static_cast<std::size_t>(position_) + 1);
  if (done() && !fits()) reward -= 1;
  total_reward_ += reward;
  return reward;
}

void PartitionEnv::next_position(std::size_t from) {
  for (;;) {
    for (std::size_t i = from; i < order_.size(); ++i) {
      const Status status = status_[at(order_[i])];
      if (status == Status::kOpen || status == Status::kReopened) {
        position_ = static_cast<std::ptrdiff_t>(i);
        return;
      }
    }
    position_ = -1;
    if (stage_ == 2 || !options_.second_stage) return;
    bool reopened = false;
    for (const std::int32_t item : order_) {
      if (status_[at(item)] != Status::kAgainst || (at(item) < groups_ && excluded_by_[at(item)] > 0)) continue;
      status_[at(item)] = Status::kReopened;
      for (std::int32_t i = dim_start_[at(item)]; i < dim_start_[at(item) + 1]; ++i) {
        state_[at(dims_[at(i)])] = 0;
        --settled_dims_;
      }
      ++open_items_;
      open_positive_ += std::max(0.0, item_value_[at(item)]);
      reopened = true;
    }
    if (!reopened) return;
    stage_ = 2;
    from = 0;
  }
}

int PartitionEnv::most_decisions() const {
  return static_cast<int>(order_.size()) * (options_.second_stage ? 2 : 1);
}

std::int32_t PartitionEnv::variable() const {
  return dim_variable_[at(dims_[at(dim_start_[at(order_[static_cast<std::size_t>(position_)])])])];
}

std::int32_t PartitionEnv::dimension() const {
  return dim_in_[at(dims_[at(dim_start_[at(order_[static_cast<std::size_t>(position_)])])])];
}

std::int32_t PartitionEnv::group() const {
  const std::int32_t item = order_[static_cast<std::size_t>(position_)];
  return at(item) < groups_ ? item : -1;
}

std::vector<std::int32_t> PartitionEnv::chosen() const {
  std::vector<std::int32_t> out;
  for (std::size_t g = 0; g < groups_; ++g) {
    if (status_[g] == Status::kSplit) out.push_back(static_cast<std::int32_t>(g));
  }
  return out;
}

// Over the capacity; 1 without one.
double PartitionEnv::memory_margin(double saved_bytes) const {
  const double capacity = problem_->capacity_bytes;
  return capacity > 0 ? (capacity - (problem_->memory_bytes - saved_bytes)) / capacity : 1;
}

bool PartitionEnv::fits() const {
  // As score() says it.
  return problem_->capacity_bytes <= 0 || problem_->memory_bytes - saved_bytes_ <= problem_->capacity_bytes + 0.5;
}

float PartitionEnv::shortfall() const {
  if (conflict_) return kInfeasibleY;
  if (!fits()) return static_cast<float>(2 + std::min(1.0, -memory_margin(saved_bytes_)));
  const double s = std::max(0.0, (bound_ - value_) / scale_);
  return static_cast<float>(s <= 1 ? s : 2 - 1 / s);
}

// The result of always taking the most valuable open group after `action` at `item`: first those that this stage still
// asks for, then those that the next one will.
PartitionEnv::Completion PartitionEnv::complete(std::int32_t item, int action) const {
  Completion out{value_, saved_bytes_, false};
  ++stamp_;
  const auto take = [&](std::int32_t g) {
    out.value += item_value_[at(g)];
    out.saved_bytes += problem_->groups[at(g)].saved_bytes;
    for (std::int32_t i = neighbour_start_[at(g)]; i < neighbour_start_[at(g) + 1]; ++i) {
      mark_[at(neighbours_[at(i)])] = stamp_;
    }
    mark_[at(g)] = stamp_;
  };
  const bool grouped = at(item) < groups_;
  if (action == 1 && grouped && excluded_by_[at(item)] == 0) take(item);
  for (const std::int32_t g : by_value_) {
    const Status status = status_[at(g)];
    if ((status != Status::kOpen && status != Status::kReopened) || g == item) continue;
    if (mark_[at(g)] != stamp_ && excluded_by_[at(g)] == 0) take(g);
  }
  if (stage_ == 1 && options_.second_stage) {
    for (const std::int32_t g : by_value_) {
      const Status status = status_[at(g)];
      if (status != Status::kAgainst && !(g == item && action == 0)) continue;
      if (mark_[at(g)] == stamp_ || excluded_by_[at(g)] > 0) continue;
      take(g);
      out.takes = out.takes || g == item;
    }
  }
  return out;
}

void PartitionEnv::features(float* out) const {
  AM_DCHECK(!done());
  if (stamp_ > 0xfffffff0u) {
    std::fill(mark_.begin(), mark_.end(), 0u);
    stamp_ = 0;
  }
  const std::int32_t item = order_[static_cast<std::size_t>(position_)];
  const bool grouped = at(item) < groups_, possible = grouped && excluded_by_[at(item)] == 0;
  const double value = item_value_[at(item)];
  const auto size = static_cast<double>(dim_start_[at(item) + 1] - dim_start_[at(item)]);
  const auto dims = static_cast<double>(state_.size());

  // The groups that splitting it would exclude.
  double sum = 0, best = 0, greedy = 0, excluded_dims = 0;
  std::int32_t excluded = 0;
  if (grouped) {
    ++stamp_;
    for (std::int32_t i = neighbour_start_[at(item)]; i < neighbour_start_[at(item) + 1]; ++i) {
      const std::int32_t other = neighbours_[at(i)];
      const Status status = status_[at(other)];
      if (status != Status::kOpen && status != Status::kReopened) continue;
      ++excluded;
      excluded_dims += dim_start_[at(other) + 1] - dim_start_[at(other)];
      const double theirs = item_value_[at(other)];
      if (theirs <= 0 || excluded_by_[at(other)] > 0) continue;
      sum += theirs;
      best = std::max(best, theirs);
      if (mark_[at(other)] == stamp_) continue;
      greedy += theirs;
      for (std::int32_t j = neighbour_start_[at(other)]; j < neighbour_start_[at(other) + 1]; ++j) {
        mark_[at(neighbours_[at(j)])] = stamp_;
      }
    }
  }
  const Completion completion[kActions] = {complete(item, 0), complete(item, 1)};
  const PartitionGroup* group = grouped ? &problem_->groups[at(item)] : nullptr;
  const double positive = std::max(0.0, value);
  const double group_saved = group ? group->saved_ms : 0, group_collective = group ? group->collective_ms : 0;
  const double group_bytes = group ? group->saved_bytes : 0;
  for (int action = 0; action < kActions; ++action) {
    float* f = out + action * kFeatures;
    const bool split = action == 1;
    const Completion &mine = completion[action], &other = completion[1 - action];
    *f++ = split ? 1.0f : -1.0f;
    *f++ = stage_ == 2 ? 1.0f : 0.0f;
    *f++ = clamped(share(static_cast<double>(position_) + 1, static_cast<double>(order_.size())));
    *f++ = clamped(share(settled_dims_ + size + (split && options_.prune ? excluded_dims : 0), dims));
    *f++ = clamped(share(split_dims_ + (split ? size : 0), dims));
    *f++ = clamped(share(split_bytes_ + (split ? item_bytes_[at(item)] : 0), total_bytes_));
    *f++ = clamped((value_ + (split ? value : 0)) / scale_);
    *f++ = clamped(mine.value / scale_);
    const double difference = mine.value - other.value;
    *f++ = clamped(share(difference, std::abs(difference) + std::abs(value)));
    *f++ = clamped(share(size, dims));
    *f++ = clamped(value / scale_);
    *f++ = clamped(share(value, largest_value_));
    *f++ = clamped(comparison(group_collective, group_saved));
    *f++ = clamped(share(group_bytes, problem_->memory_bytes));
    *f++ = clamped(share(excluded, open_items_));
    *f++ = clamped(comparison(value, sum));
    *f++ = clamped(comparison(value, greedy));
    *f++ = clamped(comparison(value, best));
    *f++ = clamped(memory_margin(saved_bytes_ + (split ? group_bytes : 0)));
    *f++ = clamped(memory_margin(mine.saved_bytes));
    *f++ = problem_->objective == PartitionObjective::kTime ? 1.0f : 0.0f;
    *f++ = clamped(share(open_positive_ - positive - (split ? sum : 0), total_positive_));
    *f++ = value > 0 ? 1.0f : value < 0 ? -1.0f : 0.0f;
    *f++ = mine.takes ? 1.0f : !possible ? -1.0f : 0.0f;
    AM_DCHECK(f == out + (action + 1) * kFeatures);
  }
}

}  // namespace automap::models
