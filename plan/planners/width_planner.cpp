#include "plan/planners/width_planner.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/effort.h"

namespace automap::planners {

using machine::Cluster;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Replicas;

namespace {

// Splits whose looks' best plans differ by less may change places with more effort.
constexpr double kNearLook = 0.05;
// The part of a look that a glance gets, and how far behind the best plan so far a glance may end for its split to get
// a look. Of 478 looks at GPT-2, ResNet-50 and BERT-48, none of a split that was left further behind came within 10 %.
// With fewer units glances mislead: a look that has not many more needs none.
constexpr int kGlanceShare = 8;
constexpr std::int64_t kLeastGlanceUnits = 2'000'000;
constexpr double kNearGlance = 0.15;
// Numbers of devices that are tried where nothing else has a plan: so many next to the most, and next to one.
constexpr int kFewerTried = 32;
// From a choice to better ones beside it; a step that gains less is the last.
constexpr int kMostSteps = 16;
constexpr double kWorthAStep = 1e-4;
constexpr double kLeastTime = 1e-3;  // seconds, for a planner that comes when the time is over

ProblemOptions at_width(ProblemOptions options, int width) {
  options.width = width;
  return options;
}

}  // namespace

WidthPlanner::WidthPlanner(const Question& question, int width, double hopeless_ms, Time start)
    : profile_(question.profile_of(width)),
      whole_(question.cluster),
      cluster_(machine::replicas_of(question.cluster, width)),
      options_(at_width(question.options, width)),
      request_(question.request),
      equal_replicas_(question.step.equal_replicas),
      lone_replicas_(question.step.lone_replicas),
      even_servers_(question.step.even_servers),
      hopeless_ms_(hopeless_ms),
      work_bound_(question, width),
      start_(start),
      clock_(in_time(request_).time_limits()) {}

std::vector<StepSize> WidthPlanner::spread(std::vector<StepSize> sizes) const {
  for (StepSize& size : sizes) size.width = options_.width;
  const std::vector<StepSize> splits = sizes;
  leave_some_free(sizes);
  try {
    if (equal_replicas_) make_equal(sizes);
    if (lone_replicas_) make_lone(sizes);
  } catch (const Error& e) {
    if (!even_servers_ || e.kind() != ErrorKind::kUsage) throw;
    sizes.clear();  // Where no division of all devices is even, one of some of them may be.
  }
  if (even_servers_) make_even(splits, sizes);
  return sizes;
}

int WidthPlanner::micro_batches_of_best() const {
  int of_best = 0;
  double least = kInfinity;
  for (const Look& one : looks_) {
    if (one.result.length_ms() > least || !one.result.plan) continue;
    least = one.result.length_ms();
    of_best = one.size.micro_batches;
  }
  return of_best;
}

bool WidthPlanner::best_has_the_most_micro_batches() const {
  int most = 0;
  for (const StepSize& size : considered_) most = std::max(most, size.micro_batches);
  const int of_best = micro_batches_of_best();
  return of_best == most || of_best == 0;
}

void WidthPlanner::look_further(const std::vector<StepSize>& further) {
  const std::vector<StepSize> first = considered_;
  // A width of which nothing was looked at has no hope, however many micro-batches it has.
  for (std::size_t i = 0; looked() && i < further.size(); ++i) {
    if (out_of_time() || !best_has_the_most_micro_batches()) break;
    try {
      const std::vector<StepSize> more = spread({further[i]});
      considered_.insert(considered_.end(), more.begin(), more.end());
      look(more, considered_.size());
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;  // no equal or lone stages share these samples
    }
  }
  // Splits that came to nothing are no premise of the bounds, and none of them becomes the plan.
  if (micro_batches_of_best() > kMostMicroBatches) return;
  considered_ = first;
  const auto is_further = [&](const Look& one) {
    return std::any_of(further.begin(), further.end(),
                       [&](const StepSize& size) { return size.micro_batches == one.size.micro_batches; });
  };
  looks_.erase(std::remove_if(looks_.begin(), looks_.end(), is_further), looks_.end());
}

void WidthPlanner::look_at_all(std::vector<StepSize> sizes, const std::vector<StepSize>& further, bool alone) {
  considered_ = spread(std::move(sizes));
  if (alone && considered_.size() == 1 && further.empty()) return;
  look(considered_, considered_.size());
  look_further(further);
  if (best_look_ms() < hopeless_ms_ || hopeless_ms_ == kInfinity) look_at_fewer(considered_);
  look_at_halves(std::min(hopeless_ms_, best_look_ms()));
  look_at_choices();
}

double WidthPlanner::best_look_ms() const {
  double least = kInfinity;
  for (const Look& one : looks_) least = std::min(least, one.result.length_ms());
  return least;
}

std::optional<WidthAlternative> WidthPlanner::best_look() const {
  const auto best = std::min_element(looks_.begin(), looks_.end(), [&](const Look& a, const Look& b) {
    return a.result.length_ms() < b.result.length_ms();
  });
  if (best == looks_.end() || !best->result.plan) return std::nullopt;
  return WidthAlternative{options_.width, best->result.plan->num_stages(), best->result.step_ms,
                          best->result.simulated_step_ms};
}

StepPlan WidthPlanner::finish() {
  if (looks_.empty() && considered_.size() == 1) {
    StepPlan plan = at_full_effort(considered_.front(), problem_of(considered_.front()));
    const double found_ms = plan.result.length_ms();
    look_at_halves(found_ms);
    if (plan.result.plan && !(best_look_ms() < found_ms)) {
      plan.bounds.considered = considered_;
      return plan;
    }
    looks_.push_back({plan.size, std::move(plan.problem), std::move(plan.result)});
    look_at_fewer(considered_);
  }
  const std::vector<StepSize> sizes = considered_;
  // Where nothing fits, the split that lacks least gives the reason.
  const auto key = [&](const Look& look) {
    const double lacks = look.result.least_memory_bytes;
    return std::make_tuple(look.result.length_ms(), lacks > 0 ? lacks : kInfinity, !look.result.devices_divide);
  };
  const auto best =
      std::min_element(looks_.begin(), looks_.end(), [&](const Look& a, const Look& b) { return key(a) < key(b); });
  if (best == looks_.end()) refuse_all(sizes);
  StepPlan plan;
  std::string fewer = why_fewer(best->size);
  if (best->result.plan && !wants_effort()) {
    // The quick planners do no more with more effort.
    plan.size = best->size;
    plan.problem = std::move(best->problem);
    plan.result = std::move(best->result);
    plan.result.cut_by_time = plan.result.cut_by_time || cut_by_time_;
    plan.bounds.considered = sizes;
    plan.why_fewer = fewer;
    return plan;
  }
  plan = at_full_effort(best->size, std::move(best->problem));
  plan.result.cut_by_time = plan.result.cut_by_time || cut_by_time_;
  if (best->result.length_ms() < plan.result.length_ms()) {
    // The look had a luckier hand: its plan, with the bounds of the longer search.
    best->result.lower_bound_ms = plan.result.lower_bound_ms;
    best->result.lower_bound_method = plan.result.lower_bound_method;
    best->result.set_gap();
    if (best->result.gap <= kProvenGap) best->result.proven_ms = gone_ms();
    best->result.cut_by_time = plan.result.cut_by_time;
    plan.result = std::move(best->result);
  }
  // A look may mislead: the next best split, if it is near, gets as much.
  const auto next = std::min_element(looks_.begin(), looks_.end(), [&](const Look& a, const Look& b) {
    return std::make_pair(&a == &*best, a.result.length_ms()) < std::make_pair(&b == &*best, b.result.length_ms());
  });
  if (request_.effort.units != WorkLimits::kNoEnd && next != best &&
      next->result.length_ms() < plan.result.length_ms() * (1 + kNearLook) && !out_of_time()) {
    StepPlan other = at_full_effort(next->size, std::move(next->problem));
    if (other.result.length_ms() < plan.result.length_ms()) {
      plan = std::move(other);
      fewer = why_fewer(plan.size);
    }
  }
  plan.bounds.considered = sizes;
  plan.why_fewer = fewer;
  collect_alternatives(plan.result);
  return plan;
}

StepPlan WidthPlanner::of_split(const StepSize& size) const {
  return at_full_effort(size, problem_of(size));
}

double WidthPlanner::gone_ms() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
}

