// Thresholds of the label program: how large a suffix may be at most, from a program over prefixes.
#include <algorithm>

#include "common/pipeline/exact_state.h"

namespace automap::pipeline::internal {
namespace {

// Stage counts whose limits differ by no more than this factor share thresholds.
constexpr double kLikeLimits = 1.01;
// Thresholds of very many devices: more than so many (2 GB) are not made, and their pages are taken little by little,
// since the first touch of that much memory may outlast the time limit.
constexpr std::size_t kMostThresholds = std::size_t{1} << 25;
constexpr std::size_t kThresholdsPerPoll = std::size_t{1} << 16;
// Starts that are taken with the K of the nearest of them, to begin with.
constexpr std::size_t kFirstRun = 4;

}  // namespace

GroupKind Program::kind(int d0, int d1) const {
  const DeviceGroup& group = problem_.group(d0, d1);
  GroupKind kind;
  kind.servers = group.servers;
  kind.devices = problem_.devices_that_count(group);
  if (group.servers > 1) {
    kind.bytes_per_ms = group.ring_bytes_per_ms;
  } else if (d0 > 0 && problem_.server_of_device(d0 - 1) == problem_.server_of_device(d0)) {
    kind.inside = group.size;
  }
  return kind;
}

void Program::make_fans() {
  const int boundaries = corridor() ? in_.max_stages - 1 : 1;
  fans_.resize(at(boundaries));
  for (int b = 1; b <= boundaries; ++b) {
    std::size_t row = 0;
    for (int d : device_cuts(b)) {
      if (over()) return;
      units_ += kPerFanEnd * devices_;
      Fan fan;
      fan.d = d;
      fan.kind_of_end.assign(at(devices_) + 1, -1);
      fan.first_row = row;
      const auto take = [&](int end) {
        if (end <= d || !problem_.group(d, end).valid) return;
        const GroupKind this_kind = kind(d, end);
        std::size_t k = 0;
        while (k < fan.kinds.size() && (fan.kinds[k] < this_kind || this_kind < fan.kinds[k])) ++k;
        if (k == fan.kinds.size()) {
          fan.kinds.push_back(this_kind);
          fan.end_of_kind.push_back(end);
        }
        fan.kind_of_end[at(end)] = static_cast<int>(k);
      };
      if (!corridor()) {
        for (int end : in_.device_cuts) take(end);
      } else if (b + 1 < in_.max_stages) {
        for (int end : device_cuts(b + 1)) take(end);
      }
      if (!corridor() || b + 1 == in_.max_stages) take(devices_);
      row += fan.kinds.size();
      fans_[at(b - 1)].push_back(std::move(fan));
    }
  }
}

// With tau the longest stage: every term of a stage of length tau counts it 1 + c times, and the other stages take the
// work that tau leaves on the devices that the longest one does not need, at worst on the slowest device each.
double Program::least_x_per_work(int length, int d0) const {
  const double speed = speed_behind_[at(d0)];
  const double least = micro_batches_ / speed;
  if (!full_ || length == 1) return least;
  const double c = least_weight(in_flight_before(length - 1));
  const double spread = (c + length) / speed;
  const double concentrated = (c + 1) / std::max(speed - (length - 1) * slowest_, slowest_);
  return std::max(least, std::min(spread, concentrated));
}

// Prefixes of k = 1..S-1 stages from the front: the most that the suffix behind each may be. One row per device cut
// that ends the prefix and kind of group that follows, so that every transfer is known. Made for the most stages and
// the highest limit of a range of stage counts, it holds for all of them: fewer stages keep no more micro-batches in
// flight, which only makes their terms longer.
void Program::thresholds_for(int first_stages, int stages) {
  Sweep sweep;
  sweep.first_stages = first_stages;
  sweep.stages = stages;
  for (int s = first_stages; s <= stages; ++s) sweep.most = std::max(sweep.most, limit(s));
  if (!(sweep.most > 0)) return;
  std::vector<Row> before;
  Row origin;
  origin.clear(1);
  origin.x[0] = origin.xy[0] = origin.p[0] = origin.py[0] = sweep.most;
  origin.xp[0] = 2 * sweep.most;
  origin.bottleneck[0] = origin.hidden[0] = 0;
  origin.past = 1;
  for (int k = 1; k < stages; ++k) {
    sweep.boundary = k;
    const std::vector<Fan>& ends = fans(k);
    sweep.rows.resize(ends.empty() ? 0 : ends.back().first_row + ends.back().kinds.size());
    for (const Fan& fan : ends) {
      if (over()) return;
      for (std::size_t c = 0; c < fan.kinds.size(); ++c) sweep.rows[fan.first_row + c].clear(coarse_.size());
      units_ += kPerRowPoint * static_cast<std::int64_t>(fan.kinds.size() * coarse_.size());
      const std::size_t starts = fan.kinds.empty() ? 0 : k == 1 ? 1 : fans(k - 1).size();
      for (std::size_t start = 0; start < starts; ++start) {
        int d0 = 0;
        const Row* from = &origin;
        if (k > 1) {
          const Fan& from_fan = fans(k - 1)[start];
          d0 = from_fan.d;
          if (d0 >= fan.d || from_fan.kind_of_end[at(fan.d)] < 0) continue;
          from = &before[from_fan.first_row + at(from_fan.kind_of_end[at(fan.d)])];
        }
        const DeviceGroup& group = problem_.group(d0, fan.d);
        if (!group.valid || from->first == from->past) continue;
        if (over()) return;
        for (const int variant : problem_.useful_variants(group)) {
          plain_ ? put_behind<true>(sweep, *from, fan, d0, variant) : put_behind<false>(sweep, *from, fan, d0, variant);
        }
      }
      merge_rows(sweep, fan);
    }
    std::swap(before, sweep.rows);
  }
}

// Over the starts first..last-1 of a stage whose end is in `cost`: the most that may follow. The sync of the stage is
// hidden by what drains in front of it only, so U - (pass in front) - (its rest) is xy - its sync.
template <bool kPlain, bool kOneLine>
[[gnu::always_inline]] inline void Program::best_front(const Row& from, std::size_t first, std::size_t last,
                                                       const terms::InFlight& k, const StageCost& cost,
                                                       const PointColumns& columns, Best& result) const {
  const double micro_batches = micro_batches_, back = coarse_tables_.backward_share();
  const double steady = k.steady, ahead = k.ahead, of_t = steady - ahead * std::min(back, 1 - back);
  const double forward_share = kPlain ? 1 - back : tables_.forward_share();
  // Without stalls these make the term one that never binds: room - T.
  const bool stalls = full_ && k.stalls;
  const double stall_weight = stalls ? 1 / (1 + k.laps) : 1;
  const double stall_work = stalls ? (steady - k.laps * k.k) * stall_weight : 0;
  const double* const __restrict x = from.x.data();
  const double* const __restrict xy = from.xy.data();
  const double* const __restrict p = from.p.data();
  const double* const __restrict py = from.py.data();
  const double* const __restrict xp = from.xp.data();
  const double* const __restrict bottleneck = from.bottleneck.data();
  const double* const __restrict hidden = from.hidden.data();
  const double* const __restrict work_high = coarse_.work_high.data();
  const double* const __restrict work_low = coarse_.work_low.data();
  const double* const __restrict both_high = columns.both_high.data();
  const double* const __restrict backward_high = columns.backward_high.data();
  const double* const __restrict backward_low = columns.backward_low.data();
  const double* const __restrict optimizer_high = cost.optimizer_from;
  const double* const __restrict gradient_high = cost.gradient_from;
  const double* const __restrict last_bucket = coarse_.last_bucket.data();
  const double scale = cost.scale, both = cost.both, backward = cost.backward, optimizer = cost.optimizer;
  const double other_backward = cost.other_backward, gradient = cost.gradient, either = cost.either;
  const terms::Sync sync = cost.sync;
  using terms::larger;
  using terms::smaller;
  Best best = result;
  for (std::size_t j = first; j < last; ++j) {
    const double t = larger(0.0, both - both_high[j]) * scale;
    if (!(micro_batches * t <= x[j])) continue;
    const double b = kPlain ? back * t : larger(0.0, backward - backward_high[j]) * scale;
    const double bytes = gradient - gradient_high[j];
    double own = 0;
    if (kPlain) {
      own = sync.whole_ms<kOneLine>(bytes);
    } else {
      own = sync.exposed_ms<kOneLine>(bytes, last_bucket[j], (other_backward - backward_low[j]) * scale) +
            larger(0.0, optimizer - optimizer_high[j]);
    }
    const double room = smaller(x[j], xy[j] - own);
    const double before = j == cost.same ? 0 : (work_high[j] - work_low[j]) * either;
    const double pass = t + before;
    const double next = room - pass;
    const double forward = kPlain ? forward_share * pass : (t - b) + forward_share * before;
    const double first_round = kPlain ? of_t * t : steady * t - ahead * smaller(t - b, b);
    // `before` is no part of the round trip.
    const double stall = (x[j] - before) * stall_weight - stall_work * t - t;
    const double long_stage = smaller(next - first_round, stall);
    const double after = smaller(smaller(p[j], py[j] - own) - pass, long_stage);
    best.x = larger(best.x, next);
    best.xy = larger(best.xy, xy[j] - forward);
    best.p = larger(best.p, after);
    best.py = larger(best.py, smaller(py[j], xy[j] - first_round) - forward);
    best.xp = larger(best.xp, smaller(xp[j] - 2 * pass, next + long_stage));
    best.bottleneck = smaller(best.bottleneck, larger(bottleneck[j], first_round));
    best.hidden = smaller(best.hidden, larger(hidden[j], own) + b);
  }
  result = best;
}

// As Program::add_shared, of stages that end at point i, for their starts first..past-1.
void Program::subtract_shared(std::size_t i, std::size_t first, std::size_t past, const DeviceGroup& group,
                              const PointColumns& columns, StageCost& cost) {
  units_ += kPerInFlight * static_cast<std::int64_t>(past - first);
  shared_gradient_ = coarse_.gradient_high;
  shared_optimizer_ = columns.optimizer_high;
  for (std::size_t j = first; j < past; ++j) {
    const SharedGradients shared = coarse_tables_.shared_gradients(j, i);
    shared_gradient_[j] -= shared.copies;
    shared_optimizer_[j] -= problem_.exchange_ms(shared, group);
  }
  cost.gradient_from = shared_gradient_.data();
  cost.optimizer_from = shared_optimizer_.data();
}

// The same where memory binds an adaptive stage. K falls as the stage grows: starts are taken from the nearest on in
// runs of growing length, each with the K of its nearest start, which is the most.
template <bool kPlain>
void Program::best_front_within_memory(const Row& from, std::size_t first, std::size_t last, int i,
                                       const DeviceGroup& group, int variant, const StageCost& cost, Best& best) {
  const PointColumns& columns = coarse_tables_.columns(group, variant);
  const auto most = [&](std::size_t start) {
    units_ += kPerInFlight;
    return coarse_tables_.may_be_in_flight(start, at(i), group, variant);
  };
  const int least = most(first);
  for (std::size_t run = kFirstRun; first < last; run += run / 2) {
    const int held = most(last - 1);
    const std::size_t begin = held <= least || last - first <= run ? first : last - run;
    if (held > 0) {
      const terms::InFlight in_flight(micro_batches_, held);
      cost.sync.one_line ? best_front<kPlain, true>(from, begin, last, in_flight, cost, columns, best)
                         : best_front<kPlain, false>(from, begin, last, in_flight, cost, columns, best);
    }
    last = begin;
  }
}

// One more stage, on devices (d0, fan.d], behind the prefixes of `from`.
template <bool kPlain>
void Program::put_behind(Sweep& sweep, const Row& from, const Fan& fan, int d0, int variant) {
  const int k = sweep.boundary, d1 = fan.d;
  const DeviceGroup& group = problem_.group(d0, d1);
  const PointColumns& columns = coarse_tables_.columns(group, variant);
  const terms::InFlight scheduled = in_flight_before(sweep.stages - k);
  const int least_in_flight = adaptive() ? 1 : in_flight_before(std::max(sweep.first_stages - k, 1)).k;
  const bool binds = coarse_tables_.memory_binds(group, variant, adaptive() ? micro_batches_ : least_in_flight);
  const bool idle_rule = !problem_.options().allow_idle_stages;
  const std::vector<int>& points = points_of(k);
  units_ += kPerStart * static_cast<std::int64_t>(points.size());
  StageCost cost = stage_cost(group, variant);
  // The stage in front has at most the devices before d0 that k - 2 others leave.
  if (k > 1 && coarse_tables_.relaxed()) {
    const double in_front = speed_behind_[0] - speed_behind_[at(d0)];
    cost.either = std::min(coarse_tables_.ms_per_work(group), 1 / std::max(in_front - (k - 2) * slowest_, slowest_));
  }
  sweep.links.clear();
  for (const int end : fan.end_of_kind) sweep.links.push_back(problem_.link(d0, d1, end));
  cost.gradient_from = coarse_.gradient_high.data();
  cost.optimizer_from = columns.optimizer_high.data();
  std::pair<int, int> sharing = {-1, -1};
  const double longest_both = sweep.most / (micro_batches_ * cost.scale) * (1 + 1e-12);
  std::size_t first = from.first, past = from.first;  // the points in front that may start the stage
  std::size_t wanted = from.first;                    // those that leave it a variable and enough to do
  for (int i : points) {
    const std::size_t at_i = at(i);
    cost.both = columns.both_low[at_i];
    while (past < from.past && (past < at_i || (past == at_i && coarse_.several(at_i)))) ++past;
    std::size_t last = past;
    if (in_.needs_variable || idle_rule) {
      while (wanted < past && (!in_.needs_variable || coarse_.variables_low[wanted] < coarse_.variables_high[at_i]) &&
             !coarse_tables_.idles(wanted, at_i, group)) {
        ++wanted;
      }
      last = wanted;
    }
    while (first < last && (cost.both - columns.both_high[first] > longest_both ||
                            (binds && !coarse_tables_.may_fit(first, at_i, group, variant, least_in_flight)))) {
      ++first;
    }
    if (first >= last) continue;
    cost.backward = columns.backward_low[at_i];
    cost.other_backward = columns.backward_high[at_i];
    cost.optimizer = columns.optimizer_low[at_i];
    cost.gradient = coarse_.gradient_low[at_i];
    if (problem_.shares_gradients() && coarse_tables_.sharing_class(at_i) != sharing) {
      sharing = coarse_tables_.sharing_class(at_i);
      subtract_shared(at_i, from.first, from.past, group, columns, cost);
    }
    cost.same = at_i;
    transitions_ += static_cast<std::int64_t>(last - first);
    units_ += kPerTransition * static_cast<std::int64_t>(last - first);
    Best best;
    if (binds && adaptive()) {
      best_front_within_memory<kPlain>(from, first, last, i, group, variant, cost, best);
    } else {
      cost.sync.one_line ? best_front<kPlain, true>(from, first, last, scheduled, cost, columns, best)
                         : best_front<kPlain, false>(from, first, last, scheduled, cost, columns, best);
    }
    if (!(best.x > 0)) continue;
    const double bytes = coarse_.activation[at_i];
    units_ += kPerOffer * static_cast<std::int64_t>(fan.kinds.size());
    for (std::size_t c = 0; c < fan.kinds.size(); ++c) {
      const Link& link = sweep.links[c];
      const double t = link.ms(bytes);
      if ((micro_batches_ + 1) * t > best.x) continue;
      Row& row = sweep.rows[fan.first_row + c];
      row.x[at_i] = std::max(row.x[at_i], best.x - 2 * t);
      row.xy[at_i] = std::max(row.xy[at_i], best.xy - t);
      row.p[at_i] = std::max(row.p[at_i], best.p - 2 * t);
      row.py[at_i] = std::max(row.py[at_i], best.py - t);
      row.xp[at_i] = std::max(row.xp[at_i], best.xp - 4 * t);
      row.bottleneck[at_i] = std::min(row.bottleneck[at_i], best.bottleneck);
      row.hidden[at_i] = std::min(row.hidden[at_i], best.hidden + t);
    }
  }
}

// The rows of a fan that are of use go into the thresholds of every stage count.
void Program::merge_rows(Sweep& sweep, const Fan& fan) {
  const int k = sweep.boundary, first_stages = sweep.first_stages, stages = sweep.stages;
  const std::vector<int>& points = points_of(k);
  const double least_weight_in_front = least_weight(in_flight_before(stages - 1));
  const int shortest = std::max(1, first_stages - k);
  std::vector<double>& least_per_work = sweep.least_per_work;
  least_per_work.clear();
  for (int length = shortest; length <= stages - k; ++length) {
    least_per_work.push_back(least_x_per_work(length, fan.d) * (1 - 1e-12));
  }
  const double speed_in_front = speed_behind_[0] - speed_behind_[at(fan.d)];
  for (std::size_t c = 0; c < fan.kinds.size(); ++c) {
    Row& row = sweep.rows[fan.first_row + c];
    for (std::size_t place = 0; place < points.size(); ++place) {
      const std::size_t i = at(points[place]);
      if (row.x[i] == -kInfinity) continue;
      const double rest = whole_work_ - coarse_.work_high[i];
      if (full_) {
        // The prefix as a whole has its work to do, whatever the runs leave open between its stages.
        const double balanced = coarse_.work_low[i] / speed_in_front * (1 - 1e-12);
        row.bottleneck[i] = std::max(row.bottleneck[i], least_weight_in_front * balanced);
        row.p[i] = std::min(row.p[i], row.x[i] - row.bottleneck[i]);
        row.py[i] = std::min(row.py[i], row.xy[i] - row.bottleneck[i]);
        row.xp[i] = std::min(row.xp[i], 2 * row.x[i] - row.bottleneck[i]);
      }
      bool alive = false;
      units_ += kPerMerge * (stages - k - shortest + 1);
      for (int length = shortest; length <= stages - k; ++length) {
        const double least = rest * least_per_work[at(length - shortest)];
        if (row.x[i] < least || row.xy[i] < least) continue;
        alive = true;
        Threshold& merged = thresholds(length, fan, static_cast<int>(c))[place];
        merged.x = std::max(merged.x, row.x[i]);
        merged.xy = std::max(merged.xy, row.xy[i]);
        merged.p = full_ ? std::max(merged.p, row.p[i]) : kInfinity;
        merged.py = full_ ? std::max(merged.py, row.py[i]) : kInfinity;
        merged.xp = full_ ? std::max(merged.xp, row.xp[i]) : kInfinity;
        merged.bottleneck = full_ ? std::min(merged.bottleneck, row.bottleneck[i]) : 0;
        merged.hidden = std::min(merged.hidden, row.hidden[i] * (1 - 1e-12));
      }
      if (!alive) {
        row.x[i] = -kInfinity;
        continue;
      }
      if (row.first == row.past) row.first = i;
      row.past = i + 1;
    }
  }
}

void Program::make_thresholds() {
  make_fans();
  if (over()) return;
  std::size_t total = 0;
  threshold_base_.assign(at(in_.max_stages), 0);
  for (int length = 1; length < in_.max_stages; ++length) {
    threshold_base_[at(length)] = total;
    const std::vector<Fan>& all = fans(in_.max_stages - length);
    if (!all.empty()) total += (all.back().first_row + all.back().kinds.size()) * places(length);
  }
  too_large_ = total > kMostThresholds;
  if (too_large_) return;
  thresholds_.clear();
  thresholds_.reserve(total);
  while (thresholds_.size() < total) {
    if (over()) return;
    const std::size_t before = thresholds_.size();
    thresholds_.resize(std::min(total, before + kThresholdsPerPoll));
    units_ += kPerThreshold * static_cast<std::int64_t>(thresholds_.size() - before);
  }
  for (int first = std::max(2, in_.min_stages); first <= in_.max_stages;) {
    int last = first;
    double low = limit(first), high = low;
    while (last < in_.max_stages && last + 1 < 2 * first) {
      const double next = limit(last + 1);
      if (std::max(high, next) > kLikeLimits * std::min(low, next)) break;
      low = std::min(low, next);
      high = std::max(high, next);
      ++last;
    }
    thresholds_for(first, last);
    first = last + 1;
  }
}

}  // namespace automap::pipeline::internal
