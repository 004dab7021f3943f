// Rollouts of the plan space: plans completed by rule from a prefix, and improved.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "models/plan_space.h"
#include "models/plan_space_tables.h"

namespace automap::models {

using pipeline::DeviceGroup;
using pipeline::Link;
using pipeline::Plan;
using pipeline::Problem;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// Prices of a stage, units of work: of a plan completed by a rule, and of one whose boundary has moved.
constexpr std::int64_t kPerRolled = 30, kPerMoved = 20;

// What a stage of one device at the end (or the front) of a rollout takes, against its fair share: in the best plans of
// many stages such stages are nearly empty and only let the others have more micro-batches in flight.
constexpr double kLittle = 0.35;

// Where loads grow from stage to stage: by so much.
constexpr double kGrowth = 1.25;

// How rules share the rest of the devices among the stages left.
enum ShareKind {
  kEqual,
  kWholeServers,
  kOneLarge,
  kTwoLarge,
  kHalfLarge,
  kLastLarge,
  kParkNext,
  kParkLast,
  kShareKinds
};
// What a stage takes of the work that is left. kAllReduce: by speed and by what its weights cost to all-reduce, as if
// they were spread evenly over the work.
enum Load { kTapered, kGrowing, kLittleOnSingles, kAllReduce };

struct Rule {
  ShareKind share;
  Load load;
};
constexpr Rule kRules[kRolloutRules] = {{kEqual, kGrowing},
                                        {kEqual, kTapered},
                                        {kParkLast, kAllReduce},
                                        {kWholeServers, kTapered},
                                        {kOneLarge, kLittleOnSingles},
                                        {kParkNext, kAllReduce},
                                        {kHalfLarge, kLittleOnSingles},
                                        {kLastLarge, kAllReduce},
                                        {kTwoLarge, kLittleOnSingles}};

}  // namespace

std::array<double, kMaxStages> powers(double factor) {
  std::array<double, kMaxStages> result;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = std::pow(factor, static_cast<double>(i));
  return result;
}

// Device cuts of `left` stages on the devices behind d: `large` stages of about equal size, the others one device each.
DeviceCuts PlanSpace::Tables::share_cuts(int d, int left, int large, bool last, bool whole_servers) const {
  const int devices = static_cast<int>(server_end.size());
  const int small = left - large, room = devices - d - small;
  DeviceCuts cuts;
  int begin = d;
  if (last) {
    for (int j = 0; j < small; ++j) cuts.push_back(++begin);
  }
  for (int j = 1; j <= large; ++j) {
    int cut = begin + static_cast<int>(static_cast<std::int64_t>(j) * room / large);
    if (whole_servers && cut > d && cut < devices && (j < large || !last)) {
      const int down = server_begin[at(cut)], up = server_end[at(cut)];
      if (down != cut) cut = cut - down <= up - cut ? down : up;
      if (devices - cut < left - static_cast<int>(cuts.size()) - 1) cut = down;
    }
    cuts.push_back(cut);
  }
  for (int j = 1; !last && j <= small; ++j) cuts.push_back(std::max(cuts.back() + 1, devices - small + j));
  cuts.back() = devices;
  return cuts;
}