void WidthPlanner::leave_some_free(std::vector<StepSize>& sizes) const {
  const int devices = cluster_.num_devices();
  if (options_.replicas == Replicas::kFractional) return;
  const std::vector<StepSize> all = sizes;
  const auto add = [&](StepSize size, std::int64_t fewer) {
    size.devices = static_cast<int>(fewer);
    if (fewer >= 1 && fewer < devices && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
      sizes.push_back(size);
    }
  };
  int before = 0;
  for (std::size_t g = 0; g + 1 < cluster_.servers.size(); ++g) {
    before += cluster_.servers[g].count * cluster_.servers[g].devices;
    if (cluster_.servers[g].device == cluster_.servers[g + 1].device) continue;
    for (const StepSize& size : all) add(size, before);
  }
  // The most devices that can share a split evenly, and the most over all splits.
  const auto most_shared = [devices](const StepSize& size) {
    int most = devices;
    while (std::fmod(size.samples, most) != 0) --most;
    return most;
  };
  int best_shared = 0;
  for (const StepSize& size : all) best_shared = std::max(best_shared, most_shared(size));
  for (const StepSize& size : all) {
    if (best_shared < devices / 2) {
      add(size, std::min<std::int64_t>(most_busy(size), devices - 1));
      add(size, static_cast<std::int64_t>(size.samples));
      for (const int fewer : halves()) {
        if (fewer <= most_busy(size)) add(size, fewer);
      }
    } else if (const int most = most_shared(size); most < devices && most >= devices / 2) {
      add(size, most);
      // If no split shares all devices, a stage of one or two devices beside such a stage is tried, too.
      for (int beside = 1; beside <= 2 && best_shared < devices; ++beside) add(size, most + beside);
    }
  }
}

