// Labels of the label program: stages put in front of suffixes, and which of them are kept.
#include <algorithm>

#include "common/pipeline/exact_state.h"

namespace automap::pipeline::internal {
namespace {

// The share of the threshold that a label uses up, by which a beam ranks labels: 1 is all of it. Without a limit, the
// label's length.
double strain(const Candidate& c, const Threshold& most) {
  if (most.x == kInfinity) return c.x + c.y;
  double strain = std::max(c.x / most.x, (c.x + c.y) / most.xy);
  if (most.p < kInfinity) strain = std::max({strain, c.p / most.p, (c.p + c.y) / most.py});
  return strain;
}

}  // namespace

void Program::Lanes::reserve(std::size_t size) {
  if (x.size() >= size) return;
  for (std::vector<double>* values : {&x, &p, &y, &either, &both, &backward, &optimizer, &gradient, &other_backward}) {
    values->resize(size);
  }
  point.resize(size);
  id.resize(size);
}

// A stage in front of lanes begin..begin+size-1; room >= 0 where a plan within the limit may come of it. Written for
// the vectorizer: no branches, no calls.
template <bool kFull, bool kStalls, bool kRelaxed, bool kPlain>
void Program::evaluate(std::size_t begin, std::size_t size, const terms::InFlight& stage, const StageCost& cost,
                       const Threshold& most) {
  const double* const __restrict sx = lanes_.x.data() + begin;
  const double* const __restrict sp = lanes_.p.data() + begin;
  const double* const __restrict sy = lanes_.y.data() + begin;
  const double* const __restrict both = lanes_.both.data() + begin;
  const double* const __restrict backward = lanes_.backward.data() + begin;
  const double* const __restrict other_backward = lanes_.other_backward.data() + begin;
  const double* const __restrict optimizer = lanes_.optimizer.data() + begin;
  const double* const __restrict gradient = lanes_.gradient.data() + begin;
  double* const __restrict bx = block_x_;
  double* const __restrict bp = block_p_;
  double* const __restrict by = block_y_;
  double* const __restrict room = block_room_;
  const terms::InFlight k = stage;
  const terms::Sync sync = cost.sync;
  const double back = tables_.backward_share(), share = terms::smaller(back, 1 - back), scale = cost.scale;
  const double from_both = cost.both, from_backward = cost.backward, from_other_backward = cost.other_backward;
  const double from_optimizer = cost.optimizer, from_gradient = cost.gradient;
  const double last_bucket = cost.last_bucket;
  const double most_x = most.x, most_p = most.p, most_xy = most.xy, most_py = most.py, most_xp = most.xp;
  using terms::larger;
  for (std::size_t q = 0; q < size; ++q) {
    const double t = larger(both[q] - from_both, 0.0) * scale;
    const double b = kPlain ? back * t : larger(backward[q] - from_backward, 0.0) * scale;
    const double small = kPlain ? share * t : terms::smaller(t - b, b);
    const double x = terms::x_behind_stage<kFull, kStalls>(sx[q], kFull ? sp[q] : 0.0, t, small, k);
    const double p = kFull ? sp[q] + t : 0.0;
    // The backward drain in front of the suffix hides its sync; when relaxed, the longest drain is the most favourable.
    const double drain = kRelaxed ? (other_backward[q] - from_other_backward) * scale : b;
    const double bytes = gradient[q] - from_gradient;
    double own = 0;
    if (kPlain) {
      own = sync.whole_ms(bytes);
    } else {
      own = sync.exposed_ms(bytes, last_bucket, drain) + larger(optimizer[q] - from_optimizer, 0.0);
    }
    const double y = terms::y_behind_stage(sy[q], own, drain);
    double left = larger(x - most_x, x + y - most_xy);
    if (kFull) {
      left = larger(left, p - most_p);
      left = larger(left, p + y - most_py);
      left = larger(left, x + p - most_xp);
    }
    bx[q] = x;
    bp[q] = p;
    by[q] = y;
    room[q] = -left;
  }
}

Program::Evaluate Program::evaluator(const terms::InFlight& k) const {
  static constexpr Evaluate kPaper[2][2] = {
      {&Program::evaluate<false, false, false, false>, &Program::evaluate<false, false, false, true>},
      {&Program::evaluate<false, false, true, false>, &Program::evaluate<false, false, true, true>}};
  static constexpr Evaluate kAll[2][2][2] = {
      {{&Program::evaluate<true, false, false, false>, &Program::evaluate<true, false, false, true>},
       {&Program::evaluate<true, false, true, false>, &Program::evaluate<true, false, true, true>}},
      {{&Program::evaluate<true, true, false, false>, &Program::evaluate<true, true, false, true>},
       {&Program::evaluate<true, true, true, false>, &Program::evaluate<true, true, true, true>}}};
  return full_ ? kAll[k.stalls][relaxed_][plain_] : kPaper[relaxed_][plain_];
}

// Adds a candidate unless the best one of the bucket, kept in front, makes it superfluous.
inline void Program::offer(std::vector<Candidate>& bucket, const Candidate& c) {
  if (bucket.empty() || in_.all_plans) {
    bucket.push_back(c);
    return;
  }
  Candidate& best = bucket.front();
  if (best.x <= c.x && best.p <= c.p && best.y <= c.y) return;
  if (c.x <= best.x && c.p <= best.p && c.y <= best.y) {
    best = c;
    return;
  }
  const bool better = c.x + c.p + c.y < best.x + best.p + best.y;
  bucket.push_back(c);
  if (better) std::swap(bucket.front(), bucket.back());
}

// Leaves only the labels that no other makes superfluous, sorted by x.
void Program::keep_front(std::vector<Candidate>& candidates) {
  if (in_.all_plans) return;
  units_ += kPerCandidate * static_cast<std::int64_t>(candidates.size());
  if (candidates.size() < 2) return;
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.x, a.p, a.y, a.next, a.variant) < std::tie(b.x, b.p, b.y, b.next, b.variant);
  });
  // Sweep by x; the stairs hold the (p, y) seen so far that no other beats, p ascending and y descending.
  stairs_.clear();
  kept_.clear();
  for (const Candidate& c : candidates) {
    // A front of very many stairs takes time, and the result of a search that is stopped is thrown away.
    if ((kept_.size() + 1) % kKeptPerPoll == 0 && over()) break;
    const auto after =
        std::upper_bound(stairs_.begin(), stairs_.end(), c.p,
                         [](double p, const std::pair<double, double>& stair) { return p < stair.first; });
    if (after != stairs_.begin() && std::prev(after)->second <= c.y) continue;
    kept_.push_back(c);
    auto from = after;
    if (from != stairs_.begin() && std::prev(from)->first == c.p) --from;
    auto to = from;
    while (to != stairs_.end() && to->second >= c.y) ++to;
    if (from == to) {
      stairs_.insert(from, {c.p, c.y});
    } else {
      *from = {c.p, c.y};
      stairs_.erase(from + 1, to);
    }
  }
  std::swap(candidates, kept_);
}

