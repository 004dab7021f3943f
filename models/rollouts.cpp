// Rollouts of the plan space: plans completed by rule from a prefix.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "models/plan_space.h"
#include "models/plan_space_tables.h"

namespace automap::models {

using pipeline::Link;
using pipeline::Plan;

namespace {

// A stage of a plan completed by a rule, units of work; more where its variants are weighed.
constexpr std::int64_t kPerRolled = 30;

// The load of a stage of one device at the end (or the front) of a rollout, as a part of its fair share: in the best
// plans of many stages such stages are nearly empty and only let the others have more micro-batches in flight.
constexpr double kLittle = 0.35;

// The factor by which loads grow from stage to stage, in rules where they do.
constexpr double kGrowth = 1.25;

// The ways in which rules share the rest of the devices among the stages left.
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
// The load of a stage, as a part of the work that is left. kAllReduce: by speed and by the all-reduce of its weights,
// as if they were spread evenly over the work.
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

int PlanSpace::Tables::possible_cut(int s, int before, int target) const {
  int best = 0;
  for (auto cut = std::upper_bound(cuts_of_devices.begin(), cuts_of_devices.end(), before);
       cut != cuts_of_devices.end(); ++cut) {
    if (!problem.group(before, *cut).valid || !leaves_a_way(s, *cut)) continue;
    if (best == 0 || std::abs(*cut - target) < std::abs(best - target)) best = *cut;
  }
  return best;
}

const PlanSpace::Tables::Share& PlanSpace::Tables::share(int d, int left) const {
  Share& entry = shares[at(d) * at(stages + 1) + at(left)];
  if (entry.made) return entry;
  entry.made = true;
  DeviceCuts of[kShareKinds];
  of[kEqual] = share_cuts(d, left, left, false, false);
  of[kWholeServers] = share_cuts(d, left, left, false, true);
  of[kOneLarge] = share_cuts(d, left, 1, false, true);
  of[kTwoLarge] = share_cuts(d, left, std::min(left, 2), false, true);
  of[kParkNext] = park_cuts(d, left, false);
  of[kParkLast] = park_cuts(d, left, true);
  of[kHalfLarge] = share_cuts(d, left, (left + 1) / 2, false, true);
  of[kLastLarge] = share_cuts(d, left, 1, true, false);
  for (int rule = 0; rule < kRolloutRules; ++rule) {
    const auto same = [&](const Rule& other) {
      return other.load == kRules[rule].load && of[other.share] == of[kRules[rule].share];
    };
    entry.same_as[at(rule)] = static_cast<int>(std::find_if(kRules, kRules + rule, same) - kRules);
    if (entry.same_as[at(rule)] == rule) make_way(of[kRules[rule].share], d, left, rule, entry.ways[at(rule)]);
  }
  return entry;
}

void PlanSpace::Tables::make_way(const DeviceCuts& of_rule, int d, int left, int rule, Way& way) const {
  static const std::array<double, kMaxStages> growth = powers(kGrowth);
  const int devices = problem.num_devices();
  int before = d, before_that = -1;
  way.valid = of_rule.size() == at(left);
  way.hops.reserve(of_rule.size());
  for (std::size_t i = 0; way.valid && i < of_rule.size(); ++i) {
    const bool last = i + 1 == of_rule.size();
    int cut = of_rule[i];
    // If not every device cut is possible, the nearest possible one.
    if (some_cuts_only && !last) cut = possible_cut(stages - left + static_cast<int>(i) + 1, before, cut);
    if (cut <= before || (cut >= devices && !last) || !problem.group(before, cut).valid) {
      way.valid = false;
      break;
    }
    Hop hop;
    hop.device_cut = cut;
    hop.group = &problem.group(before, cut);
    hop.per_work = per_work(*hop.group);
    hop.ring_ms_per_byte = hop.group->size == 1 ? 0 : hop.group->all_reduce.ms_per_byte();
    if (before_that >= 0) {
      const Link link = problem.link(before_that, before, cut);
      hop.latency_ms = link.latency_ms;
      hop.ms_per_byte = 1 / link.bytes_per_ms;
    }
    way.hops.push_back(hop);
    before_that = before;
    before = cut;
  }
  // Each stage takes its share of the work that is left.
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

// V of the completion by one rule; `points` (stages - 1 entries when given) receives the pivots it takes.
double PlanSpace::Tables::roll(const Prefix& prefix, const Way& way, int* points) const {
  PathTerms terms = prefix;
  terms.residue_ms = std::max(0.0, terms.residue_ms);
  double stall_from[kMaxStages], stall_steady[kMaxStages];
  int all_laps[kMaxStages];
  StageCost cost;
  int p0 = prefix.point, s = prefix.stages;
  for (std::size_t i = 0; i < way.hops.size(); ++i) {
    const Hop& hop = way.hops[i];
    ++s;
    const int left = stages - s;
    int p1 = end;
    if (left > 0) {
      const int first = needs_variable ? next_variable[at(p0)] : p0 + 1;
      const int last = last_point[at(left)];
      if (first > last) return kInfinity;
      const double target = work[at(p0)] + (work.back() - work[at(p0)]) * hop.share;
      p1 = nearest(target);
      p1 = narrow[at(p1)];
      p1 = std::clamp(std::max(p1, earliest_end(s, hop.device_cut)), first, last);
      if (memory && !fits(s, p0, p1, *hop.group)) {
        p1 = last_fitting(s, p0, first, p1, *hop.group);
        if (p1 < first) return kInfinity;
      }
      if (points != nullptr) points[s - 1] = p1;
    } else {
      if (p0 >= end || (needs_variable && variables[at(p0)] == variables.back())) return kInfinity;
      if (memory && !fits(s, p0, p1, *hop.group)) return kInfinity;
    }
    double transfer = 0;
    if (s > 1 && activation[at(p0)] > 0) {
      if (i > 0) {
        transfer = hop.latency_ms + activation[at(p0)] * hop.ms_per_byte;
      } else {
        transfer = problem.transfer_ms(activation[at(p0)], prefix.d0, prefix.d1, hop.device_cut);
      }
    }
    if (plain) {
      plain_stage(s, p0, p1, *hop.group, cost);
    } else if (!weigh_variants(s, p0, p1, *hop.group, cost)) {
      return kInfinity;
    }
    extend(terms, transfer, cost, &stall_from[s - 1], &stall_steady[s - 1]);
    all_laps[s - 1] = cost.laps;
    p0 = p1;
  }
  if (idles(terms.least_ms, terms.computed_ms)) return kInfinity;
  double length = terms.path_ms;
  if (full) {
    const double total = terms.filled_ms;
    length = std::max(length, total + terms.steady_ms);
    for (int i = 0; i < stages; ++i) {
      const bool placed = i < prefix.stages;
      const int of_stage = placed ? prefix.laps[at(i)] : all_laps[i];
      if (of_stage == 0) continue;
      length = std::max(length, stall_line(total, placed ? prefix.stall_from_ms[at(i)] : stall_from[i],
                                           placed ? prefix.stall_steady_ms[at(i)] : stall_steady[i], of_stage));
    }
  }
  return length + terms.residue_ms;
}

void PlanSpace::roll(const Prefix& prefix, unsigned rules, Rollouts& rollouts) const {
  const Tables::Share& share = tables_->share(prefix.d1, stages_ - prefix.stages);
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
    units_ += (tables_->plain ? kPerRolled : kPerWeighed) * (stages_ - prefix.stages);
    value = tables_->roll(prefix, way, points);
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
  set_variants(plan);
  return plan;
}

}  // namespace automap::models