std::vector<int> WidthPlanner::halves() const {
  std::vector<int> of_servers;  // [number of servers - 1]: devices of the first so many
  for (const machine::ServerGroup& servers : cluster_.servers) {
    for (int s = 0; s < servers.count; ++s) {
      of_servers.push_back((of_servers.empty() ? 0 : of_servers.back()) + servers.devices);
    }
  }
  std::vector<int> counts;
  for (std::size_t n = of_servers.size() / 2; n >= 1; n /= 2) counts.push_back(of_servers[n - 1]);
  for (int n = of_servers.front() / 2; n >= 1; n /= 2) counts.push_back(n);
  return counts;
}

std::int64_t WidthPlanner::most_busy(const StepSize& size) const {
  const std::int64_t stages = request_.stages > 0 ? request_.stages : request_.max_stages;
  return stages * static_cast<std::int64_t>(size.samples);
}

void WidthPlanner::look_at_halves(double best_ms) {
  if (options_.replicas == Replicas::kFractional || equal_replicas_ || lone_replicas_) return;
  if (best_ms == kInfinity) return;  // what does not fit on all does not on fewer
  std::vector<StepSize> tries;
  for (const StepSize& size : considered_) {
    if (size.devices > 0) continue;
    for (const int fewer : halves()) {
      StepSize one = size;
      one.devices = fewer;
      if (fewer >= std::max(1, request_.stages) && work_bound_.ms(one) < best_ms && stands_evenly(one) &&
          std::find(considered_.begin(), considered_.end(), one) == considered_.end()) {
        tries.push_back(one);
      }
    }
  }
  if (tries.empty() || out_of_time()) return;
  look(tries, considered_.size() + tries.size());
  considered_.insert(considered_.end(), tries.begin(), tries.end());
}

std::vector<StepSize> WidthPlanner::splits() const {
  std::vector<StepSize> out;
  for (const StepSize& size : considered_) {
    const StepSize split{size.samples, size.micro_batches, 0, 0, options_.width};
    if (std::find(out.begin(), out.end(), split) == out.end()) out.push_back(split);
  }
  return out;
}

std::vector<StepSize> WidthPlanner::on_choice(const StepSize& split, const DeviceChoice& choice) const {
  StepSize size = split;
  put_on(cluster_, machine::devices_of(whole_, choice), &size);
  if (size.on.empty() && size.devices == cluster_.num_devices()) size.devices = 0;
  if (lone_replicas_) {
    const int stages = size.devices > 0 ? size.devices : cluster_.num_devices();
    if (!may_have(stages)) return {};
    size.group_size = 1;
    return {size};
  }
  return equal_replicas_ ? in_equal_groups(size) : std::vector<StepSize>{size};
}