void Program::keep_best(std::vector<Candidate>& candidates, const Threshold& most) {
  keep_front(candidates);
  if (in_.beam > 0 && candidates.size() > at(in_.beam)) {
    std::nth_element(candidates.begin(), candidates.begin() + in_.beam, candidates.end(),
                     [&](const Candidate& a, const Candidate& b) {
                       return std::make_tuple(strain(a, most), a.p, a.next, a.variant) <
                              std::make_tuple(strain(b, most), b.p, b.next, b.variant);
                     });
    candidates.resize(at(in_.beam));
  }
}

// Labels that stages of one device group may be put in front of, whatever comes behind them: the transfer to them
// is known and added, so that most of several lists are superfluous. Ascending by point again.
std::size_t Program::merge_lanes(std::size_t count) {
  place_.assign(points_.size() + 1, 0);
  for (std::size_t q = 0; q < count; ++q) ++place_[at(lanes_.point[q]) + 1];
  for (std::size_t i = 1; i < place_.size(); ++i) place_[i] += place_[i - 1];
  merged_.resize(count);
  for (std::size_t q = 0; q < count; ++q) {
    merged_[place_[at(lanes_.point[q])]++] = {lanes_.x[q], lanes_.p[q], lanes_.y[q], lanes_.id[q], 0};
  }
  std::size_t kept = 0, begin = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const std::size_t end = place_[i];
    if (begin == end) continue;
    bucket_.assign(merged_.begin() + static_cast<std::ptrdiff_t>(begin),
                   merged_.begin() + static_cast<std::ptrdiff_t>(end));
    keep_front(bucket_);
    for (const Candidate& c : bucket_) {
      lanes_.x[kept] = c.x;
      lanes_.p[kept] = c.p;
      lanes_.y[kept] = c.y;
      lanes_.id[kept] = c.next;
      lanes_.point[kept] = static_cast<int>(i);
      lanes_.either[kept] = 0;
      ++kept;
    }
    begin = end;
  }
  return kept;
}

