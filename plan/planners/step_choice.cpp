#include "plan/planners/step_choice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/error.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/least_work.h"
#include "common/pipeline/schedule.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::Replicas;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A look at every split takes this share of the effort in all.
constexpr int kLookShare = 4;
// Splits whose looks' best plans differ by less may change places with more effort.
constexpr double kNearLook = 0.05;
constexpr std::int64_t kMostLoneMicroBatches = 4096;
// Numbers of devices that are tried where nothing else has a plan: so many next to the most, and next to one.
constexpr int kFewerTried = 32;
// Planners that answer at once choose the split of a larger profile by so many of its positions.
constexpr int kLookPositions = 128;
constexpr double kLeastTime = 1e-3;  // seconds, for a planner that comes when the time is over
// For the bounds of one split, and of one that comes to no end with that; so often in all, since the loosest split
// makes the bound.
constexpr std::int64_t kBoundUnits = 100'000'000;
constexpr std::int64_t kCloserUnits = 1'000'000'000;
constexpr int kMostCloser = 8;

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorKind::kUsage, what, hint);
}

// "16 or 32": the divisors next to a number that is none.
std::string nearest_divisors(std::int64_t number, std::int64_t wanted) {
  const std::vector<std::int64_t> all = divisors(number);
  const auto above = std::upper_bound(all.begin(), all.end(), wanted);
  std::string text;
  if (above != all.begin()) text = std::to_string(*(above - 1));
  if (above != all.end()) text += (text.empty() ? "" : " or ") + std::to_string(*above);
  return text;
}

StepSize size_of(std::int64_t samples, std::int64_t micro_batches) {
  if (micro_batches > kMostGivenMicroBatches) {
    const std::int64_t larger = (micro_batches * samples + kMostGivenMicroBatches - 1) / kMostGivenMicroBatches;
    refuse(std::to_string(micro_batches) + " micro-batches per step, at most " +
               std::to_string(kMostGivenMicroBatches) + " are planned",
           "give a --micro-batch of " + std::to_string(larger) + " samples or more");
  }
  return {static_cast<double>(samples), static_cast<int>(micro_batches)};
}

// B, mb and M are given or follow from one another.
// `reach`: the most samples that a replica has times for.
std::vector<StepSize> whole_sizes(const StepRequest& r, std::int64_t own, double reach) {
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (r.batch == 0) {
    if (r.micro_batch > 0 || r.micro_batches > 0) {
      return {size_of(r.micro_batch > 0 ? r.micro_batch : own,
                      r.micro_batches > 0 ? r.micro_batches : kDefaultMicroBatches)};
    }
    StepRequest asked = r;
    asked.batch = own * kDefaultMicroBatches;
    return whole_sizes(asked, own, reach);
  }
  if (r.micro_batch > 0 && r.micro_batches > 0) {
    if (r.micro_batch * r.micro_batches != r.batch) {
      refuse(text(r.micro_batches) + " micro-batches of " + text(r.micro_batch) + " samples are " +
                 text(r.micro_batch * r.micro_batches) + " samples, not the batch of " + text(r.batch),
             "leave one of --batch, --micro-batch and --micro-batches out");
    }
    return {size_of(r.micro_batch, r.micro_batches)};
  }
  if (r.micro_batch > 0 || r.micro_batches > 0) {
    const std::int64_t given = r.micro_batch > 0 ? r.micro_batch : r.micro_batches;
    if (r.batch % given != 0) {
      refuse("a batch of " + text(r.batch) + " samples does not split into " +
                 (r.micro_batch > 0 ? "micro-batches of " + text(given) : text(given) + " micro-batches"),
             std::string(r.micro_batch > 0 ? "--micro-batch " : "--micro-batches ") + nearest_divisors(r.batch, given) +
                 " would do");
    }
    return {r.micro_batch > 0 ? size_of(given, r.batch / given) : size_of(r.batch / given, given)};
  }
  std::vector<StepSize> sizes;
  const std::vector<std::int64_t> of_batch = divisors(r.batch);
  std::int64_t spare = 0;  // the largest micro-batch of too many that the times reach
  bool reached = false;
  for (const std::int64_t samples : of_batch) {
    const std::int64_t count = r.batch / samples;
    // A batch with few divisors may have to go sample by sample.
    const bool lone = samples == 1 && of_batch.size() <= 2 && count <= kMostLoneMicroBatches;
    const bool in_reach = static_cast<double>(samples) <= reach;
    if (lone || count <= kMostMicroBatches) {
      sizes.push_back(size_of(samples, count));
      reached = reached || in_reach;
    } else if (in_reach && count <= kMostLoneMicroBatches) {
      spare = samples;
    }
  }
  if (!reached && spare > 0) sizes.push_back(size_of(spare, r.batch / spare));
  const double wanted = std::log(static_cast<double>(own));
  std::stable_sort(sizes.begin(), sizes.end(), [&](const StepSize& a, const StepSize& b) {
    return std::fabs(std::log(a.samples) - wanted) < std::fabs(std::log(b.samples) - wanted);
  });
  return sizes;
}