bool WidthPlanner::stands_evenly(const StepSize& size) const {
  if (!even_servers_) return true;
  const Cluster replicas = replicas_of(whole_, size);
  std::vector<int> used;
  std::size_t server = 0;
  for (const machine::ServerGroup& group : replicas.servers) {
    for (int s = 0; s < group.count; ++s, ++server) {
      const std::vector<int>& all_taken = replicas.servers_taken_for_one;
      const int taken = all_taken.empty() ? 1 : all_taken[server];
      used.insert(used.end(), at(taken), group.devices * size.width / taken);
    }
  }
  return servers_inexpressible(used, size.group_size * size.width, size.width).empty();
}

void WidthPlanner::make_even(const std::vector<StepSize>& splits, std::vector<StepSize>& sizes) const {
  if (machine::one_server_holds(whole_, options_.width)) {
    std::vector<DeviceChoice> choices;
    for (int stages = 1; stages <= cluster_.num_devices(); ++stages) {
      if (!may_have(stages)) continue;
      for (DeviceChoice& one : even_choices(whole_, options_.width, stages, lone_replicas_)) {
        if (std::find(choices.begin(), choices.end(), one) == choices.end()) choices.push_back(std::move(one));
      }
    }
    for (const DeviceChoice& choice : choices) {
      for (const StepSize& split : splits) {
        for (StepSize& one : on_choice(split, choice)) {
          if (std::find(sizes.begin(), sizes.end(), one) == sizes.end()) sizes.push_back(std::move(one));
        }
      }
    }
  }
  sizes.erase(std::remove_if(sizes.begin(), sizes.end(), [&](const StepSize& size) { return !stands_evenly(size); }),
              sizes.end());
  if (sizes.empty()) {
    throw Error(ErrorKind::kUsage, "no stages of as many devices stand evenly on the servers",
                "give another --batch or --micro-batch, or other --stages");
  }
}

bool WidthPlanner::look_at(const std::vector<DeviceChoice>& choices, const std::vector<StepSize>& splits) {
  const double before_ms = best_look_ms();
  const double best_ms = std::min(hopeless_ms_, before_ms);
  std::vector<StepSize> tries, hopeless;
  for (const DeviceChoice& choice : choices) {
    for (const StepSize& split : splits) {
      for (StepSize& one : on_choice(split, choice)) {
        const int devices = one.devices > 0 ? one.devices : cluster_.num_devices();
        if (devices < request_.stages || devices > most_busy(one) || !stands_evenly(one)) continue;
        if (std::find(considered_.begin(), considered_.end(), one) != considered_.end()) continue;
        (work_bound_.ms(one) < best_ms ? tries : hopeless).push_back(std::move(one));
      }
    }
  }
  if (out_of_time()) return false;
  if (all_devices_) considered_.insert(considered_.end(), hopeless.begin(), hopeless.end());
  if (tries.empty()) return false;
  look(tries, considered_.size() + tries.size());
  considered_.insert(considered_.end(), tries.begin(), tries.end());
  return best_look_ms() < before_ms * (1 - kWorthAStep);
}

void WidthPlanner::look_at_choices() {
  if (options_.replicas == Replicas::kFractional) return;
  // Replicas that are several whole servers stand where these stand side by side.
  if (!machine::one_server_holds(whole_, options_.width)) return;
  const std::vector<DeviceChoice> all = all_choices(whole_, options_.width);
  if (!all.empty()) {
    all_devices_ = true;
    look_at(all, splits());
    if (cut_by_time_) all_devices_ = false;
    return;
  }
  if (best_look_ms() == kInfinity) return;
  look_at(orders_of_kinds(whole_, options_.width), splits());
  for (int step = 0; step < kMostSteps; ++step) {
    const auto best = std::min_element(looks_.begin(), looks_.end(), [](const Look& a, const Look& b) {
      return a.result.length_ms() < b.result.length_ms();
    });
    if (best == looks_.end() || best->result.length_ms() > hopeless_ms_) return;
    std::vector<StepSize> near;
    for (const StepSize& split : splits()) {
      const double factor = split.samples / best->size.samples;
      if (factor >= 0.5 && factor <= 2) near.push_back(split);
    }
    const DeviceChoice choice = choice_of(whole_, devices_of(whole_, best->size));
    if (!look_at(choices_beside(whole_, options_.width, choice), near)) return;
  }
}