void Program::find_alive(Front& front, const Fan& fan, int kind, int boundary) {
  const Threshold* const row = thresholds(front.length, fan, kind);
  front.alive.clear();
  front.most_at.clear();
  if (corridor()) {
    const std::vector<int>& points = in_.boundary_points[at(boundary - 1)];
    for (std::size_t place = 0; place < points.size(); ++place) {
      if (!row[place].alive()) continue;
      front.alive.push_back(points[place]);
      front.most_at.push_back(&row[place]);
    }
  } else {
    for (int i = 1; i < last_; ++i) {
      if (!row[coarse_of(i)].alive()) continue;
      front.alive.push_back(i);
      front.most_at.push_back(&row[coarse_of(i)]);
    }
  }
}

// The labels of a list behind (d0, list.d0], with the transfer added, into the lanes from `kept` on: those that some
// start of some variant of the stage may leave within the room.
void Program::gather(const Layer& from, const LabelList& list, const Front& front, const DeviceGroup& group,
                     std::size_t& kept) {
  const int d1 = list.d0;
  Link link;
  if (d1 < devices_) link = problem_.link(front.d0, d1, list.d1);
  const double per_byte = d1 < devices_ ? 1 / link.bytes_per_ms : 0;
  const std::size_t count = list.end - list.begin;
  lanes_.reserve(kept + count);
  units_ += kPerShifted * static_cast<std::int64_t>(count);
  const double either = relaxed_ && d1 < devices_ ? std::min(tables_.ms_per_work(group), list.ms_per_work) : 0;
  // The most that x, p and x + y may be once the stage's work up to the label's point is added, for any start of the
  // stage: labels above need not be tried start by start.
  struct Reach {
    const PointColumns* columns = nullptr;
    double x = -kInfinity, p = -kInfinity, xy = -kInfinity;
  };
  std::vector<Reach> reaches;
  for (const int v : problem_.useful_variants(group)) reaches.push_back({&tables_.columns(group, v)});
  const double scale = group.scale;
  const int* const all_points = from.point.data() + list.begin;
  std::size_t reached = 0;
  for (std::size_t q = 0; q < count; ++q) {
    const std::size_t j = at(all_points[q]);
    for (; reached < front.alive.size() && front.alive[reached] <= all_points[q]; ++reached) {
      const std::size_t i = at(front.alive[reached]);
      const Threshold& most = *front.most_at[reached];
      for (Reach& reach : reaches) {
        const double both = reach.columns->both_high[i] * scale;
        reach.x = std::max(reach.x, most.x + both);
        reach.p = std::max(reach.p, most.p + both);
        reach.xy = std::max(reach.xy, most.xy + both - reach.columns->backward_high[i] * scale);
      }
    }
    const double bytes = points_.activation[j];
    const double t = d1 < devices_ && bytes > 0 ? link.latency_ms + bytes * per_byte : 0;
    // Wherever in the run the cut is, its work is done by one of the two stages.
    const double of_run = (points_.work_high[j] - points_.work_low[j]) * either;
    const double x = terms::x_behind_transfer(from.x[list.begin + q] + of_run, t, micro_batches_);
    const double p = from.p[list.begin + q] + 2 * t + of_run;
    const double y = from.y[list.begin + q] - (relaxed_ && d1 < devices_ ? slowest_transfer(link, j) : t);
    bool wanted = false;
    for (const Reach& reach : reaches) {
      const double both = reach.columns->both_low[j] * scale * (1 - 1e-12);
      const double forward = both - reach.columns->backward_low[j] * scale;
      wanted = wanted ||
               !(x + both > reach.x || p + both > reach.p || (!relaxed_ && x + y + forward > reach.xy + 1e-12 * both));
    }
    if (!wanted) continue;
    lanes_.either[kept] = of_run;
    lanes_.x[kept] = x;
    lanes_.p[kept] = p;
    lanes_.y[kept] = y;
    lanes_.point[kept] = all_points[q];
    lanes_.id[kept] = from.id[list.begin + q];
    ++kept;
  }
}

