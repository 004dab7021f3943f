#include "common/pipeline/exact_tables.h"

#include <algorithm>
#include <cmath>

#include "common/base/numbers.h"

namespace automap::pipeline::internal {
namespace {

constexpr double kSumRounding = 1e-12;
constexpr std::int64_t kPerEntry = 2;  // units of work: an entry of a column

void append(Points& points, const Problem& problem, int first, int last) {
  points.first_cut.push_back(first);
  points.last_cut.push_back(last);
  points.work_low.push_back(problem.work_ms(0, first));
  points.work_high.push_back(problem.work_ms(0, last));
  points.gradient_low.push_back(problem.gradient_bytes(0, first));
  points.gradient_high.push_back(problem.gradient_bytes(0, last));
  points.last_bucket.push_back(problem.last_bucket_bytes(first));
  points.activation.push_back(problem.activation_bytes(first));
  points.activation_high.push_back(problem.activation_bytes(first));
  points.variables_low.push_back(problem.variables(0, first));
  points.variables_high.push_back(problem.variables(0, last));
}

}  // namespace

Points exact_points(const Problem& problem, const std::vector<int>& cuts) {
  Points points;
  append(points, problem, 0, 0);
  for (int cut : cuts) append(points, problem, cut, cut);
  append(points, problem, problem.num_instructions(), problem.num_instructions());
  return points;
}

Points run_points(const Problem& problem, const std::vector<int>& cuts, const Runs& runs) {
  Points points;
  append(points, problem, 0, 0);
  for (const auto& run : runs) {
    append(points, problem, cuts[at(run.first)], cuts[at(run.second)]);
    for (int i = run.first + 1; i <= run.second; ++i) {
      const double bytes = problem.activation_bytes(cuts[at(i)]);
      points.last_bucket.back() = std::min(points.last_bucket.back(), problem.last_bucket_bytes(cuts[at(i)]));
      points.activation.back() = std::min(points.activation.back(), bytes);
      points.activation_high.back() = std::max(points.activation_high.back(), bytes);
    }
  }
  append(points, problem, problem.num_instructions(), problem.num_instructions());
  return points;
}

StageTables::StageTables(const Problem& problem, const Points& points) : problem_(problem), points_(points) {
  for (std::size_t i = 0; i < points.size(); ++i) relaxed_ = relaxed_ || points.several(i);
  const ProblemOptions& options = problem.options();
  const int n = problem.num_instructions();
  // With whole replicas, a group of one device may have no columns.
  if (options.replicas != Replicas::kFractional) return;
  const StageColumns& columns = problem.columns(problem.group(0, 1), 0);
  plain_ = options.gradient_sync == GradientSync::kAfter && problem.num_variants() == 1 && columns.optimizer[n] == 0;
  if (plain_) backward_share_ = columns.backward[n] / columns.both[n];
}

std::size_t StageTables::place(const DeviceGroup& group, int variant) const {
  return at(group.columns + variant);
}

const PointColumns& StageTables::columns(const DeviceGroup& group, int variant) {
  const std::size_t which = place(group, variant);
  if (which >= columns_.size()) columns_.resize(which + 1);
  if (columns_[which] != nullptr) return *columns_[which];
  columns_[which] = std::make_unique<PointColumns>();
  PointColumns& made = *columns_[which];
  const StageColumns& from = problem_.columns(group, variant);
  const auto gather = [&](const double* column, const std::vector<int>& cuts, std::vector<double>& into) {
    into.reserve(cuts.size());
    for (const int cut : cuts) into.push_back(column[cut]);
    units_ += kPerEntry * static_cast<std::int64_t>(cuts.size());
  };
  gather(from.both, points_.first_cut, made.both_low);
  gather(from.both, points_.last_cut, made.both_high);
  gather(from.backward, points_.first_cut, made.backward_low);
  gather(from.backward, points_.last_cut, made.backward_high);
  gather(from.optimizer, points_.first_cut, made.optimizer_low);
  gather(from.optimizer, points_.last_cut, made.optimizer_high);
  return made;
}

// Calls visit(p0, p1) for neighbouring cuts that stages may have until it returns false: a property of all of these is
// one of every stage.
template <typename Visit>
bool StageTables::for_each_cut(const Visit& visit) const {
  if (relaxed_) {
    for (int p = 1; p <= problem_.num_instructions(); ++p) {
      if (!visit(p - 1, p)) return false;
    }
  } else {
    for (std::size_t i = 1; i < points_.size(); ++i) {
      if (!visit(points_.first_cut[i - 1], points_.first_cut[i])) return false;
    }
  }
  return true;
}

bool StageTables::may_fit_cuts(int p0, int p1, const DeviceGroup& group, int variant, int in_flight) const {
  if (!problem_.options().memory || p0 >= p1) return true;
  const StageColumns& c = problem_.columns(group, variant);
  return c.state[p1] - c.state[p0] + c.workspace(p0, p1) * group.stash_scale +
             (c.stash[p1] - c.stash[p0]) * group.stash_scale * in_flight <=
         group.capacity_bytes;
}

int StageTables::may_be_in_flight(std::size_t i, std::size_t j, const DeviceGroup& group, int variant) const {
  const int p0 = points_.last_cut[i], p1 = points_.first_cut[j], most = problem_.micro_batches();
  if (!problem_.options().memory || p0 >= p1) return most;
  const StageColumns& c = problem_.columns(group, variant);
  const double room = group.capacity_bytes - (c.state[p1] - c.state[p0]) - c.workspace(p0, p1) * group.stash_scale;
  if (room < 0) return 0;
  // A little more than room / each, so that rounding does not take one away.
  const double each = (c.stash[p1] - c.stash[p0]) * group.stash_scale * (1 - kSumRounding);
  return each * most <= room ? most : static_cast<int>(room / each);
}

bool StageTables::fits(std::size_t i, std::size_t j, const DeviceGroup& group, int variant, int in_flight) const {
  if (points_.several(i)) return may_fit(i, j, group, variant, in_flight);
  return !problem_.options().memory || problem_.memory_bytes(points_.first_cut[i], points_.first_cut[j], group,
                                                             in_flight, variant) <= group.capacity_bytes;
}

int StageTables::most_in_flight(std::size_t i, std::size_t j, const DeviceGroup& group, int variant) const {
  if (points_.several(i)) return may_be_in_flight(i, j, group, variant);
  return problem_.most_in_flight(points_.first_cut[i], points_.first_cut[j], group, variant);
}

bool StageTables::memory_binds(const DeviceGroup& group, int variant, int in_flight) const {
  if (!problem_.options().memory) return false;
  const int n = problem_.num_instructions();
  const StageColumns& c = problem_.columns(group, variant);
  // Twice the fixed bytes, for copies of shared weights; twice the stash, for the inputs of a stage.
  const double fixed = 2 * problem_.fixed_bytes(0, n, group, variant);
  double entry = 0;
  if (problem_.variant(variant).recompute) {
    if (relaxed_) return true;
    for (const int cut : points_.last_cut) entry = std::max(entry, c.entry[cut]);
  }
  return fixed + (c.stash[n] + entry) * group.stash_scale * in_flight > group.capacity_bytes;
}

void StageTables::find_shares(bool closely) {
  const int n = problem_.num_instructions();
  double most_forward = 0, most_backward = 0;
  const auto look = [&](const StageColumns& c, int p0, int p1) {
    const double both = c.both[p1] - c.both[p0], backward = c.backward[p1] - c.backward[p0];
    // Divides only where a share grows.
    if (both - backward > most_forward * both) most_forward = (both - backward) / both;
    if (backward > most_backward * both) most_backward = backward / both;
    return true;
  };
  if (problem_.options().replicas == Replicas::kFractional) {
    for (int v = 0; v < problem_.num_variants(); ++v) look(problem_.columns(problem_.group(0, 1), v), 0, n);
  } else if (closely) {
    std::vector<char> seen;
    for (int d0 = 0; d0 < problem_.num_devices(); ++d0) {
      for (const int size : problem_.group_sizes()) {
        if (d0 + size > problem_.num_devices()) break;
        const DeviceGroup& group = problem_.group(d0, d0 + size);
        if (at(group.columns) >= seen.size()) seen.resize(at(group.columns) + 1, 0);
        if (!group.valid || std::exchange(seen[at(group.columns)], 1) != 0) continue;
        for (const int v : problem_.useful_variants(group)) {
          const StageColumns& c = problem_.columns(group, v);
          for_each_cut([&](int p0, int p1) { return look(c, p0, p1); });
          units_ += kPerEntry * (relaxed_ ? n : static_cast<std::int64_t>(points_.size()));
        }
      }
    }
  } else {
    return;
  }
  small_share_ = std::min({0.5, most_forward * (1 + kSumRounding), most_backward * (1 + kSumRounding)});
  forward_share_ = std::max(0.0, (1 - most_backward) * (1 - kSumRounding));
}

double StageTables::ms_per_work(const DeviceGroup& group) {
  const int n = problem_.num_instructions();
  if (problem_.options().replicas == Replicas::kFractional) {
    double both = kInfinity;
    for (int v = 0; v < problem_.num_variants(); ++v) both = std::min(both, problem_.columns(group, v).both[n]);
    return both * group.scale / problem_.work_ms(0, n) * (1 - kSumRounding);
  }
  const std::size_t which = at(group.columns);
  if (which >= ms_per_work_.size()) ms_per_work_.resize(which + 1, -1);
  double& least = ms_per_work_[which];
  if (least >= 0) return least;
  least = kInfinity;
  for (const int v : problem_.useful_variants(group)) {
    const StageColumns& c = problem_.columns(group, v);
    units_ += kPerEntry * n;
    for_each_cut([&](int p0, int p1) {
      const double work = problem_.work_ms(p0, p1);
      if (work > 0) least = std::min(least, (c.both[p1] - c.both[p0]) * group.scale / work);
      return true;
    });
  }
  return least = least < kInfinity ? least * (1 - kSumRounding) : 0;
}

}  // namespace automap::pipeline::internal
