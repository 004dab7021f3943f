// Expanding prefixes: which children have the smallest bounds, and which last boundary is best.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "models/boundary_scan.h"
#include "models/plan_space.h"
#include "models/plan_space_tables.h"

namespace automap::models {

using pipeline::DeviceGroup;
using pipeline::Link;
using pipeline::Plan;

// One row of a scan: all points at which the stage behind a parent may end on one device cut.
struct PlanSpace::ScannedRow {
  std::int32_t parent = 0;
  std::int16_t device = 0;  // index into device_cuts
  std::int16_t low = 0;     // first point
  std::int32_t count = 0;
  float smallest = 0;
  std::size_t offset = 0;  // of its bounds
};

// In the order of the scan among equals.
struct PlanSpace::Scanned {
  float bound;
  std::uint32_t row;
  std::int32_t point;
  bool operator<(const Scanned& other) const {
    if (bound != other.bound) return bound < other.bound;
    return row != other.row ? row < other.row : point < other.point;
  }
};

// The `most` smallest bounds of many rows, in bounded space.
class PlanSpace::Smallest {
 public:
  // Bounds of a row are padded to a multiple of this with infinity.
  static constexpr int kLanes = 16;

  explicit Smallest(std::size_t most) : most_(most) { kept_.reserve(4 * most + 2048); }

  // Takes the rows [first, end), whose bounds have not been offered before. Fills in their `smallest`.
  void offer(std::vector<ScannedRow>& rows, std::size_t first, const float* bounds) {
    // The smallest of every 16th point of each row are all different pairs: no more than `most` pairs can be below the
    // largest of the `most` smallest of them.
    minima_.clear();
    for (std::size_t r = first; r < rows.size(); ++r) {
      const float* row = bounds + rows[r].offset;
      float least[kLanes];
      std::copy(row, row + kLanes, least);
      for (int i = kLanes; i < rows[r].count; i += kLanes) {
        for (int k = 0; k < kLanes; ++k) least[k] = row[i + k] < least[k] ? row[i + k] : least[k];
      }
      minima_.insert(minima_.end(), least, least + kLanes);
      rows[r].smallest = *std::min_element(least, least + kLanes);
    }
    float limit = std::numeric_limits<float>::infinity();
    if (minima_.size() > most_) {
      const auto nth = minima_.begin() + static_cast<std::ptrdiff_t>(most_ - 1);
      std::nth_element(minima_.begin(), nth, minima_.end());
      limit = *nth;
    }
    // Among equal bounds the first ones suffice.
    std::size_t equals = limit < threshold_ ? most_ : 0;
    limit = std::min(limit, threshold_);
    for (std::size_t r = first; r < rows.size(); ++r) {
      if (!(rows[r].smallest <= limit)) continue;
      const float* row = bounds + rows[r].offset;
      for (int i = 0; i < rows[r].count; i += kLanes) {
        int any = 0;
        for (int k = 0; k < kLanes; ++k) any |= row[i + k] <= limit ? 1 : 0;
        if (any == 0) continue;
        for (int k = i; k < std::min(i + kLanes, rows[r].count); ++k) {
          if (row[k] < limit || (row[k] == limit && equals > 0)) {
            equals -= row[k] == limit ? 1 : 0;
            kept_.push_back({row[k], static_cast<std::uint32_t>(r), rows[r].low + k});
          }
        }
      }
    }
    if (kept_.size() > 2 * most_) shrink();
  }

  std::vector<Scanned>& take() {
    shrink();
    return kept_;
  }

 private:
  void shrink() {
    if (kept_.size() <= most_) return;
    std::nth_element(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(most_ - 1), kept_.end());
    kept_.resize(most_);
    threshold_ = kept_.back().bound;
  }

