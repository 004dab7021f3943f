// Makes the tables that a PlanSpace prepares once for its problem, and the bounds that follow from them.
#include "models/plan_space_tables.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/numbers.h"
#include "common/pipeline/cost.h"

namespace automap::models {

using pipeline::DeviceGroup;
using pipeline::GradientSync;
using pipeline::Link;
using pipeline::Problem;
using pipeline::Replicas;
using pipeline::Schedule;
using pipeline::StageColumns;

namespace {

// True if the problem's stages are as Tables::plain says. Workspace and tied weights show as memory that the state does
// not explain.
bool is_plain(const Problem& problem, const std::vector<int>& cuts) {
  const pipeline::ProblemOptions& options = problem.options();
  if (options.replicas != Replicas::kFractional || problem.num_variants() != 1 || options.variants[0].recompute ||
      options.gradient_sync != GradientSync::kAfter || options.optimizer || !options.allow_idle_stages ||
      problem.micro_batch_samples() != problem.profile_samples()) {
    return false;
  }
  const int n = problem.num_instructions();
  const DeviceGroup& group = problem.group(0, 1);
  const StageColumns& columns = problem.columns(group);
  return std::all_of(cuts.begin(), cuts.end() - 1,
                     [&](int p) { return problem.fixed_bytes(p, n, group) == columns.state[n] - columns.state[p]; });
}

// Any group that a stage can have; null: none.
const DeviceGroup* some_group(const Problem& problem) {
  return problem.group_sizes().empty() ? nullptr : &problem.group(0, problem.group_sizes().front());
}

}  // namespace

// ---- Points ---------------------------------------------------------------------------------------------------------

void PlanSpace::Tables::prepare_points(const std::vector<int>& cuts) {
  cuts_of_points = cuts;
  const std::size_t points = cuts_of_points.size();
  const int n = problem.num_instructions();
  end = static_cast<int>(points) - 1;
  plain = !adaptive && is_plain(problem, cuts);
  some_groups_only = static_cast<int>(problem.group_sizes().size()) < problem.num_devices();
  micro_batches = problem.micro_batches();
  steady = micro_batches - 1;
  full = problem.options().value == pipeline::ValueForm::kFull;
  memory = problem.options().memory;
  needs_variable = problem.stages_need_variables(stages);
  idle_share = problem.options().allow_idle_stages ? 0 : pipeline::kIdleShare;
  for (std::vector<double>* of : {&work, &both, &backward, &weight, &state, &stash, &activation}) of->assign(points, 0);
  variables.resize(points);
  const DeviceGroup* group = some_group(problem);
  const StageColumns* columns = group == nullptr ? nullptr : &problem.columns(*group);
  for (std::size_t j = 0; j < points; ++j) {
    const int p = cuts[j];
    work[j] = problem.work_ms(0, p);
    weight[j] = problem.gradient_bytes(0, p);
    activation[j] = p == 0 || p == n ? 0 : problem.activation_bytes(p);
    variables[j] = problem.variables(0, p);
    if (columns == nullptr) continue;
    both[j] = columns->both[p];
    backward[j] = columns->backward[p];
    state[j] = columns->state[p];
    stash[j] = columns->stash[p];
  }
  work_f.assign(work.begin(), work.end());
  weight_f.assign(weight.begin(), weight.end());
  activation_f.assign(activation.begin(), activation.end());
  const double all = both.back();
  const bool whole = problem.options().replicas == Replicas::kWhole && all > 0;
  backward_share = whole ? backward.back() / all : 1 - problem.forward_fraction();
  forward_share = whole ? 1 - backward_share : problem.forward_fraction();
  hidden_share = plain ? std::min(backward_share, 1 - backward_share) : 0.5;
}

// Prepares the number of stages and variables behind each point, and the narrowest cuts around it.
void PlanSpace::Tables::prepare_order() {
  const std::size_t points = cuts_of_points.size();
  stages_behind.assign(points, 0);
  next_variable.assign(points, end + 1);
  for (int j = end; j-- > 0;) {
    const bool variable = variables[at(j + 1)] > variables[at(j)];
    next_variable[at(j)] = variable ? j + 1 : next_variable[at(j + 1)];
    stages_behind[at(j)] = stages_behind[at(j + 1)] + (!needs_variable || variable ? 1 : 0);
  }
  last_point.assign(kMaxStages + 1, -1);
  for (int left = 0; left <= kMaxStages; ++left) {
    for (int j = 0; j <= end; ++j) {
      if (stages_behind[at(j)] >= left) last_point[at(left)] = j;
    }
  }
  narrow.resize(points);
  for (int j = 0; j <= end; ++j) {
    int best = j;
    for (int step = 1; step <= 3; ++step) {
      for (int i : {j - step, j + step}) {
        if (i > 0 && i < end && activation[at(i)] < activation[at(best)]) best = i;
      }
    }
    narrow[at(j)] = best;
  }
}

// Prepares the work, memory and bytes that still lie behind each point.
void PlanSpace::Tables::prepare_rest() {
  const std::size_t points = cuts_of_points.size();
  least_activation.assign(points, 0);
  mean_activation.assign(points, 0);
  largest_weight.assign(points, 0);
  largest_state.assign(points, 0);
  largest_weight_at.assign(points, end);
  largest_work.assign(points, 0);
  double sum = 0, least = kInfinity, most_weight = 0, most_state = 0, most_work = 0;
  int weight_at = end;
  for (int j = end; j-- > 0;) {
    const double block = weight[at(j + 1)] - weight[at(j)];
    if (block > most_weight) {
      most_weight = block;
      weight_at = j + 1;
    }
    most_state = std::max(most_state, state[at(j + 1)] - state[at(j)]);
    most_work = std::max(most_work, work[at(j + 1)] - work[at(j)]);
    least_activation[at(j)] = least == kInfinity ? 0 : least;
    mean_activation[at(j)] = j + 1 < end ? sum / (end - 1 - j) : 0;
    largest_weight[at(j)] = most_weight;
    largest_weight_at[at(j)] = weight_at;
    largest_state[at(j)] = most_state;
    largest_work[at(j)] = most_work;
    if (j > 0) {
      sum += activation[at(j)];
      least = std::min(least, activation[at(j)]);
    }
  }
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

void PlanSpace::Tables::prepare_buckets() {
  const std::size_t buckets = 512, points = cuts_of_points.size();
  bucket.assign(buckets + 1, 0);
  buckets_per_ms = work.back() > 0 ? static_cast<double>(buckets) / work.back() : 0;
  for (std::size_t b = 0, j = 0; b <= buckets; ++b) {
    const double from = work.back() * static_cast<double>(b) / static_cast<double>(buckets);
    while (j + 1 < points && work[j] < from) ++j;
    // One before, so that rounding never starts behind the point looked for.
    bucket[b] = j > 0 ? static_cast<int>(j) - 1 : 0;
  }
}

// ---- Devices and schedule -------------------------------------------------------------------------------------------

void PlanSpace::Tables::prepare_devices() {
  const int devices = problem.num_devices();
  rate_behind.assign(at(devices) + 1, 0);
  capacity_behind.assign(at(devices) + 1, 0);
  server_begin.resize(at(devices));
  server_end.resize(at(devices));
  for (int d = 0; d < devices; ++d) {
    const bool first = d == 0 || problem.server_of_device(d) != problem.server_of_device(d - 1);
    server_begin[at(d)] = first ? d : server_begin[at(d - 1)];
    largest_capacity = std::max(largest_capacity, problem.group(d, d + 1).capacity_bytes);
  }
  for (int d = devices; d-- > 0;) {
    rate_behind[at(d)] = rate_behind[at(d + 1)] + problem.device_speed(d);
    capacity_behind[at(d)] = capacity_behind[at(d + 1)] + problem.group(d, d + 1).capacity_bytes;
    const bool last = d + 1 == devices || problem.server_of_device(d) != problem.server_of_device(d + 1);
    server_end[at(d)] = last ? d + 1 : server_end[at(d + 1)];
  }
  shares.resize((at(devices) + 1) * at(stages + 1));
}

void PlanSpace::Tables::prepare_schedule(Schedule of) {
  schedule = of;
  for (int s = 1; s <= stages; ++s) {
    // kAdaptive should have enough in flight at a stage to hide the transfers behind it.
    const int k = pipeline::in_flight(adaptive ? Schedule::k1f1bOverlap : schedule, stages, s, micro_batches);
    in_flight[at(s)] = k;
    laps[at(s)] = micro_batches > k ? (micro_batches - 1) / k : 0;
  }
  for (int s = 0; s < stages; ++s) {
    const int most = adaptive ? micro_batches : in_flight[at(s + 1)];
    steady_behind[at(s)] = steady - (most - 1) * hidden_share;
  }
  taper = powers(1 - 1.0 / (micro_batches + 1));
}

// From the last stage to the first: the groups behind a cut are groups that a stage can have.
void PlanSpace::Tables::prepare_reach(const std::vector<int>& device_cuts, std::vector<char> allowed) {
  cuts_of_devices = device_cuts;
  allowed_cuts = std::move(allowed);
  some_cuts_only = some_groups_only || std::count(allowed_cuts.begin(), allowed_cuts.end(), 0) > 0;
  const int devices = problem.num_devices();
  const std::size_t width = at(devices) + 1;
  reach.assign(at(stages) * width, 0);
  for (int s = stages; s-- > 0;) {
    const auto way = [&](int d) {
      if (s + 1 == stages) return problem.group(d, devices).valid;
      for (auto cut = std::upper_bound(device_cuts.begin(), device_cuts.end(), d); cut != device_cuts.end(); ++cut) {
        if (problem.group(d, *cut).valid && leaves_a_way(s + 1, *cut)) return true;
      }
      return false;
    };
    if (s == 0) {
      reach[0] = way(0) ? 1 : 0;
    } else {
      for (const int d : device_cuts) reach[at(s) * width + at(d)] = way(d) ? 1 : 0;
    }
  }
}

void PlanSpace::Tables::prepare_links(const std::vector<int>& device_cuts) {
  for (int s = 0; s < stages; ++s) {
    std::vector<double>& of_cut = behind_ms_per_byte[at(s)];
    of_cut.assign(at(problem.num_devices()) + 1, 0);
    if (s == 0) of_cut[0] = least_ms_per_byte_behind(0, stages);
    for (int d : device_cuts) {
      if (s > 0) of_cut[at(d)] = least_ms_per_byte_behind(d, stages - s);
    }
  }
}

double PlanSpace::Tables::least_ms_per_byte_behind(int device_cut, int stages_left) const {
  const int devices = problem.num_devices(), left = devices - device_cut;
  if (stages_left < 2 || left < stages_left) return 0;
  // Two neighbours take turns to be the larger; the others have a device each at least.
  const int pair = (left - (stages_left - 2)) / 2;
  double most = 0, across = 0;
  int servers = 0;
  for (int d = device_cut; d < devices; d = server_end[at(d)], ++servers) {
    const int begin = server_begin[at(d)], finish = server_end[at(d)], size = finish - std::max(begin, device_cut);
    if (size >= 2) {
      const double each = problem.pair_bytes_per_ms(problem.server_of_device(begin));
      most = std::max(most, each * std::min(pair, size / 2));
    }
    if (finish < devices) {
      const int server = problem.server_of_device(begin);
      across = std::max(across, problem.port_bytes_per_ms(server, server + 1));
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
  const double cheapest = 2 * behind_sum[behind][at(point)] * per_byte;
  const double total = left_ms + cheapest + rest;
  const double largest = behind_largest[behind][at(point)] * per_byte;
  *total_ms = total;
  return std::max({reached.path_ms, reached.filled_ms + (2 + steady) * reached.out_ms, left_ms + (2 + steady) * largest,
                   left_ms + rest + steady * rest, full ? total + steady_behind[at(stages_placed)] * rest : total,
                   full ? total + reached.steady_ms : 0});
}

// A dynamic program from the last stage to the first: a plan fits from here on when its next stage ends at a point from
// where the rest fits; the smallest such point leaves the smallest stage.
void PlanSpace::Tables::prepare_memory(const std::vector<int>& device_cuts) {
  if (!memory) return;
  const int devices = problem.num_devices();
  double smallest = kInfinity;
  for (int d = 0; d < devices; ++d) smallest = std::min(smallest, problem.group(d, d + 1).capacity_bytes);
  if (plain && state.back() + stash.back() * micro_batches <= smallest) return;
  const std::size_t width = at(devices) + 1;
  const int never = end + 1;
  earliest.assign(at(stages) * width, never);
  // The smallest point p such that (p, to] fits on the group.
  const auto smallest_begin = [&](int s, int to, const DeviceGroup& group) {
    int low = -1, high = to;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (may_fit(s, middle, to, group) ? high : low) = middle;
    }
    return high;
  };
  for (int s = stages; s-- > 0;) {
    int* row = &earliest[at(s) * width];
    const auto fill = [&](int d) {
      if (s + 1 == stages) {
        const int from = smallest_begin(s + 1, end, problem.group(d, devices));
        row[d] = from < end ? from : never;
        return;
      }
      const int* next = row + width;
      for (auto cut = std::upper_bound(device_cuts.begin(), device_cuts.end(), d); cut != device_cuts.end(); ++cut) {
        const DeviceGroup& group = problem.group(d, *cut);
        if (next[*cut] > end || !group.valid) continue;
        // Only what is smaller than the best so far matters.
        if (row[d] == 0) break;
        // The stage may end farther behind, where the step before `to` is too large for this group.
        for (int to = std::max(next[*cut], 1); to < end; ++to) {
          if (row[d] <= end && !may_fit(s + 1, row[d] - 1, to, group)) break;
          const int from = smallest_begin(s + 1, to, group);
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
PlanSpace::Tables::WayOut PlanSpace::Tables::way_out(int d0, int d1) const {
  WayOut out;
  const int devices = problem.num_devices();
  const int server_last = server_end[at(d1 - 1)];
  if (server_begin[at(d1 - 1)] <= d0 && server_last > d1) {
    const Link link = problem.link(d0, d1, server_last);
    out.near_latency_ms = link.latency_ms;
    out.near_ms_per_byte = 1 / link.bytes_per_ms;
  }
  const DeviceGroup& from = problem.group(d0, d1);
  // More servers and devices than the group has make the way no wider.
  for (int d = d1, servers = 0; d < devices && (servers < from.servers || d - d1 < from.size); ++servers) {
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

// The part that the scans of inner and last boundaries share: the stage behind `from` on `group`, `transfer_ms` into
// it.
StageScan PlanSpace::Tables::scan_of(const Prefix& from, const DeviceGroup& group, double transfer_ms) const {
  const int s = from.stages + 1, k = in_flight[at(s)];
  const double arrived_ms = from.filled_ms + 2 * transfer_ms;
  StageScan scan;
  scan.path = static_cast<float>(std::max(from.path_ms, s > 1 ? arrived_ms + steady * transfer_ms : 0));
  scan.arrived = static_cast<float>(arrived_ms);
  scan.per_work = static_cast<float>(group.scale);
  scan.ring = group.size == 1 ? 0.0f : static_cast<float>(group.all_reduce.ms_per_byte());
  scan.drained = static_cast<float>(from.drained_ms + transfer_ms);
  scan.steady = static_cast<float>(steady);
  scan.own_steady = scan.steady - static_cast<float>(k - 1) * static_cast<float>(hidden_share);
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

// ---- Stages ---------------------------------------------------------------------------------------------------------

const PlanSpace::Tables::Kind& PlanSpace::Tables::kind_of(const DeviceGroup& group) const {
  const std::size_t index = at(group.columns);
  if (kinds.size() <= index) kinds.resize(index + 1);
  Kind& kind = kinds[index];
  if (kind.made) return kind;
  kind.made = true;
  const int n = problem.num_instructions();
  for (int v = 0; v < problem.num_variants(); ++v) kind.by_compute.push_back(static_cast<std::uint8_t>(v));
  const auto whole = [&](int v) { return problem.compute_ms(0, n, group, v); };
  std::stable_sort(kind.by_compute.begin(), kind.by_compute.end(), [&](int a, int b) { return whole(a) < whole(b); });
  const double fastest = whole(kind.by_compute.front());
  kind.per_work = work.back() > 0 && fastest > 0 ? fastest / work.back() : 1;
  return kind;
}

bool PlanSpace::Tables::weigh_variants(int s, int from, int to, const DeviceGroup& group, StageCost& cost) const {
  const int p0 = cuts_of_points[at(from)], p1 = cuts_of_points[at(to)];
  if (!group.valid || problem.idles(p0, p1, group)) return false;
  int best = -1, most = 0;
  for (const int v : kind_of(group).by_compute) {
    const int k = problem.in_flight(schedule, stages, s, p0, p1, group, v);
    if (k <= most) continue;
    most = k;
    best = v;
    if (k >= in_flight[at(s)]) break;
  }
  if (best < 0) return false;
  cost.variant = best;
  cost.in_flight = most;
  cost.laps = micro_batches > most ? (micro_batches - 1) / most : 0;
  cost.stage_ms = problem.compute_ms(p0, p1, group, best);
  cost.backward_ms = problem.backward_ms(p0, p1, group, best);
  cost.sync_ms = problem.behind_backward_ms(p0, p1, cost.backward_ms, group, best);
  return true;
}

bool PlanSpace::Tables::fits_as_any(int s, int from, int to, const DeviceGroup& group) const {
  if (!group.valid) return false;
  for (int v = 0; v < problem.num_variants(); ++v) {
    if (problem.in_flight(schedule, stages, s, cuts_of_points[at(from)], cuts_of_points[at(to)], group, v) > 0)
      return true;
  }
  return false;
}

// Without what a longer stage may need less of: what enters it, and copies of tied weights.
bool PlanSpace::Tables::may_fit(int s, int from, int to, const DeviceGroup& group) const {
  if (plain) return fits(s, from, to, group);
  const int p0 = cuts_of_points[at(from)], p1 = cuts_of_points[at(to)];
  const int k = adaptive ? 1 : in_flight[at(s)];
  for (int v = 0; group.valid && v < problem.num_variants(); ++v) {
    const StageColumns& columns = problem.columns(group, v);
    const double flight = (columns.stash[p1] - columns.stash[p0]) * k + columns.workspace(p0, p1);
    if ((columns.state[p1] - columns.state[p0]) + flight * group.stash_scale <=
        group.capacity_bytes * (1 + kRounding)) {
      return true;
    }
  }
  return false;
}

}  // namespace automap::models