// Suffixes of `length` stages: every stage in front of every label of one less.
void Program::extend(const Layer& from, Layer& to, int length, int boundary) {
  Front front;
  front.length = length;
  for (int stages = std::max(in_.min_stages, length + 1); stages <= in_.max_stages; ++stages) {
    front.longest = std::max(front.longest, limit(stages) / micro_batches_);
  }
  std::vector<std::pair<int, int>> groups;  // kind of (d0, d1], list
  buckets_.resize(points_.size());
  for (const Fan& fan : fans(boundary)) {
    front.d0 = fan.d;
    groups.clear();
    for (std::size_t l = 0; l < from.lists.size(); ++l) {
      const int end = from.lists[l].d0;
      if (end > fan.d && fan.kind_of_end[at(end)] >= 0) {
        groups.emplace_back(fan.kind_of_end[at(end)], static_cast<int>(l));
      }
    }
    std::sort(groups.begin(), groups.end());
    for (std::size_t g = 0; g < groups.size();) {
      const int this_kind = groups[g].first;
      find_alive(front, fan, this_kind, boundary);
      int d1 = 0;
      double list_rate = kInfinity;
      front.ms_per_work = kInfinity;
      std::size_t kept = 0, lists = 0;  // labels gathered from so many lists behind one group
      for (; g < groups.size() && groups[g].first == this_kind; ++g) {
        if (front.alive.empty()) continue;
        if (over() || too_many()) return;
        units_ += kPerAlive * static_cast<std::int64_t>(front.alive.size());
        const LabelList& list = from.lists[at(groups[g].second)];
        d1 = list.d0;
        const DeviceGroup& group = problem_.group(fan.d, d1);
        gather(from, list, front, group, kept);
        list_rate = std::min(list_rate, list.ms_per_work);
        ++lists;
        if (!relaxed_ && g + 1 < groups.size() && groups[g + 1].first == this_kind &&
            from.lists[at(groups[g + 1].second)].d0 == d1) {
          continue;
        }
        const std::size_t count = lists > 1 ? merge_lanes(kept) : kept;
        kept = lists = 0;
        if (relaxed_) front.ms_per_work = std::min(front.ms_per_work, tables_.ms_per_work(group));
        if (count > 0) {
          for (const int variant : problem_.useful_variants(group))
            put_in_front(front, group, variant, count, list_rate);
          if (over()) return;
        }
        list_rate = kInfinity;
      }
      emit(front, d1, to);
      if (too_many()) return;
    }
  }
}

// Adds the gradients that stages from point i share with others: copies are summed like the stage's own gradients, and
// the exchange takes its time where the optimizer does.
void Program::add_shared(std::size_t i, const DeviceGroup& group, const PointColumns& columns, std::size_t count) {
  units_ += kPerInFlight * static_cast<std::int64_t>(count);
  for (std::size_t q = 0; q < count; ++q) {
    const std::size_t j = at(lanes_.point[q]);
    const SharedGradients shared = tables_.shared_gradients(i, j);
    lanes_.gradient[q] = points_.gradient_low[j] + shared.copies;
    lanes_.optimizer[q] = columns.optimizer_low[j] + problem_.exchange_ms(shared, group);
  }
}

