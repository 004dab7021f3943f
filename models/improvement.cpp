// Rollouts improved: their boundaries moved one after the other while V falls.
#include <algorithm>

#include "common/base/numbers.h"
#include "models/plan_space.h"
#include "models/plan_space_tables.h"

namespace automap::models {

using pipeline::DeviceGroup;
using pipeline::Link;
using pipeline::Problem;

namespace {

// A stage of a plan whose boundary has moved, units of work; more where its variants are weighed.
constexpr std::int64_t kPerMoved = 20;

}  // namespace

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
    kept_[first_] = prefix;
    kept_[first_].residue_ms = std::max(0.0, prefix.residue_ms);
    for (int i = 0; i < first_; ++i) {
      own_[i] = trial_own_[i] = {prefix.stall_from_ms[at(i)], prefix.stall_steady_ms[at(i)], prefix.laps[at(i)]};
    }
    accept(first_ + 1, value_from(first_ + 1, stages_));
  }

  void run() {
    const int free = stages_ - 1 - first_;
    const int all_steps = 2 * free + free * (free - 1) / 2;
    // A step that brought nothing is not repeated until another step has changed the plan.
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
          step([&] { trade(b, e); });
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

  struct KnownLink {
    int d0 = -1, d1 = -1, d2 = -1;
    Link link;
  };

  // The terms that the stages behind stage x add to V, relative to where it ends.
  struct Behind {
    double filled = 0;  // their round trips
    double path = 0, steady = 0, residue = 0;
  };

  // The terms of one stage: its stall line, its path term, its steady term and its exposed sync.
  struct Own {
    double stall_from = 0, stall_steady = 0;
    int laps = 0;
    double path = 0, steady = 0, residue = 0;
    StageCost cost = {};
  };

  // One more stage in front of a suffix: its terms relative to the end of the stage before.
  void prepend(int s) {
    const PathTerms& before = kept_[s - 1];
    const PathTerms& now = kept_[s];
    const Own& own = own_[s - 1];
    Behind& behind = behind_[s - 1];
    const Behind& next = behind_[s];
    const double filled = now.filled_ms - before.filled_ms, drained = now.drained_ms - before.drained_ms;
    behind.filled = filled + next.filled;
    behind.steady = std::max(next.steady, own.steady);
    behind.path = std::max(next.path + filled, own.path - before.filled_ms);
    if (t_.full && own.laps > 0) {
      const double line = stall_line(kept_[stages_].filled_ms, own.stall_from, own.stall_steady, own.laps);
      behind.path = std::max(behind.path, line - before.filled_ms);
    }
    behind.residue = std::max(next.residue - drained, own.residue + before.drained_ms);
  }

  // About V when the stages behind stage x are as kept.
  double about(int b, int x) const {
    const PathTerms& now = trial_[x];
    const Behind& behind = behind_[x];
    const double total = now.filled_ms + behind.filled;
    double length = std::max(now.path_ms, now.filled_ms + behind.path);
    if (t_.full) {
      length = std::max(length, total + std::max(now.steady_ms, behind.steady));
      length = with_stalls(b, x, total, length);
    }
    return length + std::max(now.residue_ms, behind.residue - now.drained_ms);
  }

  // The stall lines of the first x stages, of which those before `b` are as kept.
  double with_stalls(int b, int x, double total, double length) const {
    for (int i = 0; i < x; ++i) {
      const Own& own = i < b - 1 ? own_[i] : trial_own_[i];
      if (own.laps > 0) length = std::max(length, stall_line(total, own.stall_from, own.stall_steady, own.laps));
    }
    return length;
  }

  double transfer_into(int s) {
    const int d0 = cuts_[s - 2], d1 = cuts_[s - 1], d2 = cuts_[s];
    const double bytes = t_.activation[at(points_[s - 1])];
    if (bytes <= 0) return 0;
    KnownLink& known = links_[s - 1];
    if (known.d0 != d0 || known.d1 != d1 || known.d2 != d2) known = {d0, d1, d2, problem_.link(d0, d1, d2)};
    return known.link.ms(bytes);
  }

  // V with the boundaries as they are, of which those before `b` and behind `e` are as kept; infinity when it cannot be
  // or is not below the best.
  double value_from(int b, int e) {
    PathTerms now = kept_[b - 1];
    units_ += (t_.plain ? kPerMoved : kPerWeighed) * (std::min(e + 2, stages_) - b + 1);
    for (int s = b; s <= stages_; ++s) {
      const int p0 = points_[s - 1], p1 = points_[s];
      Own& own = trial_own_[s - 1];
      if (s <= e + 1) {
        if (t_.needs_variable && t_.variables[at(p0)] == t_.variables[at(p1)]) return kInfinity;
        const DeviceGroup& group = problem_.group(cuts_[s - 1], cuts_[s]);
        if (!group.valid || !t_.stage(s, p0, p1, group, own.cost)) return kInfinity;
        own.laps = own.cost.laps;
      } else {
        own.cost = own_[s - 1].cost;
        own.laps = own_[s - 1].laps;
      }
      const double transfer = s > 1 ? transfer_into(s) : 0;
      const double stage_ms = own.cost.stage_ms,
                   hidden = std::min(stage_ms - own.cost.backward_ms, own.cost.backward_ms);
      own.residue = own.cost.sync_ms - now.drained_ms - transfer;
      own.steady = t_.steady * stage_ms - (own.cost.in_flight - 1) * hidden;
      const double arrived = now.filled_ms + 2 * transfer;
      own.path = std::max(arrived + t_.steady * transfer, arrived + stage_ms + t_.steady * stage_ms);
      t_.extend(now, transfer, own.cost, &own.stall_from, &own.stall_steady);
      trial_[s] = now;
      const double least = t_.full ? std::max(now.path_ms, now.filled_ms + now.steady_ms) : now.path_ms;
      if (!(least + now.residue_ms < best_ms_)) return kInfinity;
      if (s == e + 2 && s < stages_) {
        if (about(b, s) > best_ms_ * (1 + kRounding)) return kInfinity;
        units_ += kPerMoved * (stages_ - s);
      }
    }
    if (t_.idles(now.least_ms, now.computed_ms)) return kInfinity;
    double length = now.path_ms;
    if (t_.full) {
      length = with_stalls(b, stages_, now.filled_ms, std::max(length, now.filled_ms + now.steady_ms));
    }
    return length + now.residue_ms;
  }

  bool accept(int b, double value) {
    if (!(value < best_ms_ * (1 - 1e-12))) return false;
    best_ms_ = value;
    for (int s = b; s <= stages_; ++s) {
      kept_[s] = trial_[s];
      own_[s - 1] = trial_own_[s - 1];
    }
    behind_[stages_] = {};
    behind_[stages_].steady = behind_[stages_].residue = -kInfinity;
    for (int s = stages_; s > first_ + 2; --s) prepend(s);
    return true;
  }

  bool attempt(int b, int point, int cut) {
    const int old_point = points_[b], old_cut = cuts_[b];
    if (point <= points_[b - 1] || point >= points_[b + 1] || cut <= cuts_[b - 1] || cut >= cuts_[b + 1]) return false;
    if (!t_.allowed_cuts[at(cut)]) return false;
    if (point == old_point && cut == old_cut) return false;
    points_[b] = point;
    cuts_[b] = cut;
    if (accept(b, value_from(b, b))) return true;
    points_[b] = old_point;
    cuts_[b] = old_cut;
    return false;
  }

  // The point at which both stages beside boundary b take equally long when its device cut is `cut`.
  int balanced_point(int b, int cut) const {
    if (cut <= cuts_[b - 1] || cut >= cuts_[b + 1]) return -1;
    const DeviceGroup& left = problem_.group(cuts_[b - 1], cut);
    const DeviceGroup& right = problem_.group(cut, cuts_[b + 1]);
    if (!left.valid || !right.valid) return -1;
    const double rate = 1 / t_.per_work(left), other = 1 / t_.per_work(right);
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
      if (!t_.allowed_cuts[at(cuts_[i] + devices)]) return false;
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

  // Devices from the stage in front of boundary b to the one behind boundary e, or the other way.
  void trade(int b, int e) {
    if (!t_.some_groups_only) {
      if (!shift(b, e, 0, 1)) shift(b, e, 0, -1);
      return;
    }
    for (const int size : problem_.group_sizes()) {
      const int by = size - (cuts_[b] - cuts_[b - 1]);
      if (by != 0 && shift(b, e, 0, by)) return;
    }
  }

  void move(int b) {
    for (const int step : {1, 2, 4, 8}) {
      if (!attempt(b, points_[b] + step, cuts_[b])) attempt(b, points_[b] - step, cuts_[b]);
    }
    const int cut = cuts_[b];
    const auto move_devices = [&](int to) {
      if (to == cut || to < 1) return;
      if (!attempt(b, points_[b], to)) attempt(b, balanced_point(b, to), to);
    };
    if (!t_.some_groups_only) {
      for (const int to : {cut + 1, cut - 1, t_.server_end[at(cut - 1)], t_.server_begin[at(cut - 1)]})
        move_devices(to);
      return;
    }
    for (const int size : problem_.group_sizes()) {
      const int to = cuts_[b - 1] + size;
      if (to < cuts_[b + 1] && problem_.group(to, cuts_[b + 1]).valid) move_devices(to);
    }
  }

  const Problem& problem_;
  const Tables& t_;
  int first_, stages_;
  int points_[kMaxStages + 1], cuts_[kMaxStages + 1];
  PathTerms kept_[kMaxStages + 1], trial_[kMaxStages + 1];
  Own own_[kMaxStages], trial_own_[kMaxStages];
  Behind behind_[kMaxStages + 1];
  KnownLink links_[kMaxStages];
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