  std::size_t most_;
  float threshold_ = std::numeric_limits<float>::infinity();  // what comes later has to be below
  std::vector<Scanned> kept_;
  std::vector<float> minima_;
};

// The bounds of the points low..high on one device cut; scanned together.
void PlanSpace::scan_row(const Prefix& from, int device_cut, int low, int high, float* bounds) const {
  const Tables& t = *tables_;
  const int s = from.stages + 1, left = stages_ - s, d = device_cut;
  const DeviceGroup& group = problem_.group(from.d1, d);
  const double transfer_ms = s > 1 ? problem_.transfer_ms(cuts_[at(from.point)], from.d0, from.d1, d) : 0;
  const Tables::WayOut way = t.way_out(from.d1, d);
  StageScan scan = t.scan_of(from, group, transfer_ms);
  scan.per_rest = static_cast<float>(1 / t.rate_behind[at(d)]);
  scan.per_byte = static_cast<float>(std::min(way.near_ms_per_byte, way.far_ms_per_byte));
  scan.steady_behind = t.full ? static_cast<float>(t.steady_behind[at(s)]) : 0;
  scan.least = static_cast<float>(from.bound_ms);
  scan.behind_sum = t.behind_sum_f[at(left - 1)].data() + low;
  scan.behind_largest = t.behind_largest_f[at(left - 1)].data() + low;
  scan.per_behind = static_cast<float>(t.behind_ms_per_byte[at(s)][at(d)]);
  scan_boundary(scan, t.work_f.data(), t.weight_f.data(), t.activation_f.data(), low, high, bounds);
  units_ += kPerRow;
}

// The same one by one, where stages differ by more than factors; infinity where the stage cannot end.
void PlanSpace::weigh_row(const Prefix& from, int device_cut, int low, int high, float* bounds) const {
  Prefix child;
  for (int point = low; point <= high; ++point) {
    const bool there = append(from, point, device_cut, child);
    bounds[point - low] = there ? static_cast<float>(child.bound_ms) : std::numeric_limits<float>::infinity();
  }
  units_ += kPerRow + kPerWeighed * (high - low + 1);
}

void PlanSpace::expand(const std::vector<Prefix>& parents, int most, std::vector<Prefix>& children,
                       std::vector<int>& parent_of) const {
  const Tables& t = *tables_;
  children.clear();
  parent_of.clear();
  if (parents.empty() || !possible_ || most < 1) return;
  const int s = parents.front().stages + 1, left = stages_ - s;
  AM_CHECK(s < stages_);
  const int last = std::min(t.last_point[at(left)], t.end - 1);
  // The scan leaves out the stall lines of earlier stages, so a few more are looked at than asked for.
  const std::size_t wanted = at(most);
  Smallest smallest(wanted + wanted / 8 + 8);
  std::vector<Scanned> of_device(device_cuts_.size(), Scanned{std::numeric_limits<float>::infinity(), 0, 0});
  std::vector<ScannedRow> rows;
  // So many bounds are looked at together; they stay in the cache.
  constexpr std::size_t kTogether = 32768;
  const std::size_t row_size = cuts_.size() + Smallest::kLanes;
  thread_local std::vector<float> bounds;  // kept between calls: fresh memory costs more than the scan
  bounds.resize(
      std::max(bounds.size(), std::min(kTogether, parents.size() * device_cuts_.size() * row_size) + row_size));
  std::size_t used = 0, offered = 0;
  const auto offer = [&] {
    smallest.offer(rows, offered, bounds.data());
    for (; offered < rows.size(); ++offered) {
      const ScannedRow& row = rows[offered];
      Scanned& best = of_device[at(row.device)];
      if (!(row.smallest < best.bound)) continue;
      const float* begin = bounds.data() + row.offset;
      const auto place_of = std::find(begin, begin + row.count, row.smallest) - begin;
      best = {row.smallest, static_cast<std::uint32_t>(offered), row.low + static_cast<std::int32_t>(place_of)};
    }
    used = 0;
  };

  for (std::size_t i = 0; i < parents.size(); ++i) {
    const Prefix& from = parents[i];
    int first = from.point + 1;
    if (t.needs_variable) first = std::max(first, t.next_variable[at(from.point)]);
    if (first > last) continue;
    const auto begin = std::upper_bound(device_cuts_.begin(), device_cuts_.end(), from.d1);
    for (auto cut = begin; device_cuts_.end() - cut >= left && cut != device_cuts_.end(); ++cut) {
      const int d = *cut;
      const DeviceGroup& group = problem_.group(from.d1, d);
      if (!group.valid || !t.leaves_a_way(s, d)) continue;
      const int low = std::max(first, t.earliest_end(s, d));
      const int high = t.last_fitting(s, from.point, low, last, group);
      if (high < low) continue;
      float* out = bounds.data() + used;
      if (t.plain) {
        scan_row(from, d, low, high, out);
      } else {
        weigh_row(from, d, low, high, out);
      }
      const int count = high - low + 1, padded = (count + Smallest::kLanes - 1) / Smallest::kLanes * Smallest::kLanes;
      std::fill(out + count, out + padded, std::numeric_limits<float>::infinity());
      rows.push_back({static_cast<std::int32_t>(i), static_cast<std::int16_t>(cut - device_cuts_.begin()),
                      static_cast<std::int16_t>(low), count, 0, used});
      used += at(padded);
      units_ += kPerScanned * padded;
      if (used > kTogether) offer();
    }
  }
  offer();
  take_children(parents, wanted, rows, of_device, smallest.take(), children, parent_of);
}

// Places what was scanned: at most `wanted` in all, the best of every device cut among them.
void PlanSpace::take_children(const std::vector<Prefix>& parents, std::size_t wanted,
                              const std::vector<ScannedRow>& rows, const std::vector<Scanned>& of_device,
                              std::vector<Scanned>& scanned, std::vector<Prefix>& children,
                              std::vector<int>& parent_of) const {
  std::sort(scanned.begin(), scanned.end());
  // The best of every device cut takes part, as far as half of the places go.
  std::vector<Scanned> chosen;
  for (const Scanned& best : of_device) {
    if (best.bound < std::numeric_limits<float>::infinity()) chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.resize(std::min(chosen.size(), std::max<std::size_t>(1, wanted / 2)));
  const std::size_t kept = chosen.size();
  std::vector<char> reserved(device_cuts_.size(), 0);
  for (const Scanned& best : chosen) reserved[at(rows[best.row].device)] = 1;
  for (const Scanned& one : scanned) {
    const std::size_t device = at(rows[one.row].device);
    const Scanned& best = of_device[device];
    const bool there = reserved[device] != 0 && one.row == best.row && one.point == best.point;
    if (!there) chosen.push_back(one);
  }
  struct Child {
    double bound;
    std::size_t index;
    bool reserved;
  };
  units_ += kPerChild * static_cast<std::int64_t>(chosen.size());
  thread_local std::vector<Prefix> placed;
  placed.resize(std::max(placed.size(), chosen.size()));
  std::vector<Child> order;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Prefix& from = parents[at(rows[chosen[i].row].parent)];
    const int d = device_cuts_[at(rows[chosen[i].row].device)];
    StageCost cost;
    AM_CHECK(tables_->stage(from.stages + 1, from.point, chosen[i].point, problem_.group(from.d1, d), cost));
    place(from, chosen[i].point, d, cost, placed[i]);
    order.push_back({placed[i].bound_ms, i, i < kept});
  }
  const auto by_bound = [](const Child& a, const Child& b) {
    return a.bound != b.bound ? a.bound < b.bound : a.index < b.index;
  };
  if (order.size() > wanted) {
    std::sort(order.begin(), order.end(),
              [&](const Child& a, const Child& b) { return a.reserved != b.reserved ? a.reserved : by_bound(a, b); });
    order.resize(wanted);
  }
  std::sort(order.begin(), order.end(), by_bound);
  children.reserve(order.size());
  for (const Child& child : order) {
    children.push_back(placed[child.index]);
    parent_of.push_back(rows[chosen[child.index].row].parent);
  }
}

void PlanSpace::promising(const std::vector<Prefix>& parents, int most, std::vector<Prefix>& children,
                          std::vector<int>& parent_of, std::vector<Rollouts>& rollouts) const {
  constexpr int kPool = 4;      // looked at per child kept
  constexpr int kByBound = 6;   // one in so many is kept for its bound alone
  constexpr int kImproved = 3;  // one in so many has its best rollout improved
  expand(parents, kPool * most, children, parent_of);
  rollouts.assign(children.size(), Rollouts());
  std::vector<std::pair<double, std::size_t>> order;
  if (children.size() > at(most)) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      roll(children[i], kQuickRules, rollouts[i]);
      order.emplace_back(i < at(most / kByBound) ? -1.0 : rollouts[i].best_ms, i);
    }
    std::nth_element(order.begin(), order.begin() + most, order.end());
    order.resize(at(most));
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t from = order[i].second;  // never before i
      if (from != i) {
        children[i] = children[from];
        parent_of[i] = parent_of[from];
        rollouts[i] = rollouts[from];
      }
      roll(children[i], kEveryRule & ~kQuickRules, rollouts[i]);
    }
    children.resize(at(most));
    parent_of.resize(at(most));
    rollouts.resize(at(most));
  } else {
    for (std::size_t i = 0; i < children.size(); ++i) roll(children[i], kEveryRule, rollouts[i]);
  }
  order.clear();
  for (std::size_t i = 0; i < children.size(); ++i) order.emplace_back(rollouts[i].best_ms, i);
  const std::size_t improved = std::min(order.size(), at(most / kImproved));
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(improved), order.end());
  for (std::size_t i = 0; i < improved; ++i) improve(children[order[i].second], rollouts[order[i].second]);
}