void WidthPlanner::look_at_fewer(std::vector<StepSize>& sizes) {
  if (options_.replicas == Replicas::kFractional || equal_replicas_) return;
  const auto settled = [&] {
    return std::any_of(looks_.begin(), looks_.end(),
                       [](const Look& look) { return look.result.plan || look.result.cut_by_time; });
  };
  // A split that does not fit on more devices does not fit on fewer.
  const auto too_large = [&](const StepSize& size) {
    return std::any_of(looks_.begin(), looks_.end(), [&](const Look& look) {
      return look.size.samples == size.samples && look.size.micro_batches == size.micro_batches &&
             (look.size.devices == 0 || look.size.devices >= size.devices) && look.result.least_memory_bytes > 0;
    });
  };
  if (settled()) return;
  std::vector<StepSize> tries;
  const std::vector<int> whole_servers = halves();
  for (const StepSize& size : sizes) {
    if (size.devices > 0) continue;
    const auto most = static_cast<int>(std::min<std::int64_t>(most_busy(size), cluster_.num_devices() - 1));
    for (int fewer = most; fewer >= std::max(1, request_.stages); --fewer) {
      const bool near = fewer > most - kFewerTried || fewer <= kFewerTried;
      if (!near && std::find(whole_servers.begin(), whole_servers.end(), fewer) == whole_servers.end()) continue;
      StepSize one = size;
      one.devices = fewer;
      if (!stands_evenly(one) || std::find(sizes.begin(), sizes.end(), one) != sizes.end()) continue;
      if (!too_large(one)) tries.push_back(one);
    }
  }
  std::stable_sort(tries.begin(), tries.end(),
                   [](const StepSize& a, const StepSize& b) { return a.devices > b.devices; });
  // All splits of one number of devices together.
  for (auto begin = tries.begin(); begin != tries.end() && !settled() && !out_of_time();) {
    const auto end = std::find_if(begin, tries.end(), [&](const StepSize& s) { return s.devices != begin->devices; });
    const std::vector<StepSize> alike(begin, end);
    look(alike, tries.size());
    if (settled()) sizes.insert(sizes.end(), begin, end);
    begin = end;
  }
}

std::string WidthPlanner::why_fewer(const StepSize& chosen) const {
  if (chosen.devices == 0) return "";
  if (!stands_evenly({0, 0, 0, 0, options_.width})) {
    return "as many devices of every server are used, and stages fill servers, or are filled by them";
  }
  if (lone_replicas_) return "without data parallelism no plan on more of them was found to be shorter";
  const bool all_tried = std::any_of(looks_.begin(), looks_.end(), [](const Look& l) { return l.size.devices == 0; });
  const bool all_found =
      std::any_of(looks_.begin(), looks_.end(), [](const Look& l) { return l.size.devices == 0 && l.result.plan; });
  return all_tried && !all_found
             ? "no plan was found for all of them: the devices of every stage have to divide the samples of a "
               "micro-batch, and no stage may idle"
             : "no plan on more of them was found to be shorter";
}

bool WidthPlanner::may_have(int stages) const {
  if (request_.stages > 0) return stages == request_.stages;
  return stages <= request_.max_stages && stages <= profile_->size();
}

std::vector<StepSize> WidthPlanner::in_equal_groups(const StepSize& size) const {
  std::vector<StepSize> equal;
  const int devices = size.devices > 0 ? size.devices : cluster_.num_devices();
  for (int group = devices; group >= 1; --group) {
    const int stages = devices / group;
    if (devices % group != 0 || std::fmod(size.samples, group) != 0) continue;
    if (!may_have(stages)) continue;
    equal.push_back(size);
    equal.back().group_size = group;
  }
  return equal;
}

void WidthPlanner::make_equal(std::vector<StepSize>& sizes) const {
  std::vector<StepSize> equal;
  for (const StepSize& size : sizes) {
    const std::vector<StepSize> groups = in_equal_groups(size);
    equal.insert(equal.end(), groups.begin(), groups.end());
  }
  if (equal.empty()) {
    throw Error(ErrorKind::kUsage,
                "no number of devices per stage divides both the " + std::to_string(cluster_.num_devices()) +
                    " devices and the samples of a micro-batch",
                "give another --batch or --micro-batch, or --replicas whole");
  }
  sizes = std::move(equal);
}