// Device cuts of `left` stages behind d: a server (or what is left of it) each, but one stage that takes all the
// others, the last or the next one. Where all-reduces are dear, the best plans park devices on a stage with hardly a
// weight.
DeviceCuts PlanSpace::Tables::park_cuts(int d, int left, bool last) const {
  const int devices = static_cast<int>(server_end.size());
  DeviceCuts cuts;
  if (last) {
    for (int j = 1, cut = d; j < left && cut < devices; ++j) cuts.push_back(cut = server_end[at(cut)]);
    cuts.push_back(devices);
    return cuts;
  }
  cuts.push_back(devices);
  for (int j = 1, cut = devices; j < left && cut > 0; ++j) cuts.push_back(cut = server_begin[at(cut - 1)]);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

const PlanSpace::Tables::Share& PlanSpace::Tables::share(const Problem& problem, int d, int left) const {
  Share& entry = shares[at(d) * at(stages + 1) + at(left)];
  if (entry.made) return entry;
  entry.made = true;
  static const std::array<double, kMaxStages> growth = powers(kGrowth);
  const int devices = problem.num_devices();
  DeviceCuts cuts[kShareKinds];
  cuts[kEqual] = share_cuts(d, left, left, false, false);
  cuts[kWholeServers] = share_cuts(d, left, left, false, true);
  cuts[kOneLarge] = share_cuts(d, left, 1, false, true);
  cuts[kTwoLarge] = share_cuts(d, left, std::min(left, 2), false, true);
  cuts[kParkNext] = park_cuts(d, left, false);
  cuts[kParkLast] = park_cuts(d, left, true);
  cuts[kHalfLarge] = share_cuts(d, left, (left + 1) / 2, false, true);
  cuts[kLastLarge] = share_cuts(d, left, 1, true, false);
  for (int rule = 0; rule < kRolloutRules; ++rule) {
    const auto same = [&](const Rule& other) {
      return other.load == kRules[rule].load && cuts[other.share] == cuts[kRules[rule].share];
    };
    entry.same_as[at(rule)] = static_cast<int>(std::find_if(kRules, kRules + rule, same) - kRules);
    Way& way = entry.ways[at(rule)];
    if (entry.same_as[at(rule)] < rule) continue;
    const DeviceCuts& of_rule = cuts[kRules[rule].share];
    int before = d, before_that = -1;
    way.valid = true;
    for (std::size_t i = 0; i < of_rule.size(); ++i) {
      const int cut = of_rule[i];
      if (cut <= before || (cut >= devices && i + 1 < of_rule.size())) {
        way.valid = false;
        break;
      }
      Hop hop;
      hop.device_cut = cut;
      hop.group = &problem.group(before, cut);
      hop.per_work = 1 / (hop.group->size * hop.group->speed);
      hop.ring_ms_per_byte = hop.group->size == 1 ? 0 : hop.group->sync.ms_per_byte;
      hop.ring_ms = hop.group->size == 1 ? 0 : hop.group->sync.latency_ms;
      if (before_that >= 0) {
        const Link link = problem.link(before_that, before, cut);
        hop.latency_ms = link.latency_ms;
        hop.ms_per_byte = 1 / link.bytes_per_ms;
      }
      if (way.hops.empty()) way.hops.reserve(of_rule.size());
      way.hops.push_back(hop);
      before_that = before;
      before = cut;
    }
    // Of the work that is left each stage takes its share.
    const double bytes_per_ms = work.back() > 0 ? weight.back() / work.back() : 0;
    double sum = 0;
    for (std::size_t i = way.hops.size(); i-- > 0;) {
      const Hop& hop = way.hops[i];
      double load = 1 / hop.per_work;
      switch (kRules[rule].load) {
        case kGrowing: load *= growth[i]; break;
        case kLittleOnSingles: load *= taper[i] * (hop.group->size == 1 ? kLittle : 1); break;
        case kTapered: load *= taper[i]; break;
        case kAllReduce: load = 1 / (micro_batches * hop.per_work + hop.ring_ms_per_byte * bytes_per_ms); break;
      }
      sum += load;
      way.hops[i].share = load / sum;
    }
  }
  return entry;
}

// V of the completion by one rule; `points` (stages - 1 entries when given) receives the pivots it takes.
double PlanSpace::Tables::roll(const Problem& problem, const Prefix& prefix, const Way& way, int* points) const {
  double filled = prefix.filled_ms, drained = prefix.drained_ms, path = prefix.path_ms,
         longest_steady = prefix.steady_ms;
  double residue = std::max(0.0, prefix.residue_ms);
  double stall_from[kMaxStages], stall_steady[kMaxStages];
  int p0 = prefix.point, s = prefix.stages;
  for (std::size_t i = 0; i < way.hops.size(); ++i) {
    const Hop& hop = way.hops[i];
    ++s;
    const int left = stages - s, k = in_flight[at(s)];
    int p1 = end;
    if (left > 0) {
      const int first = needs_variable ? next_variable[at(p0)] : p0 + 1;
      const int last = last_point[at(left)];
      if (first > last) return kInfinity;
      const double target = work[at(p0)] + (work.back() - work[at(p0)]) * hop.share;
      p1 = nearest(target);
      p1 = narrow[at(p1)];
      p1 = std::clamp(std::max(p1, earliest_end(s, hop.device_cut)), first, last);
      if (memory && !fits(p0, p1, *hop.group, k)) {
        p1 = last_fitting(p0, first, p1, *hop.group, k);
        if (p1 < first) return kInfinity;
      }
      if (points != nullptr) points[s - 1] = p1;
    } else {
      if (p0 >= end || (needs_variable && variables[at(p0)] == variables.back())) return kInfinity;
      if (memory && !fits(p0, p1, *hop.group, k)) return kInfinity;
    }
    double transfer = 0;
    if (s > 1 && activation[at(p0)] > 0) {
      if (i > 0) {
        transfer = hop.latency_ms + activation[at(p0)] * hop.ms_per_byte;
      } else {
        transfer = problem.transfer_ms(activation[at(p0)], prefix.d0, prefix.d1, hop.device_cut);
      }
    }
    const double stage_ms = (work[at(p1)] - work[at(p0)]) * hop.per_work;
    const double f = phi * stage_ms, b = stage_ms - f;
    const double arrived = filled + 2 * transfer;
    filled = arrived + stage_ms;
    path = std::max({path, arrived + steady * transfer, filled + steady * stage_ms});
    const double bytes = weight[at(p1)] - weight[at(p0)];
    if (bytes > 0) residue = std::max(residue, hop.ring_ms + bytes * hop.ring_ms_per_byte - drained - transfer);
    drained += transfer + b;
    longest_steady = std::max(longest_steady, steady * stage_ms - (k - 1) * std::min(f, b));
    stall_from[s - 1] = arrived + k * stage_ms;
    stall_steady[s - 1] = steady * stage_ms;
    p0 = p1;
  }
  double length = path;
  if (full) {
    length = std::max(length, filled + longest_steady);
    for (int i = 0; i < stages; ++i) {
      const double all_laps = laps[at(i + 1)];
      if (all_laps == 0) continue;
      const bool placed = i < prefix.stages;
      const double delta = filled - (placed ? prefix.stall_from_ms[at(i)] : stall_from[i]);
      const double steady_ms = placed ? prefix.stall_steady_ms[at(i)] : stall_steady[i];
      length = std::max(length, filled + steady_ms + std::max(delta, all_laps * delta));
    }
  }
  return length + residue;
}

void PlanSpace::roll(const Prefix& prefix, unsigned rules, Rollouts& rollouts) const {
  const Tables::Share& share = tables_->share(problem_, prefix.d1, stages_ - prefix.stages);
  int points[kMaxStages];
  for (int rule = 0; rule < kRolloutRules; ++rule) {
    if ((rules >> rule & 1u) == 0) continue;
    double& value = rollouts.value_ms[at(rule)];
    const int same_as = share.same_as[at(rule)];
    if (same_as < rule && rollouts.value_ms[at(same_as)] < kInfinity) {
      value = rollouts.value_ms[at(same_as)];
      continue;
    }
    const Tables::Way& way = share.ways[at(same_as)];
    if (!way.valid) continue;
    units_ += kPerRolled * (stages_ - prefix.stages);
    value = tables_->roll(problem_, prefix, way, points);
    if (!(value < rollouts.best_ms)) continue;
    rollouts.best_ms = value;
    for (int i = prefix.stages; i + 1 < stages_; ++i) {
      rollouts.points[at(i)] = static_cast<std::int16_t>(points[i]);
      rollouts.device_cuts[at(i)] = static_cast<std::int16_t>(way.hops[at(i - prefix.stages)].device_cut);
    }
  }
  std::copy_n(prefix.points.begin(), prefix.stages, rollouts.points.begin());
  std::copy_n(prefix.device_cuts.begin(), prefix.stages, rollouts.device_cuts.begin());
}

Rollouts PlanSpace::rollouts(const Prefix& prefix) const {
  Rollouts result;
  roll(prefix, kEveryRule, result);
  return result;
}

Rollouts PlanSpace::rollouts_of(const Plan& plan, double value_ms) const {
  AM_CHECK(plan.num_stages() == stages_);
  Rollouts rollouts;
  rollouts.best_ms = value_ms;
  for (int i = 0; i + 1 < stages_; ++i) {
    const auto point = std::lower_bound(cuts_.begin(), cuts_.end(), plan.cuts[at(i)]);
    rollouts.points[at(i)] = static_cast<std::int16_t>(point - cuts_.begin());
    rollouts.device_cuts[at(i)] = static_cast<std::int16_t>(plan.device_cuts[at(i)]);
  }
  return rollouts;
}

Plan PlanSpace::plan_of(const Rollouts& rollouts) const {
  AM_CHECK(rollouts.best_ms < kInfinity);
  Plan plan;
  plan.schedule = schedule_;
  for (int i = 0; i + 1 < stages_; ++i) {
    plan.cuts.push_back(cuts_[at(rollouts.points[at(i)])]);
    plan.device_cuts.push_back(rollouts.device_cuts[at(i)]);
  }
  return plan;
}

// Boundaries 0..S, boundary b ending stage b, with V's running terms after every stage, so that moving boundaries b..e
// costs the stages b..e+2: what the stages behind add is known (Behind), and most moves end there. Those that may be
// better are gone through to the end, so that sums are formed in one order.
class PlanSpace::Improvement {
 public:
  Improvement(const PlanSpace& space, const Prefix& prefix, const Rollouts& rollouts)
      : problem_(space.problem_), t_(*space.tables_), first_(prefix.stages), stages_(space.stages_) {
    points_[0] = cuts_[0] = 0;
    for (int b = 1; b < stages_; ++b) {
      points_[b] = rollouts.points[at(b - 1)];
      cuts_[b] = rollouts.device_cuts[at(b - 1)];
    }
    points_[stages_] = t_.end;
    cuts_[stages_] = problem_.num_devices();
    kept_[first_] = {prefix.filled_ms, prefix.drained_ms, prefix.path_ms, prefix.steady_ms,
                     std::max(0.0, prefix.residue_ms)};
    for (int i = 0; i < first_; ++i) {
      stall_from_[i] = trial_stall_from_[i] = prefix.stall_from_ms[at(i)];
      stall_steady_[i] = trial_stall_steady_[i] = prefix.stall_steady_ms[at(i)];
    }
    accept(first_ + 1, value_from(first_ + 1, stages_));
  }

  void run() {
    const int free = stages_ - 1 - first_;
    const int all_steps = 2 * free + free * (free - 1) / 2;
    // What brought nothing brings nothing again until something else has moved.
    int in_vain = 0;
    const auto step = [&](const auto& moves) {
      if (in_vain == all_steps) return;
      const double before = best_ms_;
      moves();
      in_vain = best_ms_ < before ? 0 : in_vain + 1;
    };
    for (int round = 0; round < kRounds && in_vain < all_steps; ++round) {
      for (int b = first_ + 1; b < stages_; ++b) {
        step([&] { move(b); });
      }
      for (int b = first_ + 1; b < stages_; ++b) {
        for (int e = b + 1; e < stages_; ++e) {
          step([&] {
            if (!shift(b, e, 0, 1)) shift(b, e, 0, -1);
          });
        }
        step([&] {
          for (const int by : {1, 3}) {
            if (b + 1 < stages_ && !shift(b, b + 1, by, 0)) shift(b, b + 1, -by, 0);
          }
        });
      }
    }
  }

  std::int64_t units() const { return units_; }

  void store(Rollouts& rollouts) const {
    if (!(best_ms_ < rollouts.best_ms)) return;
    rollouts.best_ms = best_ms_;
    for (int b = first_ + 1; b < stages_; ++b) {
      rollouts.points[at(b - 1)] = static_cast<std::int16_t>(points_[b]);
      rollouts.device_cuts[at(b - 1)] = static_cast<std::int16_t>(cuts_[b]);
    }
  }

 private:
  static constexpr int kRounds = 4;
  // Sums formed in another order differ by less.
  static constexpr double kRounding = 1e-9;

  struct Running {
    double filled = 0, drained = 0, path = 0, steady = 0, residue = 0;
  };
  struct KnownLink {
    int d0 = -1, d1 = -1, d2 = -1;
    Link link;
  };

  // What the stages behind stage x add to V, relative to where it ends.
  struct Behind {
    double filled = 0;  // their round trips
    double path = 0, steady = 0, residue = 0;
  };

  // One more stage in front of a suffix: its terms relative to the end of the stage before.
  void prepend(int s) {
    const Running& before = kept_[s - 1];
    const Running& now = kept_[s];
    Behind& behind = behind_[s - 1];
    const Behind& next = behind_[s];
    const double filled = now.filled - before.filled, drained = now.drained - before.drained;
    behind.filled = filled + next.filled;
    behind.steady = std::max(next.steady, own_steady_[s - 1]);
    behind.path = std::max(next.path + filled, own_path_[s - 1] - before.filled);
    if (t_.full && t_.laps[at(s)] > 0) {
      const double total = kept_[stages_].filled, delta = total - stall_from_[s - 1], laps = t_.laps[at(s)];
      behind.path = std::max(behind.path, total + stall_steady_[s - 1] + std::max(delta, laps * delta) - before.filled);
    }
    behind.residue = std::max(next.residue - drained, own_residue_[s - 1] + before.drained);
  }

  // About V when the stages behind stage x are as kept.
  double about(int b, int x) const {
    const Running& now = trial_[x];
    const Behind& behind = behind_[x];
    const double total = now.filled + behind.filled;
    double length = std::max(now.path, now.filled + behind.path);
    if (t_.full) {
      length = std::max(length, total + std::max(now.steady, behind.steady));
      length = with_stalls(b, x, total, length);
    }
    return length + std::max(now.residue, behind.residue - now.drained);
  }

  // The stall lines of the first x stages, of which those before `b` are as kept.
  double with_stalls(int b, int x, double total, double length) const {
    for (int i = 0; i < x; ++i) {
      const double laps = t_.laps[at(i + 1)];
      if (laps == 0) continue;
      const bool kept = i < b - 1;
      const double delta = total - (kept ? stall_from_[i] : trial_stall_from_[i]);
      const double steady_ms = kept ? stall_steady_[i] : trial_stall_steady_[i];
      length = std::max(length, total + steady_ms + std::max(delta, laps * delta));
    }
    return length;
  }

  double transfer_into(int s) {
    const int d0 = cuts_[s - 2], d1 = cuts_[s - 1], d2 = cuts_[s];
    const double bytes = t_.activation[at(points_[s - 1])];
    if (bytes <= 0) return 0;
    KnownLink& known = links_[s - 1];
    if (known.d0 != d0 || known.d1 != d1 || known.d2 != d2) known = {d0, d1, d2, problem_.link(d0, d1, d2)};
    return known.link.latency_ms + bytes / known.link.bytes_per_ms;
  }

  // V with the boundaries as they are, of which those before `b` and behind `e` are as kept; infinity when it is
  // infeasible or not below the best.
  double value_from(int b, int e) {
    Running now = kept_[b - 1];
    units_ += kPerMoved * (std::min(e + 2, stages_) - b + 1);
    for (int s = b; s <= stages_; ++s) {
      const int p0 = points_[s - 1], p1 = points_[s], d0 = cuts_[s - 1], d1 = cuts_[s], k = t_.in_flight[at(s)];
      const DeviceGroup& group = problem_.group(d0, d1);
      if (s <= e + 1) {
        if (t_.needs_variable && t_.variables[at(p0)] == t_.variables[at(p1)]) return kInfinity;
        if (t_.memory && !t_.fits(p0, p1, group, k)) return kInfinity;
      }
      const double transfer = s > 1 ? transfer_into(s) : 0;
      const double stage_ms = (t_.work[at(p1)] - t_.work[at(p0)]) / (group.size * group.speed);
      const double f = t_.phi * stage_ms, b_ms = stage_ms - f;
      const double arrived = now.filled + 2 * transfer;
      now.filled = arrived + stage_ms;
      trial_own_path_[s - 1] = std::max(arrived + t_.steady * transfer, now.filled + t_.steady * stage_ms);
      now.path = std::max(now.path, trial_own_path_[s - 1]);
      const double bytes = t_.weight[at(p1)] - t_.weight[at(p0)];
      trial_own_residue_[s - 1] = problem_.allreduce_ms(bytes, group) - now.drained - transfer;
      now.residue = std::max(now.residue, trial_own_residue_[s - 1]);
      now.drained += transfer + b_ms;
      trial_own_steady_[s - 1] = t_.steady * stage_ms - (k - 1) * std::min(f, b_ms);
      now.steady = std::max(now.steady, trial_own_steady_[s - 1]);
      trial_stall_from_[s - 1] = arrived + k * stage_ms;
      trial_stall_steady_[s - 1] = t_.steady * stage_ms;
      trial_[s] = now;
      const double least = t_.full ? std::max(now.path, now.filled + now.steady) : now.path;
      if (!(least + now.residue < best_ms_)) return kInfinity;
      if (s == e + 2) {
        if (about(b, s) > best_ms_ * (1 + kRounding)) return kInfinity;
        units_ += kPerMoved * (stages_ - s);
      }
    }
    const double length =
        t_.full ? with_stalls(b, stages_, now.filled, std::max(now.path, now.filled + now.steady)) : now.path;
    return length + now.residue;
  }

  bool accept(int b, double value) {
    if (!(value < best_ms_ * (1 - 1e-12))) return false;
    best_ms_ = value;
    for (int s = b; s <= stages_; ++s) {
      kept_[s] = trial_[s];
      stall_from_[s - 1] = trial_stall_from_[s - 1];
      stall_steady_[s - 1] = trial_stall_steady_[s - 1];
      own_path_[s - 1] = trial_own_path_[s - 1];
      own_steady_[s - 1] = trial_own_steady_[s - 1];
      own_residue_[s - 1] = trial_own_residue_[s - 1];
    }
    behind_[stages_] = {};
    behind_[stages_].steady = behind_[stages_].residue = -kInfinity;
    for (int s = stages_; s > first_ + 2; --s) prepend(s);
    return true;
  }

  bool attempt(int b, int point, int cut) {
    const int old_point = points_[b], old_cut = cuts_[b];
    if (point <= points_[b - 1] || point >= points_[b + 1] || cut <= cuts_[b - 1] || cut >= cuts_[b + 1]) return false;
    if (point == old_point && cut == old_cut) return false;
    points_[b] = point;
    cuts_[b] = cut;
    if (accept(b, value_from(b, b))) return true;
    points_[b] = old_point;
    cuts_[b] = old_cut;
    return false;
  }

  // Where both stages beside boundary b take equally long when its device cut is `cut`.
  int balanced_point(int b, int cut) const {
    if (cut <= cuts_[b - 1] || cut >= cuts_[b + 1]) return -1;
    const DeviceGroup& left = problem_.group(cuts_[b - 1], cut);
    const DeviceGroup& right = problem_.group(cut, cuts_[b + 1]);
    const double rate = left.size * left.speed, other = right.size * right.speed;
    const double from = t_.work[at(points_[b - 1])], to = t_.work[at(points_[b + 1])];
    return t_.nearest(from + (to - from) * rate / (rate + other));
  }

  // Boundaries b..e by so many points and devices, so that only the stages at both ends change their sizes.
  bool shift(int b, int e, int points, int devices) {
    if (points_[b] + points <= points_[b - 1] || points_[e] + points >= points_[e + 1] ||
        cuts_[b] + devices <= cuts_[b - 1] || cuts_[e] + devices >= cuts_[e + 1]) {
      return false;
    }
    for (int i = b; i <= e; ++i) {
      points_[i] += points;
      cuts_[i] += devices;
    }
    if (accept(b, value_from(b, e))) return true;
    for (int i = b; i <= e; ++i) {
      points_[i] -= points;
      cuts_[i] -= devices;
    }
    return false;
  }

  void move(int b) {
    for (const int step : {1, 2, 4, 8}) {
      if (!attempt(b, points_[b] + step, cuts_[b])) attempt(b, points_[b] - step, cuts_[b]);
    }
    const int cut = cuts_[b];
    for (const int to : {cut + 1, cut - 1, t_.server_end[at(cut - 1)], t_.server_begin[at(cut - 1)]}) {
      if (to == cut || to < 1) continue;
      if (!attempt(b, points_[b], to)) attempt(b, balanced_point(b, to), to);
    }
  }

  const Problem& problem_;
  const Tables& t_;
  int first_, stages_;
  int points_[kMaxStages + 1], cuts_[kMaxStages + 1];
  Running kept_[kMaxStages + 1], trial_[kMaxStages + 1];
  Behind behind_[kMaxStages + 1];
  KnownLink links_[kMaxStages];
  double stall_from_[kMaxStages] = {}, stall_steady_[kMaxStages] = {};
  double trial_stall_from_[kMaxStages] = {}, trial_stall_steady_[kMaxStages] = {};
  // Of each stage alone: its path term, steady term and what of its all-reduce is exposed.
  double own_path_[kMaxStages], own_steady_[kMaxStages], own_residue_[kMaxStages];
  double trial_own_path_[kMaxStages], trial_own_steady_[kMaxStages], trial_own_residue_[kMaxStages];
  double best_ms_ = kInfinity;
  std::int64_t units_ = 0;
};

void PlanSpace::improve(const Prefix& prefix, Rollouts& rollouts) const {
  rollouts.improved = true;
  if (!(rollouts.best_ms < kInfinity)) return;
  Improvement improvement(*this, prefix, rollouts);
  improvement.run();
  units_ += improvement.units();
  improvement.store(rollouts);
}

}  // namespace automap::models