// A last boundary that may be below the incumbent.
struct PlanSpace::LastBoundary {
  float bound;
  int d, point;
};

// V of the boundaries low..high on device cut d, the rest being one stage; nearly exact from below, and only where V is
// about below `incumbent_ms`.
void PlanSpace::scan_last(const Prefix& prefix, int d, int low, int high, double incumbent_ms, float* bounds) const {
  const Tables& t = *tables_;
  const int devices = problem_.num_devices(), s = stages_ - 1;
  if (!t.plain) {
    Prefix placed;
    for (int point = low; point <= high; ++point) {
      double value = kInfinity;
      if (append(prefix, point, d, placed) && placed.bound_ms < incumbent_ms) value = close(placed);
      bounds[point - low] = static_cast<float>(value);
    }
    units_ += kPerRow + 2 * kPerWeighed * (high - low + 1);
    return;
  }
  const DeviceGroup& group = problem_.group(prefix.d1, d);
  const DeviceGroup& rest_group = problem_.group(d, devices);
  const double transfer_ms = s > 1 ? problem_.transfer_ms(cuts_[at(prefix.point)], prefix.d0, prefix.d1, d) : 0;
  const Link link = problem_.link(prefix.d1, d, devices);
  StageScan scan = t.scan_of(prefix, group, transfer_ms);
  scan.per_rest = static_cast<float>(rest_group.scale);
  scan.per_byte = static_cast<float>(1 / link.bytes_per_ms);
  scan.ring_rest = rest_group.size == 1 ? 0.0f : static_cast<float>(rest_group.all_reduce.ms_per_byte());
  scan.backward = static_cast<float>(t.backward_share);
  scan.steady_behind = scan.steady;  // the rest is one stage
  scan.weight_end = t.weight_f.back();
  scan.behind_sum = t.behind_sum_f[0].data() + low;  // nothing
  scan.behind_largest = t.behind_largest_f[0].data() + low;
  scan_boundary(scan, t.work_f.data(), t.weight_f.data(), t.activation_f.data(), low, high, bounds);
  units_ += kPerRow + 2 * kPerScanned * (high - low + 1);
}

