#include "infer/step_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "common/base/error.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"

namespace automap::infer {
namespace {

using machine::Cluster;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::Replicas;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A look at every split takes this share of the effort in all.
constexpr int kLookShare = 4;
constexpr std::int64_t kMostLoneMicroBatches = 4096;
// For the bounds of one split.
constexpr std::int64_t kBoundUnits = 100'000'000;

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
  return {static_cast<double>(samples), static_cast<int>(micro_batches)};
}

// B, mb and M are given or follow from one another.
std::vector<StepSize> whole_sizes(const StepRequest& r, std::int64_t own) {
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (r.batch == 0) {
    if (r.micro_batch > 0 || r.micro_batches > 0) {
      return {size_of(r.micro_batch > 0 ? r.micro_batch : own,
                      r.micro_batches > 0 ? r.micro_batches : kDefaultMicroBatches)};
    }
    StepRequest asked = r;
    asked.batch = own * kDefaultMicroBatches;
    return whole_sizes(asked, own);
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
  for (const std::int64_t samples : of_batch) {
    // A batch with few divisors may have to go sample by sample.
    const bool lone = samples == 1 && of_batch.size() <= 2 && r.batch <= kMostLoneMicroBatches;
    if (lone || r.batch / samples <= kMostMicroBatches) sizes.push_back(size_of(samples, r.batch / samples));
  }
  const double wanted = std::log(static_cast<double>(own));
  std::stable_sort(sizes.begin(), sizes.end(), [&](const StepSize& a, const StepSize& b) {
    return std::fabs(std::log(a.samples) - wanted) < std::fabs(std::log(b.samples) - wanted);
  });
  return sizes;
}

// Plans split after split.
class StepPlanner {
 public:
  StepPlanner(const Profile& profile, const Cluster& cluster, const ProblemOptions& options, const PlanRequest& request,
              bool equal_replicas)
      : profile_(profile), cluster_(cluster), options_(options), request_(request), equal_replicas_(equal_replicas) {}

  StepPlan run(std::vector<StepSize> sizes) {
    leave_some_free(sizes);
    if (equal_replicas_) make_equal(sizes);
    if (sizes.size() == 1) {
      StepPlan plan = at_full_effort(sizes.front(), problem_of(sizes.front()));
      plan.considered = sizes;
      if (request_.lower_bound && plan.result.plan && simulated_bound_wanted()) bound_all(plan);
      return plan;
    }
    look(sizes);
    // Where nothing fits: the split that lacks least says why.
    const auto key = [&](const Look& look) {
      const double lacks = look.result.least_memory_bytes;
      return std::make_tuple(length(look.result), lacks > 0 ? lacks : kInfinity, !look.result.devices_divide);
    };
    const auto best =
        std::min_element(looks_.begin(), looks_.end(), [&](const Look& a, const Look& b) { return key(a) < key(b); });
    if (best == looks_.end()) refuse_all(sizes);
    StepPlan plan;
    if (best->result.plan && !wants_effort()) {
      // The quick planners do no more with more effort.
      plan.size = best->size;
      plan.problem = std::move(best->problem);
      plan.result = std::move(best->result);
      plan.considered = sizes;
      if (request_.lower_bound) bound_simply(plan);
      return plan;
    }
    plan = at_full_effort(best->size, std::move(best->problem));
    if (length(best->result) < length(plan.result)) {
      // The look had a luckier hand: its plan, with the bounds of the longer search.
      best->result.lower_bound_ms = plan.result.lower_bound_ms;
      best->result.lower_bound_method = plan.result.lower_bound_method;
      plan.result = std::move(best->result);
    }
    plan.considered = sizes;
    collect_alternatives(plan.result);
    if (request_.lower_bound && plan.result.plan && simulated_bound_wanted()) bound_all(plan);
    return plan;
  }

 private:
  // Where no stage can take all devices: the most that one can, too; and the first types of devices without the others.
  void leave_some_free(std::vector<StepSize>& sizes) const {
    const int devices = cluster_.num_devices();
    if (options_.replicas == Replicas::kFractional) return;
    std::vector<StepSize> fewer;
    int before = 0;
    for (std::size_t g = 0; g + 1 < cluster_.servers.size(); ++g) {
      before += cluster_.servers[g].count * cluster_.servers[g].devices;
      if (cluster_.servers[g].device == cluster_.servers[g + 1].device) continue;
      for (const StepSize& size : sizes) {
        fewer.push_back(size);
        fewer.back().devices = before;
      }
    }
    for (const StepSize& size : sizes) {
      const auto samples = static_cast<std::int64_t>(size.samples);
      if (samples % devices == 0 || samples < devices / 2) continue;
      int most = devices;
      while (samples % most != 0) --most;
      fewer.push_back(size);
      fewer.back().devices = most;
    }
    sizes.insert(sizes.end(), fewer.begin(), fewer.end());
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

  bool wants_effort() const {
    return request_.planner != PlannerKind::kPolicy && request_.planner != PlannerKind::kRollouts;
  }

  // The bound that sums give, over every split.
  void bound_simply(StepPlan& plan) const {
    PlanResult& result = plan.result;
    result.lower_bound_ms = result.step_ms;
    for (const StepSize& size : plan.considered) {
      if (const auto problem = possible_problem(profile_, size)) {
        result.lower_bound_ms = std::min(result.lower_bound_ms, simple_bound_ms(*problem, size));
      }
    }
    result.lower_bound_method = "balance of work";
    result.gap = result.lower_bound_ms > 0 ? result.step_ms / result.lower_bound_ms - 1 : 0;
  }

  // The quick planners answer at once, with the bound that a moment gives.
  bool simulated_bound_wanted() const {
    return request_.planner == PlannerKind::kAuto || request_.planner == PlannerKind::kExact;
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

  StepPlan at_full_effort(const StepSize& size, std::unique_ptr<Problem> problem) const {
    StepPlan plan;
    plan.size = size;
    plan.problem = std::move(problem);
    plan.result = make_plan(*plan.problem, request_for(size, request_));
    return plan;
  }

  // Every split with a share of the effort, as far as its simplest bound leaves hope.
  void look(const std::vector<StepSize>& sizes) {
    PlanRequest request = request_;
    request.lower_bound = false;
    request.all_planners = false;
    const auto share = static_cast<std::int64_t>(kLookShare * sizes.size());
    if (request.effort.units != WorkLimits::kNoEnd) request.effort.units /= share;
    for (int* evaluations : {&request.effort.local_search_evaluations, &request.effort.polish_evaluations,
                             &request.effort.explore_evaluations}) {
      *evaluations = std::max<int>(1, static_cast<int>(*evaluations / static_cast<int>(share)));
    }
    // The most promising first, so that most of the others need no look.
    struct Split {
      double bound_ms = 0;
      StepSize size;
      std::unique_ptr<Problem> problem;
    };
    std::vector<Split> splits;
    for (const StepSize& size : sizes) {
      if (size.devices > 0 && request_.stages > size.devices) continue;
      std::unique_ptr<Problem> problem = possible_problem(profile_, size);
      if (!problem) continue;
      const double bound_ms = simple_bound_ms(*problem, size);
      splits.push_back({bound_ms, size, std::move(problem)});
    }
    std::stable_sort(splits.begin(), splits.end(),
                     [](const Split& a, const Split& b) { return a.bound_ms < b.bound_ms; });
    double best_ms = kInfinity;
    for (Split& split : splits) {
      if (split.bound_ms > best_ms) break;
      PlanResult result = make_plan(*split.problem, request_for(split.size, request));
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
  pipeline::LowerBound bound_of(const Problem& problem, const StepSize& size, double most_ms, int first = 1) const {
    const PlanRequest request = request_for(size, request_);
    Work work(WorkLimits::of_units(std::min(kBoundUnits, request.effort.units)));
    return pipeline::lower_bound_all_cuts(problem, request.schedules, std::max(first, request.stages),
                                          most_stages(problem, request), most_ms, work);
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
  double simulated_bound_ms(const Problem& problem, const StepSize& size, double most_ms) const {
    const PlanRequest request = request_for(size, request_);
    if (request.stages <= 1) most_ms = std::min(most_ms, one_stage_ms(problem, request));
    if (most_stages(problem, request) < 2) return most_ms;
    ProblemOptions options = options_;
    options.behind_backward = false;
    const std::unique_ptr<Problem> path = possible_problem(profile_, size, options);
    return simple_bound_ms(*path, size, 2) < most_ms ? bound_of(*path, size, most_ms, 2).ms : most_ms;
  }

  // The bounds over every split: what the others cannot be below, either.
  void bound_all(StepPlan& plan) const {
    PlanResult& result = plan.result;
    double simulated = result.simulated_step_ms;
    for (const StepSize& size : plan.considered) {
      if (size.devices > 0 && request_.stages > size.devices) continue;
      const std::unique_ptr<Problem> problem = possible_problem(profile_, size);
      if (!problem) continue;
      if (!(size == plan.size) && simple_bound_ms(*problem, size) < result.lower_bound_ms) {
        const pipeline::LowerBound bound = bound_of(*problem, size, result.lower_bound_ms);
        if (bound.ms < result.lower_bound_ms) {
          result.lower_bound_ms = bound.ms;
          result.lower_bound_method = bound.method;
        }
      }
      simulated = simulated_bound_ms(*problem, size, simulated);
    }
    plan.simulated_bound_ms = simulated;
    result.gap = result.lower_bound_ms > 0 ? result.step_ms / result.lower_bound_ms - 1 : 0;
    if (result.gap > kProvenGap) result.proven_ms = 0;
  }

  [[noreturn]] void refuse_all(const std::vector<StepSize>& sizes) const {
    problem_of(sizes.front());  // says why
    refuse("no split of the batch can be planned", "give --micro-batch, or a batch with more divisors");
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const ProblemOptions& options_;
  const PlanRequest& request_;
  bool equal_replicas_;
  std::vector<Look> looks_;
};

}  // namespace

std::vector<StepSize> step_sizes(const StepRequest& request, const Profile& profile, Replicas replicas) {
  const double own = profile.micro_batch_size > 0 ? profile.micro_batch_size : 1;
  if (replicas == Replicas::kFractional) {
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
    return {{samples, static_cast<int>(count)}};
  }
  std::vector<StepSize> sizes = whole_sizes(request, std::max<std::int64_t>(1, std::llround(own)));
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

StepPlan plan_step(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                   const StepRequest& step, const PlanRequest& request) {
  const std::vector<StepSize> sizes = step_sizes(step, profile, options.replicas);
  StepPlan plan = StepPlanner(profile, cluster, options, request, step.equal_replicas).run(sizes);
  if (!step.equal_replicas) return plan;
  PlanRequest free = request;
  free.lower_bound = false;
  if (free.effort.units != WorkLimits::kNoEnd) free.effort.units /= kLookShare;
  const StepPlan other = StepPlanner(profile, cluster, options, free, false).run(sizes);
  // What equal stages can do, free ones can, too.
  if (other.result.plan && plan.result.plan) {
    plan.free_plan_ms = std::min(other.result.simulated_step_ms, plan.result.simulated_step_ms);
  }
  return plan;
}

}  // namespace automap::infer