// Plans split after split.
class StepPlanner {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Of replicas of `width` devices. Plans that are no shorter than hopeless_ms need not be found.
  StepPlanner(const Profile& profile, const Cluster& cluster, const ProblemOptions& options, const PlanRequest& request,
              const StepRequest& step, int width, double hopeless_ms, Time start)
      : profile_(width == 1 ? profile : profile_at(profile, width)),
        cluster_(width == 1 ? cluster : machine::replicas_of(cluster, width)),
        options_(at_width(options, width)),
        request_(request),
        equal_replicas_(step.equal_replicas),
        lone_replicas_(step.lone_replicas),
        hopeless_ms_(hopeless_ms),
        start_(start),
        clock_(in_time(request).time_limits()) {}

  // Every split with a share of the effort; only one of them, asked for `alone`, waits for all of it.
  void look_at_all(std::vector<StepSize> sizes, bool alone) {
    leave_some_free(sizes);
    if (equal_replicas_) make_equal(sizes);
    if (lone_replicas_) make_lone(sizes);
    for (StepSize& size : sizes) size.width = options_.width;
    considered_ = std::move(sizes);
    if (alone && considered_.size() == 1) return;
    look(considered_, considered_.size());
    if (best_look_ms() < hopeless_ms_ || hopeless_ms_ == kInfinity) look_at_fewer(considered_);
    look_at_halves(std::min(hopeless_ms_, best_look_ms()));
  }

  const std::vector<StepSize>& considered() const { return considered_; }

  // Of the plans found so far; infinite: none.
  double best_look_ms() const {
    double least = kInfinity;
    for (const Look& one : looks_) least = std::min(least, length(one.result));
    return least;
  }
  bool looked() const { return !looks_.empty(); }
  // The looks' best plan.
  std::optional<WidthAlternative> best_look() const {
    const auto best = std::min_element(looks_.begin(), looks_.end(), [&](const Look& a, const Look& b) {
      return length(a.result) < length(b.result);
    });
    if (best == looks_.end() || !best->result.plan) return std::nullopt;
    return WidthAlternative{options_.width, best->result.plan->num_stages(), best->result.step_ms,
                            best->result.simulated_step_ms};
  }