// Stages of one group as one variant in front of lanes 0..count-1.
void Program::put_in_front(Front& front, const DeviceGroup& group, int variant, std::size_t count, double list_rate) {
  const PointColumns& columns = tables_.columns(group, variant);
  StageCost cost = stage_cost(group, variant);
  const int* const point = lanes_.point.data();
  for (std::size_t q = 0; q < count; ++q) {
    const std::size_t j = at(point[q]);
    lanes_.both[q] = columns.both_low[j];
    lanes_.gradient[q] = points_.gradient_low[j];
    if (plain_ && !relaxed_) continue;
    lanes_.backward[q] = columns.backward_low[j];
    lanes_.other_backward[q] = columns.backward_high[j];
    lanes_.optimizer[q] = columns.optimizer_low[j];
  }
  const terms::InFlight scheduled = in_flight_before(front.length - 1);
  const bool binds = tables_.memory_binds(group, variant, scheduled.k);
  const bool idle_rule = !problem_.options().allow_idle_stages;
  std::pair<int, int> sharing = {-1, -1};
  std::size_t first = 0, past = 0;
  for (std::size_t a = 0; a < front.alive.size(); ++a) {
    const int i = front.alive[a];
    const std::size_t at_i = at(i);
    const bool same = points_.several(at_i);
    while (first < count &&
           (point[first] < i || (point[first] == i && !same) ||
            (in_.needs_variable && points_.variables_high[at(point[first])] <= points_.variables_low[at_i]) ||
            (idle_rule && tables_.idles(at_i, at(point[first]), group)))) {
      ++first;
    }
    cost.both = columns.both_high[at_i];
    past = past_fitting(past, first, count, i, front, group, variant, binds, cost, adaptive() ? 1 : scheduled.k);
    if (first >= past) continue;
    cost.backward = columns.backward_high[at_i];
    cost.other_backward = columns.backward_low[at_i];
    cost.optimizer = columns.optimizer_high[at_i];
    cost.gradient = points_.gradient_high[at_i];
    cost.last_bucket = points_.last_bucket[at_i];
    if (problem_.shares_gradients() && tables_.sharing_class(at_i) != sharing) {
      sharing = tables_.sharing_class(at_i);
      add_shared(at_i, group, columns, count);
    }
    const Threshold& most = *front.most_at[a];
    // No stage may take more than the room: the tail is of no use.
    std::size_t end = past;
    const double most_both = cost.both + most.x / (micro_batches_ * cost.scale) * (1 + 1e-12);
    while (end > first && lanes_.both[end - 1] > most_both) --end;
    // Two cuts in one run: its work counts once, later, for any of the three stages that meet there.
    std::size_t shared = first;
    while (shared < end && point[shared] == i) {
      lanes_.x[shared] -= lanes_.either[shared];
      lanes_.p[shared] -= lanes_.either[shared];
      ++shared;
    }
    if (shared > first) front.ms_per_work = std::min(front.ms_per_work, list_rate);
    tried_ += static_cast<std::int64_t>(end - first);
    units_ += kPerTried * static_cast<std::int64_t>(end - first);
    if (tried_ >= next_poll_) {
      next_poll_ = tried_ + kTriedPerPoll;
      if (over()) return;
    }
    // With memory that binds an adaptive stage: by runs of labels that leave it the same K, which falls with its end.
    for (std::size_t begin = first; begin < end;) {
      int held = scheduled.k;
      std::size_t until = end;
      if (binds && adaptive()) {
        const auto holds = [&](std::size_t q) {
          units_ += kPerInFlight;
          return tables_.most_in_flight(at_i, at(point[q]), group, variant);
        };
        held = holds(begin);
        if (held == 0) break;
        if (holds(end - 1) != held) {
          std::size_t low = begin + 1, high = end - 1;
          while (low < high) {
            const std::size_t middle = low + (high - low) / 2;
            if (holds(middle) == held) {
              low = middle + 1;
            } else {
              high = middle;
            }
          }
          until = low;
        }
      }
      try_lanes(begin, until, i, front, cost, most, variant, terms::InFlight(micro_batches_, held));
      begin = until;
    }
    for (std::size_t q = first; q < shared; ++q) {
      lanes_.x[q] += lanes_.either[q];
      lanes_.p[q] += lanes_.either[q];
    }
  }
}

