#include "models/plan_space.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/row.h"
#include "models/plan_space_tables.h"
#include "models/usable_device_cuts.h"

namespace automap::models {

using pipeline::DeviceGroup;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;

namespace {

// Prices, units of work.
constexpr std::int64_t kPerPoint = 20;  // of a table, for one stage
constexpr std::int64_t kPerFit = 100;   // a pair of device cuts whose memory is looked at, for one stage

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
  device_cuts_ = usable_device_cuts(problem, stages_, options.max_device_cuts, options.server_radius);

  auto tables = std::make_shared<Tables>(problem);
  Tables& t = *tables;
  t.stages = stages_;
  t.adaptive = schedule_ == Schedule::kAdaptive;
  t.prepare_points(cuts_);
  t.prepare_order();
  t.prepare_rest();
  t.prepare_behind();
  t.prepare_buckets();
  t.prepare_devices();
  t.prepare_schedule(schedule_);
  t.prepare_reach(device_cuts_, cuts_near_servers(problem, options.server_radius));
  t.prepare_links(device_cuts_);
  t.prepare_memory(device_cuts_);
  const auto pairs = static_cast<std::int64_t>(device_cuts_.size() * device_cuts_.size()) / 2;
  units_ += stages_ * (kPerPoint * num_points() + (t.earliest.empty() ? 0 : kPerFit * pairs));

  possible_ = t.leaves_a_way(0, 0) && t.earliest_end(0, 0) == 0 && t.stages_behind[0] >= stages_ && t.end >= stages_;
  tables_ = std::move(tables);
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
  if (!t.leaves_a_way(s, device_cut)) return false;
  const DeviceGroup& group = problem_.group(parent.d1, device_cut);
  if (!group.valid || (t.needs_variable && t.variables[at(point)] == t.variables[at(parent.point)])) return false;
  if (point < t.earliest_end(s, device_cut)) return false;
  StageCost cost;
  if (!t.stage(s, parent.point, point, group, cost)) return false;
  place(parent, point, device_cut, cost, child);
  // The rest of the model takes at least so long; no stage may be short against the mean.
  const double rest_ms = (t.work.back() - t.work[at(point)]) / t.rate_behind[at(device_cut)];
  return !t.idles(child.least_ms * (1 + kRounding), child.computed_ms + rest_ms);
}

void PlanSpace::place(const Prefix& from, int point, int device_cut, const StageCost& cost, Prefix& next) const {
  const Tables& t = *tables_;
  const int s = from.stages + 1;
  const double transfer = s > 1 ? problem_.transfer_ms(cuts_[at(from.point)], from.d0, from.d1, device_cut) : 0;
  const double out = t.way_out(from.d1, device_cut).least_ms(t.activation[at(point)]);

  const std::size_t placed = at(s - 1);
  static_cast<PathTerms&>(next) = from;
  t.extend(next, transfer, cost, &next.stall_from_ms[placed], &next.stall_steady_ms[placed]);
  next.stages = s;
  next.point = point;
  next.d0 = from.d1;
  next.d1 = device_cut;
  next.variant = cost.variant;
  next.in_flight = cost.in_flight;
  next.allreduce_ms = cost.sync_ms;
  next.stage_ms = cost.stage_ms;
  next.transfer_ms = transfer;
  next.parent_bound_ms = from.bound_ms;
  std::copy_n(from.points.begin(), placed, next.points.begin());
  std::copy_n(from.device_cuts.begin(), placed, next.device_cuts.begin());
  std::copy_n(from.laps.begin(), placed, next.laps.begin());
  std::copy_n(from.stall_from_ms.begin(), placed, next.stall_from_ms.begin());
  std::copy_n(from.stall_steady_ms.begin(), placed, next.stall_steady_ms.begin());
  next.points[placed] = static_cast<std::int16_t>(point);
  next.device_cuts[placed] = static_cast<std::int16_t>(device_cut);
  next.laps[placed] = cost.laps;

  double total = 0;
  double length = t.length_bound({next.filled_ms, next.path_ms, next.steady_ms, out}, s, point, device_cut, &total);
  if (t.full) {
    for (std::size_t i = 0; i < at(s); ++i) {
      if (next.laps[i] == 0) continue;
      length = std::max(length, stall_line(total, next.stall_from_ms[i], next.stall_steady_ms[i], next.laps[i]));
    }
  }
  // Never below what was known before (children of a tight parent may look shorter through rounding only).
  next.bound_ms = std::max(length + std::max(0.0, next.residue_ms), from.bound_ms);
}

// ---- Whole plans ----------------------------------------------------------------------------------------------------

// V of the prefix, S-1 stages placed, with the last stage on everything that is left; infinity when that cannot be.
double PlanSpace::close(const Prefix& prefix) const {
  const Tables& t = *tables_;
  const int devices = problem_.num_devices();
  const DeviceGroup& group = problem_.group(prefix.d1, devices);
  if (t.needs_variable && t.variables[at(prefix.point)] == t.variables.back()) return kInfinity;
  StageCost cost;
  if (!group.valid || !t.stage(stages_, prefix.point, t.end, group, cost)) return kInfinity;
  const double transfer = problem_.transfer_ms(cuts_[at(prefix.point)], prefix.d0, prefix.d1, devices);
  PathTerms terms = prefix;
  double stall_from_ms = 0, stall_steady_ms = 0;
  t.extend(terms, transfer, cost, &stall_from_ms, &stall_steady_ms);
  if (t.idles(terms.least_ms, terms.computed_ms)) return kInfinity;
  const double total = terms.filled_ms;
  double length = terms.path_ms;
  if (t.full) {
    length = std::max(length, total + terms.steady_ms);
    for (int i = 0; i < prefix.stages; ++i) {
      if (prefix.laps[at(i)] == 0) continue;
      length = std::max(
          length, stall_line(total, prefix.stall_from_ms[at(i)], prefix.stall_steady_ms[at(i)], prefix.laps[at(i)]));
    }
    if (cost.laps > 0) length = std::max(length, stall_line(total, stall_from_ms, stall_steady_ms, cost.laps));
  }
  return length + std::max(0.0, terms.residue_ms);
}

Plan PlanSpace::plan_of(const Prefix& prefix) const {
  AM_CHECK(prefix.stages == stages_ - 1);
  Plan plan;
  plan.schedule = schedule_;
  for (int i = 0; i < prefix.stages; ++i) {
    plan.cuts.push_back(cuts_[at(prefix.points[at(i)])]);
    plan.device_cuts.push_back(prefix.device_cuts[at(i)]);
  }
  set_variants(plan);
  return plan;
}

// The variants that its stages take here. A stage that fits as none keeps the first.
void PlanSpace::set_variants(Plan& plan) const {
  if (problem_.num_variants() == 1) return;
  const Tables& t = *tables_;
  int from = 0, d0 = 0;
  for (int s = 1; s <= stages_; ++s) {
    const int d1 = s == stages_ ? problem_.num_devices() : plan.device_cuts[at(s - 1)];
    const int cut = s == stages_ ? problem_.num_instructions() : plan.cuts[at(s - 1)];
    const int to = static_cast<int>(std::lower_bound(cuts_.begin(), cuts_.end(), cut) - cuts_.begin());
    StageCost cost;
    const DeviceGroup& group = problem_.group(d0, d1);
    const bool there = group.valid && t.stage(s, from, to, group, cost);
    plan.variants.push_back(static_cast<std::uint8_t>(there ? cost.variant : 0));
    from = to;
    d0 = d1;
  }
}

}  // namespace automap::models