void PlanSpace::last_boundaries(const Prefix& prefix, double incumbent_ms, const KeepPlan& keep) const {
  const Tables& t = *tables_;
  if (prefix.stages == stages_ - 1) {
    const double value = close(prefix);
    if (value < incumbent_ms) keep(value, prefix);
    return;
  }
  AM_CHECK(prefix.stages == stages_ - 2);
  if (!possible_) return;
  const int s = stages_ - 1;
  int first = prefix.point + 1;
  if (t.needs_variable) first = std::max(first, t.next_variable[at(prefix.point)]);
  const int last = std::min(t.last_point[1], t.end - 1);
  if (first > last) return;
  std::vector<float> bounds(cuts_.size());
  std::vector<LastBoundary> all, of_device;
  const float limit = static_cast<float>(std::min(incumbent_ms, 1e38)) * (1 + 1e-5f);
  for (auto cut = std::upper_bound(device_cuts_.begin(), device_cuts_.end(), prefix.d1); cut != device_cuts_.end();
       ++cut) {
    const int d = *cut;
    const DeviceGroup& group = problem_.group(prefix.d1, d);
    if (!group.valid || !t.leaves_a_way(s, d)) continue;
    const int low = std::max(first, t.earliest_end(s, d));
    const int high = t.last_fitting(s, prefix.point, low, last, group);
    if (high < low) continue;
    scan_last(prefix, d, low, high, incumbent_ms, bounds.data());
    LastBoundary best{limit, d, 0};
    for (int j = low; j <= high; ++j) {
      const float bound = bounds[at(j - low)];
      if (!(bound < limit)) continue;
      all.push_back({bound, d, j});
      if (bound < best.bound) best = all.back();
    }
    if (best.point > 0) of_device.push_back(best);
  }
  judge_last(prefix, incumbent_ms, all, of_device, keep);
}