void WidthPlanner::make_lone(std::vector<StepSize>& sizes) const {
  std::vector<StepSize> lone;
  const int devices = cluster_.num_devices();
  const int most =
      request_.stages > 0 ? request_.stages : std::min<int>(request_.max_stages, static_cast<int>(profile_->size()));
  for (const StepSize& size : sizes) {
    if (size.devices > 0) continue;
    for (int stages = std::min(devices, most); stages >= std::max(1, request_.stages); --stages) {
      lone.push_back(size);
      lone.back().devices = stages < devices ? stages : 0;
      lone.back().group_size = 1;
    }
  }
  if (lone.empty()) {
    throw Error(ErrorKind::kUsage,
                std::to_string(request_.stages) + " stages of one replica each, and there are devices for " +
                    std::to_string(devices) + " replicas",
                "give fewer --stages, or data parallelism");
  }
  sizes = std::move(lone);
}

void WidthPlanner::collect_alternatives(PlanResult& result) const {
  const bool by_value = result.objective == Objective::kValue;
  const auto step = [&](const Alternative& a) { return by_value ? a.step_ms : a.simulated_step_ms; };
  for (const Look& look : looks_) {
    for (const Alternative& other : look.result.alternatives) {
      const auto same = std::find_if(result.alternatives.begin(), result.alternatives.end(),
                                     [&](const Alternative& a) { return a.planner == other.planner; });
      if (same == result.alternatives.end()) {
        result.alternatives.push_back(other);
      } else if (step(other) < step(*same)) {
        *same = other;
      }
    }
  }
}

std::unique_ptr<Problem> WidthPlanner::possible_problem(const StepSize& size) const {
  try {
    return make_problem(size, options_);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    return nullptr;
  }
}

std::unique_ptr<Problem> WidthPlanner::make_problem(const StepSize& size, ProblemOptions options) const {
  options.micro_batches = size.micro_batches;
  options.micro_batch_samples = size.samples;
  options.group_size = size.group_size;
  if (!size.on.empty()) return std::make_unique<Problem>(profile_, replicas_of(whole_, size), options);
  return std::make_unique<Problem>(
      profile_, size.devices > 0 ? machine::first_devices(cluster_, size.devices) : cluster_, options);
}

PlanResult WidthPlanner::planned(const Problem& problem, const PlanRequest& request) const {
  const double before_ms = gone_ms();
  PlanResult result = make_plan(problem, request);
  if (result.found_ms > 0) result.found_ms += before_ms;
  if (result.proven_ms > 0) result.proven_ms += before_ms;
  return result;
}

StepPlan WidthPlanner::at_full_effort(const StepSize& size, std::unique_ptr<Problem> problem) const {
  StepPlan plan;
  plan.size = size;
  plan.problem = std::move(problem);
  plan.result = planned(*plan.problem, request_for(*plan.problem, in_time(request_)));
  tell(*plan.problem, plan.result);
  return plan;
}

void WidthPlanner::tell(const Problem& problem, const PlanResult& found) const {
  if (request_.better && found.plan) request_.better(place(problem, *found.plan), found.length_ms());
}

bool WidthPlanner::out_of_time() {
  if (clock_.over()) cut_by_time_ = true;
  return cut_by_time_;
}

PlanRequest WidthPlanner::in_time(PlanRequest request) const {
  request.time_limit_s = std::max(kLeastTime, request_.time_limit_s - gone_ms() * 1e-3);
  return request;
}

PlanRequest WidthPlanner::with_share(PlanRequest request, std::int64_t shares) {
  if (request.effort.units != WorkLimits::kNoEnd) request.effort.units /= shares;
  for (int* evaluations : {&request.effort.local_search_evaluations, &request.effort.polish_evaluations,
                           &request.effort.explore_evaluations}) {
    *evaluations = std::max<int>(1, static_cast<int>(*evaluations / static_cast<int>(shares)));
  }
  return request;
}