// The lanes first..past-1 end a stage from point i that is short enough and fits; `past` was that of the start before.
std::size_t Program::past_fitting(std::size_t past, std::size_t first, std::size_t count, int i, const Front& front,
                                  const DeviceGroup& group, int variant, bool binds, const StageCost& cost,
                                  int in_flight) {
  const double longest_both = cost.both + front.longest / cost.scale * (1 + 1e-12);
  int last_point = -1;
  bool last_fits = true;
  const auto may = [&](std::size_t q) {
    if (lanes_.both[q] > longest_both) return false;
    if (!binds) return true;
    if (lanes_.point[q] != last_point) {
      last_point = lanes_.point[q];
      units_ += kPerInFlight;
      last_fits = tables_.fits(at(i), at(last_point), group, variant, in_flight);
    }
    return last_fits;
  };
  past = std::max(past, first);
  while (past < count && may(past)) ++past;
  while (past > first && !may(past - 1)) --past;
  return past;
}

// Stages from point i with the same K in front of lanes first..end-1, into the bucket of i.
void Program::try_lanes(std::size_t first, std::size_t end, int i, const Front& front, const StageCost& cost,
                        const Threshold& most, int variant, const terms::InFlight& k) {
  const Evaluate evaluate_block = evaluator(k);
  std::vector<Candidate>& bucket = buckets_[at(i)];
  double balanced = 0, weight = 0;
  if (relaxed_) {
    balanced = (whole_work_ - points_.work_high[at(i)]) / speed_behind_[at(front.d0)] * (1 - 1e-12);
    weight = least_weight(in_flight_before(front.length - 1));
  }
  for (std::size_t begin = first; begin < end; begin += kBlock) {
    const std::size_t size = std::min(kBlock, end - begin);
    (this->*evaluate_block)(begin, size, k, cost, most);
    for (std::size_t q = 0; q < size; ++q) {
      if (!(block_room_[q] >= 0)) continue;
      double x = block_x_[q];
      const double p = block_p_[q], y = block_y_[q];
      if (relaxed_) {
        // The suffix as a whole has its work to do, whatever the runs leave open between its stages.
        x = std::max(x, micro_batches_ * balanced);
        if (full_) x = std::max(x, p + weight * balanced);
        if (x > most.x || x + y > most.xy || x + p > most.xp) continue;
      }
      offer(bucket, {std::max(x, p + most.bottleneck), p, std::max(y, most.hidden), lanes_.id[begin + q], variant});
    }
  }
}

// The labels that are kept of all buckets become a list.
void Program::emit(const Front& front, int d1, Layer& to) {
  LabelList made;
  made.d0 = front.d0;
  made.d1 = d1;
  made.ms_per_work = front.ms_per_work;
  made.begin = to.point.size();
  for (std::size_t a = 0; a < front.alive.size(); ++a) {
    const int i = front.alive[a];
    std::vector<Candidate>& bucket = buckets_[at(i)];
    if (bucket.empty()) continue;
    reached_[at(i)] = 1;
    keep_best(bucket, *front.most_at[a]);
    for (const Candidate& c : bucket) {
      to.point.push_back(i);
      to.x.push_back(c.x);
      to.p.push_back(c.p);
      to.y.push_back(c.y);
      to.id.push_back(static_cast<int>(steps_.size()));
      steps_.push_back({c.next, i, front.d0, c.variant});
    }
    bucket.clear();
    if (too_many()) return;
  }
  made.end = to.point.size();
  if (made.end > made.begin) to.lists.push_back(made);
}

}  // namespace automap::pipeline::internal