  // The best of the splits with the rest of the effort, and the bounds of all.
  StepPlan finish(int* closer) {
    if (looks_.empty() && considered_.size() == 1) {
      StepPlan plan = at_full_effort(considered_.front(), problem_of(considered_.front()));
      const double found_ms = length(plan.result);
      look_at_halves(found_ms);
      if (plan.result.plan && !(best_look_ms() < found_ms)) {
        plan.considered = considered_;
        if (request_.lower_bound && simulated_bound_wanted()) bound_all(plan, closer);
        return plan;
      }
      looks_.push_back({plan.size, std::move(plan.problem), std::move(plan.result)});
      look_at_fewer(considered_);
    }
    const std::vector<StepSize> sizes = considered_;
    // Where nothing fits, the split that lacks least says why.
    const auto key = [&](const Look& look) {
      const double lacks = look.result.least_memory_bytes;
      return std::make_tuple(length(look.result), lacks > 0 ? lacks : kInfinity, !look.result.devices_divide);
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
      plan.considered = sizes;
      plan.why_fewer = fewer;
      if (request_.lower_bound) {
        plan.result.lower_bound_ms = plan.result.step_ms;
        tighten_simply(plan.considered, plan);
      }
      return plan;
    }
    plan = at_full_effort(best->size, std::move(best->problem));
    plan.result.cut_by_time = plan.result.cut_by_time || cut_by_time_;
    if (length(best->result) < length(plan.result)) {
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
      return std::make_pair(&a == &*best, length(a.result)) < std::make_pair(&b == &*best, length(b.result));
    });
    if (request_.effort.units != WorkLimits::kNoEnd && next != best &&
        length(next->result) < length(plan.result) * (1 + kNearLook) && !out_of_time()) {
      StepPlan other = at_full_effort(next->size, std::move(next->problem));
      if (length(other.result) < length(plan.result)) {
        plan = std::move(other);
        fewer = why_fewer(plan.size);
      }
    }
    plan.considered = sizes;
    plan.why_fewer = fewer;
    collect_alternatives(plan.result);
    if (request_.lower_bound && plan.result.plan && simulated_bound_wanted()) bound_all(plan, closer);
    return plan;
  }

  // A plan of one split by who chose it among `among`.
  StepPlan of_split(const StepSize& size, std::size_t among) const {
    StepPlan plan;
    plan.size = size;
    plan.problem = problem_of(size);
    plan.result = planned(*plan.problem, request_for(size, in_time(look_request(among))));
    return plan;
  }

  // What no plan of these splits can be below either goes into the bounds of a plan, which need not be one of them.
  // `closer`: how many bounds may still get more work; counts down.
  void tighten(const std::vector<StepSize>& considered, StepPlan& plan, int* closer) const {
    PlanResult& result = plan.result;
    double simulated = plan.simulated_bound_ms;
    for (const StepSize& size : considered) {
      if (size.devices > 0 && request_.stages > size.devices) continue;
      const std::unique_ptr<Problem> problem = possible_problem(profile_, size);
      if (!problem) continue;
      if (!(size == plan.size) && simple_bound_ms(*problem, size) < result.lower_bound_ms) {
        const pipeline::LowerBound bound = bound_of(*problem, size, result.lower_bound_ms, closer);
        if (bound.ms < result.lower_bound_ms) {
          result.lower_bound_ms = bound.ms;
          result.lower_bound_method = bound.method;
        }
      }
      simulated = simulated_bound_ms(*problem, size, simulated, closer);
    }
    plan.simulated_bound_ms = simulated;
    result.set_gap();
    if (result.gap > kProvenGap) result.proven_ms = 0;
  }
  // The same by what sums give.
  void tighten_simply(const std::vector<StepSize>& considered, StepPlan& plan) const {
    PlanResult& result = plan.result;
    for (const StepSize& size : considered) {
      const auto known =
          std::find_if(simple_bounds_.begin(), simple_bounds_.end(), [&](const auto& of) { return of.first == size; });
      if (known != simple_bounds_.end()) {
        result.lower_bound_ms = std::min(result.lower_bound_ms, known->second);
      } else if (const auto problem = possible_problem(profile_, size)) {
        result.lower_bound_ms = std::min(result.lower_bound_ms, simple_bound_ms(*problem, size));
      }
    }
    result.lower_bound_method = "balance of work";
    result.set_gap();
  }

  // Since the planning of all widths began.
  double gone_ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }
  bool wants_effort() const { return !answers_at_once(request_.planner); }
  // The quick planners answer at once, with the bound that a moment gives.
  bool simulated_bound_wanted() const {
    return request_.planner == PlannerKind::kAuto || request_.planner == PlannerKind::kExact;
  }

 private:
  static ProblemOptions at_width(ProblemOptions options, int width) {
    options.width = width;
    return options;
  }

  // Fewer devices than there are: the first types of devices without the others; where no stage can take all, the most
  // that one can, and a few more; and where no split shares half of the devices evenly, what stages of one device each
  // can take, halves of the servers and of the first one.
  void leave_some_free(std::vector<StepSize>& sizes) const {
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
    // How many devices can share a split evenly, and the most over all of them.
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
        // Where no split shares all devices, also a stage of one or two beside such a one.
        for (int beside = 1; beside <= 2 && best_shared < devices; ++beside) add(size, most + beside);
      }
    }
  }

  // Devices of half of the servers, of a quarter, ..., of half of the first server, ...
  std::vector<int> halves() const {
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

  // No more devices than these can share the samples of a split.
  std::int64_t most_busy(const StepSize& size) const {
    const std::int64_t stages = request_.stages > 0 ? request_.stages : request_.max_stages;
    return stages * static_cast<std::int64_t>(size.samples);
  }

  // Every split on half of the devices, on a quarter, ..., where their compute alone leaves hope: links may cost more
  // than the other devices save.
  void look_at_halves(double best_ms) {
    if (options_.replicas == Replicas::kFractional || equal_replicas_ || lone_replicas_) return;
    if (best_ms == kInfinity) return;  // what does not fit on all does not on fewer
    const double sample_ms = least_sample_ms();
    std::vector<StepSize> tries;
    for (const StepSize& size : considered_) {
      if (size.devices > 0) continue;
      for (const int fewer : halves()) {
        StepSize one = size;
        one.devices = fewer;
        if (fewer >= std::max(1, request_.stages) && size.batch() * sample_ms / fewer < best_ms &&
            std::find(considered_.begin(), considered_.end(), one) == considered_.end()) {
          tries.push_back(one);
        }
      }
    }
    if (tries.empty() || out_of_time()) return;
    look(tries, considered_.size() + tries.size());
    considered_.insert(considered_.end(), tries.begin(), tries.end());
  }

  // No replica computes a sample in less, on any device.
  double least_sample_ms() const {
    double fastest = 0;
    for (const auto& [name, device] : cluster_.devices) fastest = std::max(fastest, device.relative_speed);
    const auto sum = [](const std::vector<double>& values) {
      return std::accumulate(values.begin(), values.end(), 0.0);
    };
    double least = kInfinity;
    for (const pipeline::DeviceTimes& times : profile_.times) {
      for (std::size_t point = 0; point < times.samples.size(); ++point) {
        least = std::min(least, (sum(times.forward_ms[point]) + sum(times.backward_ms[point])) / times.samples[point]);
      }
    }
    if (profile_.times.empty()) least = sum(profile_.c_ms) / std::max(1.0, profile_.micro_batch_size);
    return least / std::max(1.0, fastest);
  }

  // When no split has a plan: of those that do not want for memory ever fewer devices until one has, which joins the
  // splits.
  void look_at_fewer(std::vector<StepSize>& sizes) {
    if (options_.replicas == Replicas::kFractional || equal_replicas_) return;
    const auto settled = [&] {
      return std::any_of(looks_.begin(), looks_.end(),
                         [](const Look& look) { return look.result.plan || look.result.cut_by_time; });
    };
    // What does not fit on more devices does not on fewer.
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
        if (std::find(sizes.begin(), sizes.end(), one) == sizes.end() && !too_large(one)) tries.push_back(one);
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

  // Why devices are left free; empty: they are not.
  std::string why_fewer(const StepSize& chosen) const {
    if (chosen.devices == 0) return "";
    if (lone_replicas_) return "without data parallelism the others would not make the step shorter";
    const bool all_tried = std::any_of(looks_.begin(), looks_.end(), [](const Look& l) { return l.size.devices == 0; });
    const bool all_found =
        std::any_of(looks_.begin(), looks_.end(), [](const Look& l) { return l.size.devices == 0 && l.result.plan; });
    return all_tried && !all_found
               ? "no plan was found for all of them: the devices of every stage have to divide the samples of a "
                 "micro-batch, and no stage may idle"
               : "the others would not make the step shorter";
  }

  // Every split with every number of devices per stage that divides the devices and the samples.
  void make_equal(std::vector<StepSize>& sizes) const {
    std::vector<StepSize> equal;
    for (const StepSize& size : sizes) {
      const int devices = size.devices > 0 ? size.devices : cluster_.num_devices();
      for (int group = devices; group >= 1; --group) {
        const int stages = devices / group;
        if (devices % group != 0 || std::fmod(size.samples, group) != 0) continue;
        if (request_.stages > 0 ? stages != request_.stages : stages > request_.max_stages) continue;
        equal.push_back(size);
        equal.back().group_size = group;
      }
    }
    if (equal.empty()) {
      refuse("no number of devices per stage divides both the " + std::to_string(cluster_.num_devices()) +
                 " devices and the samples of a micro-batch",
             "give another --batch or --micro-batch, or --replicas whole");
    }
    sizes = std::move(equal);
  }

  // Every split on as many devices as there may be stages.
  void make_lone(std::vector<StepSize>& sizes) const {
    std::vector<StepSize> lone;
    const int devices = cluster_.num_devices(), most = request_.stages > 0 ? request_.stages : request_.max_stages;
    for (const StepSize& size : sizes) {
      if (size.devices > 0) continue;
      for (int stages = std::min(devices, most); stages >= std::max(1, request_.stages); --stages) {
        lone.push_back(size);
        lone.back().devices = stages < devices ? stages : 0;
        lone.back().group_size = 1;
      }
    }
    sizes = std::move(lone);
  }

  // With equal groups the number of stages follows.
  PlanRequest request_for(const StepSize& size, PlanRequest request) const {
    if (size.group_size > 0) {
      request.stages = (size.devices > 0 ? size.devices : cluster_.num_devices()) / size.group_size;
    }
    return request;
  }

  // What the planners came to on the other splits, where that is better or all they came to.
  void collect_alternatives(PlanResult& result) const {
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

  struct Look {
    StepSize size;
    std::unique_ptr<Problem> problem;
    PlanResult result;
  };

  std::unique_ptr<Problem> problem_of(const StepSize& size) const { return make_problem(profile_, size, options_); }

  // Null where the profile's times do not reach so many samples.
  std::unique_ptr<Problem> possible_problem(const Profile& profile, const StepSize& size) const {
    return possible_problem(profile, size, options_);
  }
  std::unique_ptr<Problem> possible_problem(const Profile& profile, const StepSize& size,
                                            const ProblemOptions& options) const {
    try {
      return make_problem(profile, size, options);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      return nullptr;
    }
  }

  std::unique_ptr<Problem> make_problem(const Profile& profile, const StepSize& size, ProblemOptions options) const {
    options.micro_batches = size.micro_batches;
    options.micro_batch_samples = size.samples;
    options.group_size = size.group_size;
    return std::make_unique<Problem>(profile, size.devices > 0 ? first_devices(cluster_, size.devices) : cluster_,
                                     options);
  }

  double length(const PlanResult& result) const {
    if (!result.plan) return kInfinity;
    return result.objective == Objective::kValue ? result.step_ms : result.simulated_step_ms;
  }

  // Its times as counted from the start of all planning.
  PlanResult planned(const Problem& problem, const PlanRequest& request) const {
    const double before_ms = gone_ms();
    PlanResult result = make_plan(problem, request);
    if (result.found_ms > 0) result.found_ms += before_ms;
    if (result.proven_ms > 0) result.proven_ms += before_ms;
    return result;
  }

  StepPlan at_full_effort(const StepSize& size, std::unique_ptr<Problem> problem) const {
    StepPlan plan;
    plan.size = size;
    plan.problem = std::move(problem);
    plan.result = planned(*plan.problem, request_for(size, in_time(request_)));
    return plan;
  }

  // The time limit is for all splits together.
  bool out_of_time() {
    if (clock_.over()) cut_by_time_ = true;
    return cut_by_time_;
  }
  PlanRequest in_time(PlanRequest request) const {
    request.time_limit_s = std::max(kLeastTime, request_.time_limit_s - gone_ms() * 1e-3);
    return request;
  }
  // With a share of the effort, of `among` that share it.
  PlanRequest look_request(std::size_t among) const {
    PlanRequest request = request_;
    const auto share = static_cast<std::int64_t>(kLookShare * among);
    if (request.effort.units != WorkLimits::kNoEnd) request.effort.units /= share;
    for (int* evaluations : {&request.effort.local_search_evaluations, &request.effort.polish_evaluations,
                             &request.effort.explore_evaluations}) {
      *evaluations = std::max<int>(1, static_cast<int>(*evaluations / static_cast<int>(share)));
    }
    return request;
  }

  // Every split with a share of the effort, as far as its simplest bound leaves hope.
  void look(const std::vector<StepSize>& sizes, std::size_t among) {
    PlanRequest request = look_request(among);
    request.lower_bound = false;
    request.all_planners = false;
    // The most promising first, so that most of the others need no look.
    struct Split {
      double bound_ms = 0;
      StepSize size;
      std::unique_ptr<Problem> problem;
    };
    std::vector<Split> splits;
    for (const StepSize& size : sizes) {
      if (size.devices > 0 && request_.stages > size.devices) continue;
      if (!splits.empty() && out_of_time()) break;
      std::unique_ptr<Problem> problem = possible_problem(profile_, size);
      if (!problem) continue;
      const double bound_ms = simple_bound_ms(*problem, size);
      simple_bounds_.emplace_back(size, bound_ms);
      splits.push_back({bound_ms, size, std::move(problem)});
    }
    std::stable_sort(splits.begin(), splits.end(),
                     [](const Split& a, const Split& b) { return a.bound_ms < b.bound_ms; });
    double best_ms = std::min(hopeless_ms_, best_look_ms());
    for (Split& split : splits) {
      if (split.bound_ms >= best_ms || (best_ms < kInfinity && out_of_time())) break;
      PlanResult result = planned(*split.problem, request_for(split.size, in_time(request)));
      Look one{split.size, std::move(split.problem), std::move(result)};
      best_ms = std::min(best_ms, length(one.result));
      looks_.push_back(std::move(one));
    }
  }

  static int most_stages(const Problem& problem, const PlanRequest& request) {
    if (request.stages > 0) return request.stages;
    return std::min({request.max_stages, problem.num_devices(), problem.num_instructions()});
  }

  // Of plans of at least `first` stages.
  double simple_bound_ms(const Problem& problem, const StepSize& size, int first = 1) const {
    const PlanRequest request = request_for(size, request_);
    const int most = most_stages(problem, request);
    double least = kInfinity;
    for (const pipeline::Schedule schedule : request.schedules) {
      const std::vector<double> bounds = pipeline::simple_lower_bounds_ms(problem, schedule, most);
      for (int stages = std::max(first, request.stages); stages <= most; ++stages) {
        least = std::min(least, bounds[static_cast<std::size_t>(stages - 1)]);
      }
    }
    return least;
  }

  // What no plan of the split with at least `first` stages can be below, at most `most_ms`.
  pipeline::LowerBound bound_of(const Problem& problem, const StepSize& size, double most_ms, int* closer,
                                int first = 1) const {
    const PlanRequest request = request_for(size, request_);
    const auto with_units = [&](std::int64_t units) {
      WorkLimits limits = in_time(request).time_limits();
      limits.units = std::min(units, request.effort.units);
      Work work(limits);
      return pipeline::lower_bound_all_cuts(problem, request.schedules, std::max(first, request.stages),
                                            most_stages(problem, request), most_ms, work);
    };
    pipeline::LowerBound bound = with_units(kBoundUnits);
    if (bound.exact() || bound.ms >= most_ms || request.effort.units <= kBoundUnits || *closer <= 0) return bound;
    --*closer;
    return with_units(kCloserUnits);
  }

  // The least simulated step of the plans of one stage; infinite where none fits.
  double one_stage_ms(const Problem& problem, const PlanRequest& request) const {
    double least = kInfinity;
    for (const pipeline::Schedule schedule : request.schedules) {
      pipeline::Plan plan;
      plan.schedule = schedule;
      for (int v = 0; v < problem.num_variants(); ++v) {
        plan.variants = {static_cast<std::uint8_t>(v)};
        if (feasible(problem, plan)) least = std::min(least, simulate_step_ms(problem, plan));
      }
    }
    return least;
  }

  // No plan of the split simulates shorter, at most `most_ms`: one stage is what it is, and more have V without what
  // stands behind the last backward, which is never above a simulation (cost.h).
  double simulated_bound_ms(const Problem& problem, const StepSize& size, double most_ms, int* closer) const {
    const PlanRequest request = request_for(size, request_);
    if (request.stages <= 1) most_ms = std::min(most_ms, one_stage_ms(problem, request));
    if (most_stages(problem, request) < 2) return most_ms;
    ProblemOptions options = options_;
    options.behind_backward = false;
    const std::unique_ptr<Problem> path = possible_problem(profile_, size, options);
    return simple_bound_ms(*path, size, 2) < most_ms ? bound_of(*path, size, most_ms, closer, 2).ms : most_ms;
  }

  // The bounds over every split: what the others cannot be below, either.
  void bound_all(StepPlan& plan, int* closer) const {
    plan.simulated_bound_ms = plan.result.simulated_step_ms;
    tighten(plan.considered, plan, closer);
  }

  [[noreturn]] void refuse_all(const std::vector<StepSize>& sizes) const {
    problem_of(sizes.front());  // says why
    refuse("no split of the batch can be planned", "give --micro-batch, or a batch with more divisors");
  }

  const Profile profile_;
  const Cluster cluster_;
  const ProblemOptions options_;
  const PlanRequest& request_;
  bool equal_replicas_, lone_replicas_;
  const double hopeless_ms_;
  const Time start_;  // of the planning of all widths
  Work clock_;
  bool cut_by_time_ = false;
  std::vector<StepSize> considered_;
  std::vector<std::pair<StepSize, double>> simple_bounds_;  // of those looked at
  std::vector<Look> looks_;
};

}  // namespace

BoundScope StepPlan::bound_scope(int all_devices) const {
  std::map<int, std::set<double>, std::greater<>> splits;  // of each number of devices, by their micro-batch
  std::set<double> all;
  for (const StepSize& one : considered) {
    splits[one.devices > 0 ? one.devices * one.width : all_devices].insert(one.samples);
    all.insert(one.samples);
  }
  BoundScope scope;
  for (const auto& [devices, of_devices] : splits) {
    (of_devices == all ? scope.devices : scope.devices_in_part).push_back(devices);
  }
  return scope;
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d * d != number) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<StepSize> step_sizes(const StepRequest& request, const Profile& profile, Replicas replicas) {
  if (replicas == Replicas::kFractional) {
    const double own = profile.micro_batch_size > 0 ? profile.micro_batch_size : 1;
    const double samples = request.micro_batch > 0 ? static_cast<double>(request.micro_batch) : own;
    if (request.batch == 0) {
      return {{samples, request.micro_batches > 0 ? request.micro_batches : kDefaultMicroBatches}};
    }
    const double count = static_cast<double>(request.batch) / samples;
    if (count < 1 || count != std::floor(count) || (request.micro_batches > 0 && count != request.micro_batches)) {
      refuse("a batch of " + std::to_string(request.batch) + " samples is no whole number of micro-batches of " +
                 std::to_string(static_cast<std::int64_t>(samples)),
             "give --micro-batch as well, or --replicas whole, which chooses it");
    }
    return {size_of(static_cast<std::int64_t>(samples), static_cast<std::int64_t>(count))};
  }
  std::vector<StepSize> sizes = whole_sizes(request, pipeline::own_samples(profile), pipeline::most_samples(profile));
  if (sizes.empty()) {
    refuse("a batch of " + std::to_string(request.batch) + " samples splits into more than " +
               std::to_string(kMostMicroBatches) + " micro-batches however it is done",
           "give --micro-batch, or another --batch");
  }
  return sizes;
}

Cluster first_devices(const Cluster& cluster, int devices) {
  Cluster some = cluster;
  some.servers.clear();
  for (const machine::ServerGroup& servers : cluster.servers) {
    machine::ServerGroup whole = servers;
    whole.count = std::min(servers.count, devices / servers.devices);
    if (whole.count > 0) some.servers.push_back(whole);
    devices -= whole.count * servers.devices;
    if (whole.count < servers.count && devices > 0) {
      machine::ServerGroup part = servers;
      part.count = 1;
      part.devices = devices;
      some.servers.push_back(part);
      devices = 0;
    }
    if (devices == 0) break;
  }
  return some;
}

namespace {

using Time = StepPlanner::Time;

// Plans of every width that the profile knows, the best of them, and what none of them can be below. All widths get a
// share of the effort, the best the rest.
StepPlan plan_all_widths(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                         const std::vector<StepSize>& sizes, const PlanRequest& request, const StepRequest& step,
                         Time start) {
  std::vector<int> widths = {1};
  if (options.replicas != Replicas::kFractional) {
    for (const pipeline::WidthColumns& columns : profile.widths) widths.push_back(columns.width);
  }
  std::vector<std::unique_ptr<StepPlanner>> planners;
  std::optional<Error> refused;
  double least_ms = kInfinity;
  for (const int width : widths) {
    auto planner = std::make_unique<StepPlanner>(profile, cluster, options, request, step, width, least_ms, start);
    try {
      planner->look_at_all(sizes, widths.size() == 1);
    } catch (const Error& e) {
      // No split is one for replicas of this width; of another it may be.
      if (widths.size() == 1 || e.kind() != ErrorKind::kUsage) throw;
      if (!refused) refused.emplace(e);
      continue;
    }
    least_ms = std::min(least_ms, planner->best_look_ms());
    planners.push_back(std::move(planner));
  }
  if (planners.empty()) throw *refused;
  const auto best_planner = std::min_element(planners.begin(), planners.end(), [](const auto& a, const auto& b) {
    // Where no width has a plan, one that could be looked at says why.
    return std::make_pair(a->best_look_ms(), !a->looked()) < std::make_pair(b->best_look_ms(), !b->looked());
  });
  int closer = kMostCloser;
  StepPlan best = (*best_planner)->finish(&closer);
  if (widths.size() == 1) {
    best.result.planning_ms = (*best_planner)->gone_ms();
    return best;
  }
  for (const auto& planner : planners) {
    if (planner == *best_planner) {
      if (!best.result.plan) continue;
      best.widths.push_back(
          {best.size.width, best.result.plan->num_stages(), best.result.step_ms, best.result.simulated_step_ms});
      continue;
    }
    if (const std::optional<WidthAlternative> found = planner->best_look()) best.widths.push_back(*found);
    if (!best.result.plan || !request.lower_bound) continue;
    if (!planner->wants_effort()) {
      planner->tighten_simply(planner->considered(), best);
    } else if (planner->simulated_bound_wanted()) {
      planner->tighten(planner->considered(), best, &closer);
    }
  }
  best.result.planning_ms = (*best_planner)->gone_ms();
  return best;
}

// Planners that answer at once: width, split and number of stages by a coarse profile, the plan by the whole one. The
// bound is of all plans: it comes of the whole profile's work alone.
std::optional<StepPlan> plan_at_once(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                                     const std::vector<StepSize>& sizes, const PlanRequest& request,
                                     const StepRequest& step, Time start) {
  PlanRequest unbounded = request;
  unbounded.lower_bound = false;
  const Profile coarse = pipeline::coarse_profile(profile, pipeline::thinnest_cuts(profile, kLookPositions));
  StepPlan rough = plan_all_widths(coarse, cluster, options, sizes, unbounded, step, start);
  if (!rough.result.plan) return std::nullopt;
  PlanRequest as_many = unbounded;
  as_many.stages = rough.result.plan->num_stages();
  const StepPlanner planner(profile, cluster, options, as_many, step, rough.size.width, kInfinity, start);
  StepPlan plan = planner.of_split(rough.size, rough.considered.size());
  if (!plan.result.plan) return std::nullopt;
  plan.considered = std::move(rough.considered);
  plan.why_fewer = std::move(rough.why_fewer);
  plan.widths = std::move(rough.widths);
  for (WidthAlternative& width : plan.widths) {
    if (width.width != plan.size.width) continue;
    width = {width.width, plan.result.plan->num_stages(), plan.result.step_ms, plan.result.simulated_step_ms};
  }
  if (request.lower_bound) {
    plan.result.lower_bound_ms = std::min(
        plan.result.step_ms, pipeline::least_work_bound_ms(profile, cluster, options.replicas, plan.size.batch()));
    plan.result.lower_bound_method = "balance of work";
    plan.result.set_gap();
  }
  plan.result.planning_ms = planner.gone_ms();
  return plan;
}

StepPlan plan_widths(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                     const std::vector<StepSize>& sizes, const PlanRequest& request, const StepRequest& step) {
  const Time start = std::chrono::steady_clock::now();
  // Twice as many positions take less time themselves than to be put together.
  if (answers_at_once(request.planner) && profile.size() > 2 * kLookPositions) {
    if (auto plan = plan_at_once(profile, cluster, options, sizes, request, step, start)) return std::move(*plan);
  }
  return plan_all_widths(profile, cluster, options, sizes, request, step, start);
}

}  // namespace

StepPlan plan_step(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                   const StepRequest& step, const PlanRequest& request) {
  const std::vector<StepSize> sizes = step_sizes(step, profile, options.replicas);
  StepPlan plan = plan_widths(profile, cluster, options, sizes, request, step);
  if (!step.equal_replicas) return plan;
  PlanRequest free = request;
  free.lower_bound = false;
  if (free.effort.units != WorkLimits::kNoEnd) free.effort.units /= kLookShare;
  StepRequest unequal = step;
  unequal.equal_replicas = false;
  const StepPlan other = plan_widths(profile, cluster, options, sizes, free, unequal);
  // What equal stages can do, free ones can, too.
  if (other.result.plan && plan.result.plan) {
    plan.free_plan_ms = std::min(other.result.simulated_step_ms, plan.result.simulated_step_ms);
  }
  return plan;
}

}  // namespace automap::planners