// Nearly exact bounds: the best of every device cut first, and what they leave is little.
void PlanSpace::judge_last(const Prefix& prefix, double incumbent_ms, std::vector<LastBoundary>& all,
                           std::vector<LastBoundary>& of_device, const KeepPlan& keep) const {
  Prefix placed;
  double best_ms = incumbent_ms;
  const auto judge = [&](const LastBoundary& one) {
    units_ += kPerChild;
    if (!append(prefix, one.point, one.d, placed)) return;
    const double value = close(placed);
    if (!(value < best_ms)) return;
    best_ms = keep(value, placed);
  };
  std::sort(of_device.begin(), of_device.end(), [](const LastBoundary& a, const LastBoundary& b) {
    return a.bound != b.bound ? a.bound < b.bound : a.d < b.d;
  });
  for (const LastBoundary& one : of_device) {
    if (one.bound < best_ms * (1 + 1e-5)) judge(one);
  }
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const LastBoundary& one) { return !(one.bound < best_ms * (1 + 1e-5)); }),
            all.end());
  std::sort(all.begin(), all.end(), [](const LastBoundary& a, const LastBoundary& b) {
    if (a.bound != b.bound) return a.bound < b.bound;
    return a.d != b.d ? a.d < b.d : a.point < b.point;
  });
  for (const LastBoundary& one : all) {
    if (!(one.bound < best_ms * (1 + 1e-5))) break;
    const auto seen = [&](const LastBoundary& other) { return other.d == one.d && other.point == one.point; };
    if (std::none_of(of_device.begin(), of_device.end(), seen)) judge(one);
  }
}

double PlanSpace::finish(const Prefix& prefix, double incumbent_ms, Plan* best) const {
  double best_ms = kInfinity;
  Prefix winner;
  last_boundaries(prefix, incumbent_ms, [&](double value, const Prefix& placed) {
    best_ms = value;
    winner = placed;
    return value;
  });
  if (best != nullptr && best_ms < kInfinity) *best = plan_of(winner);
  return best_ms;
}

std::vector<std::pair<double, Plan>> PlanSpace::finish_best(const Prefix& prefix, int k) const {
  std::vector<std::pair<double, Plan>> found;
  if (k < 1) return found;
  last_boundaries(prefix, kInfinity, [&](double value, const Prefix& placed) {
    const auto place = std::upper_bound(found.begin(), found.end(), value,
                                        [](double v, const std::pair<double, Plan>& entry) { return v < entry.first; });
    found.insert(place, {value, plan_of(placed)});
    if (static_cast<int>(found.size()) > k) found.pop_back();
    return static_cast<int>(found.size()) == k ? found.back().first : kInfinity;
  });
  return found;
}

}  // namespace automap::models