std::vector<WidthPlanner::Split> WidthPlanner::bounded(const std::vector<StepSize>& sizes) {
  std::vector<Split> all(sizes.size()), splits;
  InOrder bounding;
  bounding.over = [&] { return !splits.empty() && out_of_time(); };
  bounding.work = [&](std::size_t i, const Dropped&) {
    const StepSize& size = sizes[i];
    if (size.devices > 0 && request_.stages > size.devices) return;
    std::unique_ptr<Problem> problem = possible_problem(size);
    if (!problem) return;
    const double bound_ms = simple_bound(*problem, request_for(*problem, request_)).ms;
    all[i] = {bound_ms, size, std::move(problem), std::nullopt};
  };
  bounding.take = [&](std::size_t i) {
    if (!all[i].problem) return;
    splits.push_back(std::move(all[i]));
  };
  run_in_order(sizes.size(), bounding);
  std::stable_sort(splits.begin(), splits.end(),
                   [](const Split& a, const Split& b) { return a.bound_ms < b.bound_ms; });
  return splits;
}

void WidthPlanner::ask(std::vector<Split>& splits, const PlanRequest& share, double* best_ms,
                       const std::function<double(const Split&)>& hope_ms) {
  std::vector<PlanResult> found(splits.size());
  InOrder looking;
  if (request_.planner == PlannerKind::kOnline) looking.most_threads = 1;  // all of them learn in one file
  // Without a plan, one that cannot be is asked, too: it says why.
  looking.wanted = [&](std::size_t i) { return *best_ms == kInfinity || hope_ms(splits[i]) < *best_ms; };
  looking.over = [&] { return *best_ms < kInfinity && out_of_time(); };
  looking.work = [&](std::size_t i, const Dropped& dropped) {
    PlanRequest own = request_for(*splits[i].problem, in_time(share));
    own.cancelled = [&] { return dropped() || request_.stopped(); };
    found[i] = planned(*splits[i].problem, own);
  };
  looking.take = [&](std::size_t i) {
    std::optional<PlanResult>& result = splits[i].result;
    found[i].cut_by_time = found[i].cut_by_time || (result && result->cut_by_time);
    if (found[i].length_ms() < *best_ms) {
      *best_ms = found[i].length_ms();
      tell(*splits[i].problem, found[i]);
    }
    if (!result || found[i].length_ms() <= result->length_ms()) result = std::move(found[i]);
  };
  run_in_order(splits.size(), looking);
}

void WidthPlanner::look(const std::vector<StepSize>& sizes, std::size_t among) {
  PlanRequest request = with_share(request_, static_cast<std::int64_t>(kLookShare * among));
  request.lower_bound = false;
  request.all_planners = false;
  // The most promising first, so that most of the others need no look.
  std::vector<Split> splits = bounded(sizes);
  double best_ms = std::min(hopeless_ms_, best_look_ms());
  const auto bound_ms = [](const Split& split) { return split.bound_ms; };
  const PlanRequest glance = with_share(request, kGlanceShare);
  const std::int64_t units = glance.effort.units;
  if (request_.planner == PlannerKind::kAuto && splits.size() > 1 && units >= kLeastGlanceUnits &&
      units != WorkLimits::kNoEnd) {
    // Most splits end far behind, and a glance tells.
    ask(splits, glance, &best_ms, bound_ms);
    splits.erase(std::remove_if(splits.begin(), splits.end(), [](const Split& split) { return !split.result; }),
                 splits.end());
    // A glance that found no plan says nothing of how short one is.
    const auto hope_ms = [](const Split& split) {
      return split.result->plan ? split.result->length_ms() / (1 + kNearGlance) : split.bound_ms;
    };
    std::stable_sort(splits.begin(), splits.end(),
                     [&](const Split& a, const Split& b) { return hope_ms(a) < hope_ms(b); });
    ask(splits, request, &best_ms, hope_ms);
  } else {
    ask(splits, request, &best_ms, bound_ms);
  }
  for (Split& split : splits) {
    if (split.result) looks_.push_back({split.size, std::move(split.problem), std::move(*split.result)});
  }
}

void WidthPlanner::refuse_all(const std::vector<StepSize>& sizes) const {
  problem_of(sizes.front());  // says why
  throw Error(ErrorKind::kUsage, "no split of the batch can be planned",
              "give --micro-batch, or a batch with more divisors");
}

}  // namespace automap::planners
