#include "models/plan_space.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/row.h"
#include "models/boundary_scan.h"
#include "models/plan_space_tables.h"

namespace automap::models {

using pipeline::DeviceGroup;
using pipeline::Link;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;
using pipeline::ValueForm;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMostPivots = 1024;

// Prices, units of work.
constexpr std::int64_t kPerPoint = 20;   // of a table, for one stage
constexpr std::int64_t kPerFit = 100;    // a pair of device cuts whose memory is looked at, for one stage
constexpr std::int64_t kPerRow = 100;    // the pivots behind a device cut scanned together
constexpr std::int64_t kPerScanned = 1;  // a pivot among them
constexpr std::int64_t kPerChild = 150;  // one placed exactly

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// Server boundaries first, then an even grid, at most `most` in all.
std::vector<int> usable_device_cuts(const Problem& problem, int most, int radius) {
  const int devices = problem.num_devices();
  std::vector<int> boundaries, cuts;
  for (int d = 1; d < devices; ++d) {
    if (problem.server_of_device(d - 1) != problem.server_of_device(d)) boundaries.push_back(d);
  }
  const auto near_boundary = [&](int d) {
    if (radius < 0) return true;
    const auto above = std::lower_bound(boundaries.begin(), boundaries.end(), d);
    return (above != boundaries.end() && *above - d <= radius) ||
           (above != boundaries.begin() && d - above[-1] <= radius);
  };
  if (devices - 1 <= most) {
    for (int d = 1; d < devices; ++d) {
      if (near_boundary(d)) cuts.push_back(d);
    }
    return cuts;
  }
  const int count = static_cast<int>(boundaries.size());
  for (int i = 0; i < std::min(count, most); ++i) {
    cuts.push_back(boundaries[at(count <= most ? i : static_cast<int>(static_cast<std::int64_t>(i) * count / most))]);
  }
  for (int parts = most - static_cast<int>(cuts.size()), k = 1; k <= parts; ++k) {
    const int d = static_cast<int>(static_cast<std::int64_t>(k) * devices / (parts + 1));
    if (d >= 1 && near_boundary(d)) cuts.push_back(d);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

// ---- Preparation ----------------------------------------------------------------------------------------------------

PlanSpace::PlanSpace(const Problem& problem, const PlanSpaceOptions& options)
    : problem_(problem), stages_(options.stages), schedule_(options.schedule) {
  const int n = problem.num_instructions(), devices = problem.num_devices();
  if (stages_ < 2 || stages_ > kMaxStages || stages_ > devices || stages_ > n) {
    throw Error(ErrorKind::kUsage, "a plan space of " + std::to_string(stages_) + " stages on " +
                                       std::to_string(devices) + " devices and " + std::to_string(n) +
                                       " instructions; expected 2 to " +
                                       std::to_string(std::min({kMaxStages, devices, n})));
  }
  cuts_.push_back(0);
  const std::vector<int> pivots =
      options.pivots.empty() ? pipeline::grid_pivots(n, pipeline::kGranularity) : options.pivots;
  for (int p : pivots) {
    if (p <= cuts_.back() || p >= n) {
      throw Error(ErrorKind::kUsage, "pivot " + std::to_string(p) + " of a plan space; expected ascending within 1.." +
                                         std::to_string(n - 1));
    }
    cuts_.push_back(p);
  }
  if (pivots.size() > kMostPivots) {
    throw Error(ErrorKind::kUsage, std::to_string(pivots.size()) + " pivots for a plan space; expected at most " +
                                       std::to_string(kMostPivots));
  }
  cuts_.push_back(n);
  device_cuts_ = usable_device_cuts(problem, options.max_device_cuts, options.server_radius);

  auto tables = std::make_shared<Tables>();
  Tables& t = *tables;
  const int end = num_points() - 1;
  const std::size_t points = cuts_.size();
  t.end = end;
  t.stages = stages_;
  t.micro_batches = problem.micro_batches();
  t.steady = t.micro_batches - 1;
  t.phi = problem.forward_fraction();
  t.full = problem.options().value == ValueForm::kFull;
  t.memory = problem.options().memory;
  t.state_factor = problem.options().state_factor_or_default();
  t.needs_variable = problem.stages_need_variables(stages_);
  t.work.resize(points);
  t.weight.resize(points);
  t.stash.resize(points);
  t.activation.resize(points);
  t.variables.resize(points);
  for (std::size_t j = 0; j < points; ++j) {
    const int p = cuts_[j];
    t.work[j] = problem.work_ms(0, p);
    t.weight[j] = problem.weight_bytes(0, p);
    t.stash[j] = problem.stash_bytes(0, p);
    t.activation[j] = p == 0 || p == n ? 0 : problem.activation_bytes(p);
    t.variables[j] = problem.variables(0, p);
  }
  t.work_f.assign(t.work.begin(), t.work.end());
  t.weight_f.assign(t.weight.begin(), t.weight.end());
  t.activation_f.assign(t.activation.begin(), t.activation.end());

  t.stages_behind.assign(points, 0);
  t.next_variable.assign(points, end + 1);
  for (int j = end; j-- > 0;) {
    const bool variable = t.variables[at(j + 1)] > t.variables[at(j)];
    t.next_variable[at(j)] = variable ? j + 1 : t.next_variable[at(j + 1)];
    t.stages_behind[at(j)] = t.stages_behind[at(j + 1)] + (!t.needs_variable || variable ? 1 : 0);
  }
  t.last_point.assign(kMaxStages + 1, -1);
  for (int left = 0; left <= kMaxStages; ++left) {
    for (int j = 0; j <= end; ++j) {
      if (t.stages_behind[at(j)] >= left) t.last_point[at(left)] = j;
    }
  }

  t.narrow.resize(points);
  for (int j = 0; j <= end; ++j) {
    int best = j;
    for (int step = 1; step <= 3; ++step) {
      for (int i : {j - step, j + step}) {
        if (i > 0 && i < end && t.activation[at(i)] < t.activation[at(best)]) best = i;
      }
    }
    t.narrow[at(j)] = best;
  }
  // What still lies behind each point.
  t.least_activation.assign(points, 0);
  t.mean_activation.assign(points, 0);
  t.largest_weight.assign(points, 0);
  t.largest_weight_at.assign(points, end);
  t.largest_work.assign(points, 0);
  double sum = 0, least = kInfinity, weight = 0, work = 0;
  int weight_at = end;
  for (int j = end; j-- > 0;) {
    const double block = t.weight[at(j + 1)] - t.weight[at(j)];
    if (block > weight) {
      weight = block;
      weight_at = j + 1;
    }
    work = std::max(work, t.work[at(j + 1)] - t.work[at(j)]);
    t.least_activation[at(j)] = least == kInfinity ? 0 : least;
    t.mean_activation[at(j)] = j + 1 < end ? sum / (end - 1 - j) : 0;
    t.largest_weight[at(j)] = weight;
    t.largest_weight_at[at(j)] = weight_at;
    t.largest_work[at(j)] = work;
    if (j > 0) {
      sum += t.activation[at(j)];
      least = std::min(least, t.activation[at(j)]);
    }
  }

  t.prepare_behind();

  const std::size_t buckets = 512;
  t.bucket.assign(buckets + 1, 0);
  t.buckets_per_ms = t.work.back() > 0 ? static_cast<double>(buckets) / t.work.back() : 0;
  for (std::size_t b = 0, j = 0; b <= buckets; ++b) {
    const double from = t.work.back() * static_cast<double>(b) / static_cast<double>(buckets);
    while (j + 1 < points && t.work[j] < from) ++j;
    // One before, so that rounding never starts behind the point looked for.
    t.bucket[b] = j > 0 ? static_cast<int>(j) - 1 : 0;
  }

  t.rate_behind.assign(at(devices) + 1, 0);
  t.capacity_behind.assign(at(devices) + 1, 0);
  t.server_begin.resize(at(devices));
  t.server_end.resize(at(devices));
  for (int d = 0; d < devices; ++d) {
    const bool first = d == 0 || problem.server_of_device(d) != problem.server_of_device(d - 1);
    t.server_begin[at(d)] = first ? d : t.server_begin[at(d - 1)];
    t.largest_capacity = std::max(t.largest_capacity, problem.group(d, d + 1).capacity_bytes);
  }
  for (int d = devices; d-- > 0;) {
    const DeviceGroup& device = problem.group(d, d + 1);
    t.rate_behind[at(d)] = t.rate_behind[at(d + 1)] + device.speed;
    t.capacity_behind[at(d)] = t.capacity_behind[at(d + 1)] + device.capacity_bytes;
    const bool last = d + 1 == devices || problem.server_of_device(d) != problem.server_of_device(d + 1);
    t.server_end[at(d)] = last ? d + 1 : t.server_end[at(d + 1)];
  }
  for (int s = 1; s <= stages_; ++s) {
    const int k = pipeline::in_flight(schedule_, stages_, s, t.micro_batches);
    t.in_flight[at(s)] = k;
    t.laps[at(s)] = t.micro_batches > k ? (t.micro_batches - 1) / k : 0;
  }
  for (int s = 0; s < stages_; ++s) {
    t.steady_behind[at(s)] = t.steady - (t.in_flight[at(s + 1)] - 1) * std::min(t.phi, 1 - t.phi);
  }
  t.shares.resize((at(devices) + 1) * at(stages_ + 1));
  t.taper = powers(1 - 1.0 / (t.micro_batches + 1));

  for (int s = 0; s < stages_; ++s) {
    std::vector<double>& of_cut = t.behind_ms_per_byte[at(s)];
    of_cut.assign(at(devices) + 1, 0);
    if (s == 0) of_cut[0] = t.least_ms_per_byte_behind(problem, 0, stages_);
    for (int d : device_cuts_) {
      if (s > 0) of_cut[at(d)] = t.least_ms_per_byte_behind(problem, d, stages_ - s);
    }
  }
  t.prepare_memory(problem, device_cuts_);
  const auto pairs = static_cast<std::int64_t>(device_cuts_.size() * device_cuts_.size()) / 2;
  units_ += stages_ * (kPerPoint * num_points() + (t.earliest.empty() ? 0 : kPerFit * pairs));

  possible_ = t.earliest_end(0, 0) == 0 && static_cast<int>(device_cuts_.size()) + 1 >= stages_ &&
              t.stages_behind[0] >= stages_ && end >= stages_;
  tables_ = std::move(tables);
}

void PlanSpace::Tables::prepare_behind() {
  const std::size_t points = work.size();
  for (int count = 0; count < stages; ++count) {
    behind_sum[at(count)].assign(points, 0);
    behind_largest[at(count)].assign(points, 0);
  }
  std::vector<double> smallest;  // of the cuts behind j, ascending, at most stages - 1
  for (int j = end; j-- > 0;) {
    if (j + 1 < end) {
      const double bytes = activation[at(j + 1)];
      smallest.insert(std::upper_bound(smallest.begin(), smallest.end(), bytes), bytes);
      if (smallest.size() >= at(stages)) smallest.pop_back();
    }
    double sum = 0;
    for (int count = 1; count < stages; ++count) {
      const std::size_t last = at(count) - 1;
      if (last < smallest.size()) sum += smallest[last];
      behind_sum[at(count)][at(j)] = sum;
      behind_largest[at(count)][at(j)] = smallest.empty() ? 0 : smallest[std::min(last, smallest.size() - 1)];
    }
  }
  for (int count = 0; count < stages; ++count) {
    behind_sum_f[at(count)].assign(behind_sum[at(count)].begin(), behind_sum[at(count)].end());
    behind_largest_f[at(count)].assign(behind_largest[at(count)].begin(), behind_largest[at(count)].end());
  }
}

double PlanSpace::Tables::least_ms_per_byte_behind(const Problem& problem, int device_cut, int stages_left) const {
  const int devices = problem.num_devices(), left = devices - device_cut;
  if (stages_left < 2 || left < stages_left) return 0;
  // Two neighbours take turns to be the larger; the others have a device each at least.
  const int pair = (left - (stages_left - 2)) / 2;
  double most = 0, across = 0;
  int servers = 0;
  for (int d = device_cut; d < devices; d = server_end[at(d)], ++servers) {
    const int begin = server_begin[at(d)], finish = server_end[at(d)], size = finish - std::max(begin, device_cut);
    if (size >= 2) {
      const double intra = problem.group(begin, finish).ring_bytes_per_ms;
      most = std::max(most, intra * std::min(pair, size / 2));
    }
    if (finish < devices) {
      across = std::max(across, problem.link(finish - 1, finish, finish + 1).bytes_per_ms);
    }
  }
  // A server may be touched by both.
  most = std::max(most, across * std::max(1, std::min(pair, (servers + 1) / 2)));
  return most > 0 ? 1 / most : 0;
}

double PlanSpace::Tables::length_bound(const Reached& reached, int stages_placed, int point, int device_cut,
                                       double* total_ms) const {
  const std::size_t behind = at(stages - stages_placed - 1);  // cuts still to come
  const double per_byte = behind_ms_per_byte[at(stages_placed)][at(device_cut)];
  const double rest = (work.back() - work[at(point)]) / rate_behind[at(device_cut)];
  const double left_ms = reached.filled_ms + 2 * reached.out_ms;
  // Some stage of the rest takes at least its fair share, and the rest takes at least that in all; of the cuts still to
  // come the cheapest have to be paid, too. But that stage may come first and the cuts behind it: then the last rounds
  // of its micro-batches in flight hide their forwards or backwards behind them.
  const double cuts = 2 * behind_sum[behind][at(point)] * per_byte;
  const double total = left_ms + cuts + rest;
  const double largest = behind_largest[behind][at(point)] * per_byte;
  *total_ms = total;
  return std::max({reached.path_ms, reached.filled_ms + (2 + steady) * reached.out_ms, left_ms + (2 + steady) * largest,
                   left_ms + rest + steady * rest, full ? total + steady_behind[at(stages_placed)] * rest : total,
                   full ? total + reached.steady_ms : 0});
}

// A dynamic program from the last stage to the first: a plan fits from here on when its next stage ends at a point from
// where the rest fits; the smallest such point leaves the smallest stage.
void PlanSpace::Tables::prepare_memory(const Problem& problem, const std::vector<int>& device_cuts) {
  if (!memory) return;
  const int devices = problem.num_devices();
  double smallest = kInfinity;
  for (int d = 0; d < devices; ++d) smallest = std::min(smallest, problem.group(d, d + 1).capacity_bytes);
  if (state_factor * weight.back() + stash.back() * micro_batches <= smallest) return;
  const std::size_t width = at(devices) + 1;
  const int never = end + 1;
  earliest.assign(at(stages) * width, never);
  // The smallest point p such that (p, to] fits on the group.
  const auto smallest_begin = [&](int to, const DeviceGroup& group, int k) {
    int low = -1, high = to;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (fits(middle, to, group, k) ? high : low) = middle;
    }
    return high;
  };
  for (int s = stages; s-- > 0;) {
    const int k = in_flight[at(s + 1)];
    int* row = &earliest[at(s) * width];
    const auto fill = [&](int d) {
      if (s + 1 == stages) {
        const int from = smallest_begin(end, problem.group(d, devices), k);
        row[d] = from < end ? from : never;
        return;
      }
      const int* next = row + width;
      for (auto cut = std::upper_bound(device_cuts.begin(), device_cuts.end(), d); cut != device_cuts.end(); ++cut) {
        if (next[*cut] > end) continue;
        const DeviceGroup& group = problem.group(d, *cut);
        // Only what is smaller than the best so far matters.
        if (row[d] == 0) break;
        // The stage may end farther behind, where the step before `to` is too large for this group.
        for (int to = std::max(next[*cut], 1); to < end; ++to) {
          if (row[d] <= end && !fits(row[d] - 1, to, group, k)) break;
          const int from = smallest_begin(to, group, k);
          if (from == to) continue;
          row[d] = std::min(row[d], from);
          break;
        }
      }
    };
    if (s == 0) {
      fill(0);
    } else {
      for (int d : device_cuts) fill(d);
    }
  }
}

// The ways out of the group (d0, d1] that no transfer beats: to the rest of its own server, and to others.
PlanSpace::Tables::WayOut PlanSpace::Tables::way_out(const Problem& problem, int d0, int d1) const {
  WayOut out;
  const int devices = problem.num_devices();
  const int server_last = server_end[at(d1 - 1)];
  if (server_begin[at(d1 - 1)] <= d0 && server_last > d1) {
    const Link link = problem.link(d0, d1, server_last);
    out.near_latency_ms = link.latency_ms;
    out.near_ms_per_byte = 1 / link.bytes_per_ms;
  }
  const int most = problem.group(d0, d1).servers;
  for (int d = d1, servers = 0; d < devices && servers < most; ++servers) {
    d = server_end[at(d)];
    const Link link = problem.link(d0, d1, d);
    // Ends inside the own server are the near way.
    if (server_begin[at(d1 - 1)] <= d0 && d == server_last) {
      --servers;
      continue;
    }
    if (1 / link.bytes_per_ms < out.far_ms_per_byte) {
      out.far_ms_per_byte = 1 / link.bytes_per_ms;
      out.far_latency_ms = link.latency_ms;
    }
  }
  return out;
}

// ---- Placing stages -------------------------------------------------------------------------------------------------

Prefix PlanSpace::root() const {
  Prefix prefix;
  const Tables& t = *tables_;
  if (!possible_) return prefix;
  double total = 0;
  prefix.bound_ms = t.length_bound({}, 0, 0, 0, &total);
  prefix.parent_bound_ms = prefix.bound_ms;
  return prefix;
}

bool PlanSpace::append(const Prefix& parent, int point, int device_cut, Prefix& child) const {
  const Tables& t = *tables_;
  const int s = parent.stages + 1, left = stages_ - s;
  AM_CHECK(s < stages_ && point > 0 && point < t.end && device_cut > 0 && device_cut < problem_.num_devices());
  if (point <= parent.point || device_cut <= parent.d1 || t.stages_behind[at(point)] < left) return false;
  const auto cut = std::lower_bound(device_cuts_.begin(), device_cuts_.end(), device_cut);
  if (cut == device_cuts_.end() || *cut != device_cut || device_cuts_.end() - cut < left) return false;
  if (t.needs_variable && t.variables[at(point)] == t.variables[at(parent.point)]) return false;
  const DeviceGroup& group = problem_.group(parent.d1, device_cut);
  if (t.memory && !t.fits(parent.point, point, group, t.in_flight[at(s)])) return false;
  if (point < t.earliest_end(s, device_cut)) return false;
  place(parent, point, device_cut, group, child);
  return true;
}

void PlanSpace::place(const Prefix& from, int point, int device_cut, const DeviceGroup& group, Prefix& next) const {
  const Tables& t = *tables_;
  const int s = from.stages + 1, k = t.in_flight[at(s)];
  const double stage_ms = (t.work[at(point)] - t.work[at(from.point)]) / (group.size * group.speed);
  const double f = t.phi * stage_ms, b = stage_ms - f;
  const double transfer = s > 1 ? problem_.transfer_ms(cuts_[at(from.point)], from.d0, from.d1, device_cut) : 0;
  const double arrived = from.filled_ms + 2 * transfer;
  const double out = t.way_out(problem_, from.d1, device_cut).least_ms(t.activation[at(point)]);

  next.stages = s;
  next.point = point;
  next.d0 = from.d1;
  next.d1 = device_cut;
  next.filled_ms = arrived + stage_ms;
  next.path_ms =
      std::max({from.path_ms, s > 1 ? arrived + t.steady * transfer : 0, next.filled_ms + t.steady * stage_ms});
  next.allreduce_ms = problem_.allreduce_ms(t.weight[at(point)] - t.weight[at(from.point)], group);
  next.residue_ms = std::max(from.residue_ms, next.allreduce_ms - from.drained_ms - transfer);
  next.drained_ms = from.drained_ms + transfer + b;
  next.stage_ms = stage_ms;
  next.transfer_ms = transfer;
  next.steady_ms = std::max(from.steady_ms, t.steady * stage_ms - (k - 1) * std::min(f, b));
  next.parent_bound_ms = from.bound_ms;
  const std::size_t placed = at(s - 1);
  std::copy_n(from.points.begin(), placed, next.points.begin());
  std::copy_n(from.device_cuts.begin(), placed, next.device_cuts.begin());
  std::copy_n(from.stall_from_ms.begin(), placed, next.stall_from_ms.begin());
  std::copy_n(from.stall_steady_ms.begin(), placed, next.stall_steady_ms.begin());
  next.points[placed] = static_cast<std::int16_t>(point);
  next.device_cuts[placed] = static_cast<std::int16_t>(device_cut);
  next.stall_from_ms[placed] = arrived + k * stage_ms;
  next.stall_steady_ms[placed] = t.steady * stage_ms;

  double total = 0;
  double length = t.length_bound({next.filled_ms, next.path_ms, next.steady_ms, out}, s, point, device_cut, &total);
  if (t.full) {
    for (std::size_t i = 0; i < at(s); ++i) {
      const double laps = t.laps[i + 1];
      if (laps == 0) continue;
      const double delta = total - next.stall_from_ms[i];
      length = std::max(length, total + next.stall_steady_ms[i] + std::max(delta, laps * delta));
    }
  }
  // Never below what was known before (children of a tight parent may look shorter through rounding only).
  next.bound_ms = std::max(length + std::max(0.0, next.residue_ms), from.bound_ms);
}

namespace {

// One row of a scan: all points at which the stage behind a parent may end on one device cut.
struct ScannedRow {
  std::int32_t parent = 0;
  std::int16_t device = 0;  // index into device_cuts
  std::int16_t low = 0;     // first point
  std::int32_t count = 0;
  float smallest = 0;
  std::size_t offset = 0;  // of its bounds
};

// In the order of the scan among equals.
struct Scanned {
  float bound;
  std::uint32_t row;
  std::int32_t point;
  bool operator<(const Scanned& other) const {
    if (bound != other.bound) return bound < other.bound;
    return row != other.row ? row < other.row : point < other.point;
  }
};

// The `most` smallest bounds of many rows, in bounded space.
class Smallest {
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
    // Of those that are just as large the first ones are enough.
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

float ms_per_ring_byte(const DeviceGroup& group) {
  return group.size == 1 ? 0.0f : static_cast<float>(group.sync.ms_per_byte);
}

}  // namespace

// What the scans of inner and last boundaries have in common: the stage behind `from` on `group`, `transfer_ms` into
// it.
StageScan PlanSpace::Tables::scan_of(const Prefix& from, const DeviceGroup& group, double transfer_ms) const {
  const int s = from.stages + 1, k = in_flight[at(s)];
  const double arrived_ms = from.filled_ms + 2 * transfer_ms;
  StageScan scan;
  scan.path = static_cast<float>(std::max(from.path_ms, s > 1 ? arrived_ms + steady * transfer_ms : 0));
  scan.arrived = static_cast<float>(arrived_ms);
  scan.per_work = static_cast<float>(1 / (group.size * group.speed));
  scan.ring = ms_per_ring_byte(group);
  scan.drained = static_cast<float>(from.drained_ms + transfer_ms);
  scan.steady = static_cast<float>(steady);
  scan.own_steady = scan.steady - static_cast<float>(k - 1) * static_cast<float>(std::min(phi, 1 - phi));
  scan.in_flight = static_cast<float>(k);
  scan.laps = static_cast<float>(laps[at(s)]);
  scan.work_from = work_f[at(from.point)];
  scan.work_end = work_f.back();
  scan.weight_from = weight_f[at(from.point)];
  scan.steady_from = static_cast<float>(from.steady_ms);
  scan.residue_from = static_cast<float>(std::max(0.0, from.residue_ms));
  scan.full = full;
  return scan;
}

void PlanSpace::expand(const std::vector<Prefix>& parents, int most, std::vector<Prefix>& children,
                       std::vector<int>& parent_of) const {
  const Tables& t = *tables_;
  children.clear();
  parent_of.clear();
  if (parents.empty() || !possible_ || most < 1) return;
  const int s = parents.front().stages + 1, left = stages_ - s;
  AM_CHECK(s < stages_);
  const int k = t.in_flight[at(s)];
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
    const float least_bound = static_cast<float>(from.bound_ms);
    const auto begin = std::upper_bound(device_cuts_.begin(), device_cuts_.end(), from.d1);
    for (auto cut = begin; device_cuts_.end() - cut >= left && cut != device_cuts_.end(); ++cut) {
      const int d = *cut;
      const DeviceGroup& group = problem_.group(from.d1, d);
      const int low = std::max(first, t.earliest_end(s, d));
      const int high = t.last_fitting(from.point, low, last, group, k);
      if (high < low) continue;
      const double transfer_ms = s > 1 ? problem_.transfer_ms(cuts_[at(from.point)], from.d0, from.d1, d) : 0;
      const Tables::WayOut way = t.way_out(problem_, from.d1, d);
      StageScan scan = t.scan_of(from, group, transfer_ms);
      scan.per_rest = static_cast<float>(1 / t.rate_behind[at(d)]);
      scan.per_byte = static_cast<float>(std::min(way.near_ms_per_byte, way.far_ms_per_byte));
      scan.steady_behind = t.full ? static_cast<float>(t.steady_behind[at(s)]) : 0;
      scan.least = least_bound;
      scan.behind_sum = t.behind_sum_f[at(left - 1)].data() + low;
      scan.behind_largest = t.behind_largest_f[at(left - 1)].data() + low;
      scan.per_behind = static_cast<float>(t.behind_ms_per_byte[at(s)][at(d)]);
      float* out = bounds.data() + used;
      scan_boundary(scan, t.work_f.data(), t.weight_f.data(), t.activation_f.data(), low, high, out);
      const int count = high - low + 1, padded = (count + Smallest::kLanes - 1) / Smallest::kLanes * Smallest::kLanes;
      std::fill(out + count, out + padded, std::numeric_limits<float>::infinity());
      rows.push_back({static_cast<std::int32_t>(i), static_cast<std::int16_t>(cut - device_cuts_.begin()),
                      static_cast<std::int16_t>(low), count, 0, used});
      used += at(padded);
      units_ += kPerRow + kPerScanned * padded;
      if (used > kTogether) offer();
    }
  }
  offer();

  std::vector<Scanned>& scanned = smallest.take();
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
    place(from, chosen[i].point, d, problem_.group(from.d1, d), placed[i]);
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

// ---- Whole plans ----------------------------------------------------------------------------------------------------

// V of the prefix, S-1 stages placed, with the last stage on everything that is left; infinity when that does not fit.
double PlanSpace::close(const Prefix& prefix) const {
  const Tables& t = *tables_;
  const int devices = problem_.num_devices();
  const DeviceGroup& group = problem_.group(prefix.d1, devices);
  if (t.needs_variable && t.variables[at(prefix.point)] == t.variables.back()) return kInfinity;
  if (t.memory && !t.fits(prefix.point, t.end, group, t.in_flight[at(stages_)])) return kInfinity;
  const double transfer = problem_.transfer_ms(cuts_[at(prefix.point)], prefix.d0, prefix.d1, devices);
  const double stage_ms = (t.work.back() - t.work[at(prefix.point)]) / (group.size * group.speed);
  const double arrived = prefix.filled_ms + 2 * transfer, total = arrived + stage_ms;
  double length = std::max({prefix.path_ms, arrived + t.steady * transfer, total + t.steady * stage_ms});
  if (t.full) {
    const int k = t.in_flight[at(stages_)];
    const double f = t.phi * stage_ms;
    length =
        std::max(length, total + std::max(prefix.steady_ms, t.steady * stage_ms - (k - 1) * std::min(f, stage_ms - f)));
    const auto stall = [&](double from, double steady_ms, double laps) {
      if (laps == 0) return;
      const double delta = total - from;
      length = std::max(length, total + steady_ms + std::max(delta, laps * delta));
    };
    for (int i = 0; i < prefix.stages; ++i) {
      stall(prefix.stall_from_ms[at(i)], prefix.stall_steady_ms[at(i)], t.laps[at(i + 1)]);
    }
    stall(arrived + k * stage_ms, t.steady * stage_ms, t.laps[at(stages_)]);
  }
  const double allreduce = problem_.allreduce_ms(t.weight.back() - t.weight[at(prefix.point)], group);
  return length + std::max({0.0, prefix.residue_ms, allreduce - prefix.drained_ms - transfer});
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
  const int devices = problem_.num_devices(), s = stages_ - 1;
  const int k = t.in_flight[at(s)];
  int first = prefix.point + 1;
  if (t.needs_variable) first = std::max(first, t.next_variable[at(prefix.point)]);
  const int last = std::min(t.last_point[1], t.end - 1);
  if (first > last) return;
  std::vector<float> bounds(cuts_.size());
  // (bound, device cut, point) of what may be below the incumbent.
  struct Pair {
    float bound;
    int d, point;
  };
  std::vector<Pair> pairs, of_device;
  const float limit = static_cast<float>(std::min(incumbent_ms, 1e38)) * (1 + 1e-5f);
  for (auto cut = std::upper_bound(device_cuts_.begin(), device_cuts_.end(), prefix.d1); cut != device_cuts_.end();
       ++cut) {
    const int d = *cut;
    const DeviceGroup& group = problem_.group(prefix.d1, d);
    const DeviceGroup& rest_group = problem_.group(d, devices);
    const int low = std::max(first, t.earliest_end(s, d));
    const int high = t.last_fitting(prefix.point, low, last, group, k);
    if (high < low) continue;
    const double transfer_ms = s > 1 ? problem_.transfer_ms(cuts_[at(prefix.point)], prefix.d0, prefix.d1, d) : 0;
    const Link link = problem_.link(prefix.d1, d, devices);
    StageScan scan = t.scan_of(prefix, group, transfer_ms);
    scan.per_rest = static_cast<float>(1 / (rest_group.size * rest_group.speed));
    scan.per_byte = static_cast<float>(1 / link.bytes_per_ms);
    scan.ring_rest = ms_per_ring_byte(rest_group);
    scan.backward = static_cast<float>(1 - t.phi);
    scan.steady_behind = scan.steady;  // the rest is one stage
    scan.weight_end = t.weight_f.back();
    scan.behind_sum = t.behind_sum_f[0].data() + low;  // nothing
    scan.behind_largest = t.behind_largest_f[0].data() + low;
    scan_boundary(scan, t.work_f.data(), t.weight_f.data(), t.activation_f.data(), low, high, bounds.data());
    units_ += kPerRow + 2 * kPerScanned * (high - low + 1);
    Pair best{limit, d, 0};
    for (int j = low; j <= high; ++j) {
      const float bound = bounds[at(j - low)];
      if (!(bound < limit)) continue;
      pairs.push_back({bound, d, j});
      if (bound < best.bound) best = pairs.back();
    }
    if (best.point > 0) of_device.push_back(best);
  }
  // Nearly exact bounds: the best first, and what they leave is little.
  Prefix placed;
  double best_ms = incumbent_ms;
  const auto judge = [&](const Pair& pair) {
    units_ += kPerChild;
    if (!append(prefix, pair.point, pair.d, placed)) return;
    const double value = close(placed);
    if (!(value < best_ms)) return;
    best_ms = keep(value, placed);
  };
  std::sort(of_device.begin(), of_device.end(),
            [](const Pair& a, const Pair& b) { return a.bound != b.bound ? a.bound < b.bound : a.d < b.d; });
  for (const Pair& pair : of_device) {
    if (pair.bound < best_ms * (1 + 1e-5)) judge(pair);
  }
  std::size_t open = 0;
  for (const Pair& pair : pairs) {
    if (pair.bound < best_ms * (1 + 1e-5)) pairs[open++] = pair;
  }
  pairs.resize(open);
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    if (a.bound != b.bound) return a.bound < b.bound;
    return a.d != b.d ? a.d < b.d : a.point < b.point;
  });
  for (const Pair& pair : pairs) {
    if (!(pair.bound < best_ms * (1 + 1e-5))) break;
    const auto seen = [&](const Pair& other) { return other.d == pair.d && other.point == pair.point; };
    if (std::none_of(of_device.begin(), of_device.end(), seen)) judge(pair);
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

Plan PlanSpace::plan_of(const Prefix& prefix) const {
  AM_CHECK(prefix.stages == stages_ - 1);
  Plan plan;
  plan.schedule = schedule_;
  for (int i = 0; i < prefix.stages; ++i) {
    plan.cuts.push_back(cuts_[at(prefix.points[at(i)])]);
    plan.device_cuts.push_back(prefix.device_cuts[at(i)]);
  }
  return plan;
}

}  // namespace automap::models
