#include "plan/planners/even_search.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/placed_work.h"
#include "plan/planners/step_bounds.h"

namespace automap::planners {
namespace {

using pipeline::DeviceGroup;
using pipeline::Plan;
using pipeline::Problem;

double judged(const Problem& problem, const Plan& plan, const pipeline::WorkOrder& order) {
  const pipeline::PlacedPlan placed = place(problem, plan);
  return feasible_step_ms(placed, work_times(placed), order);
}

// All groups compute all of the model, in parts.
double bound_ms(const Problem& problem, const Plan& plan, int stages) {
  double least = kInfinity;
  const int size = problem.num_devices() / stages;
  for (int g = 0; g < stages; ++g) {
    const DeviceGroup& group = problem.group(g * size, (g + 1) * size);
    if (!group.valid) return kInfinity;
    least = std::min(least, problem.compute_ms(0, problem.num_instructions(), group, plan.variant(g + 1)));
  }
  return problem.micro_batches() * least / stages;
}

// Units of work, of a simulation.
constexpr std::int64_t kPerItem = 100;

// Cuts moved gain no more than this where they do not even out a plan that is no good.
constexpr double kMovesGain = 0.2;

// Parts of about equal compute, then cuts moved. Infinite: it cannot run, or is no shorter than hopeless_ms.
double search_cuts(const Problem& problem, int stages, double hopeless_ms, int most_moves, Work& work, Plan* plan) {
  if (bound_ms(problem, *plan, stages) >= hopeless_ms || !balance_parts(problem, stages, plan)) return kInfinity;
  // The same wherever the cuts are.
  const pipeline::WorkOrder order = *order_without_times(*plan, problem.micro_batches());
  double ms = judged(problem, *plan, order);
  if (ms < kInfinity && ms * (1 - kMovesGain) >= hopeless_ms) return kInfinity;
  move_cuts(problem, order, {}, most_moves, work, plan, &ms);
  return ms < hopeless_ms ? ms : kInfinity;
}

}  // namespace

void move_cuts(const Problem& problem, const pipeline::WorkOrder& order, const std::vector<int>& ends, int most_moves,
               Work& work, Plan* plan, double* ms) {
  const int places = ends.empty() ? problem.num_instructions() - 1 : static_cast<int>(ends.size());
  const auto place_of = [&](int cut) {  // from 1
    if (ends.empty()) return cut;
    return static_cast<int>(std::lower_bound(ends.begin(), ends.end(), cut) - ends.begin()) + 1;
  };
  const auto try_move = [&](std::size_t cut, int by) {
    const int to = place_of(plan->cuts[cut]) + by;
    const int before = cut == 0 ? 0 : place_of(plan->cuts[cut - 1]);
    const int behind = cut + 1 == plan->cuts.size() ? places + 1 : place_of(plan->cuts[cut + 1]);
    if (to <= before || to >= behind) return false;
    Plan moved = *plan;
    moved.cuts[cut] = ends.empty() ? to : ends[at(to - 1)];
    const double moved_ms = judged(problem, moved, order);
    work.spend(kPerItem * plan->num_parts() * problem.micro_batches());
    if (!(moved_ms < *ms)) return false;
    *ms = moved_ms;
    *plan = std::move(moved);
    return true;
  };
  int moves = 0;
  for (int reach = std::max(1, places / plan->num_parts() / 4); reach >= 1; reach /= 2) {
    for (std::size_t cut = 0; cut < plan->cuts.size(); ++cut) {
      for (const int by : {-reach, reach}) {
        while (++moves <= most_moves && !work.over() && try_move(cut, by)) {
        }
      }
    }
  }
}

bool balance_parts(const Problem& problem, int stages, Plan* plan) {
  const int n = problem.num_instructions(), parts = stages * plan->chunks, size = problem.num_devices() / stages;
  if (parts > n || problem.num_devices() % stages != 0) return false;
  plan->device_cuts.clear();
  for (int s = 1; s < stages; ++s) plan->device_cuts.push_back(s * size);
  const std::vector<int> group_of = pipeline::group_of_parts(plan->placement, stages, plan->chunks);
  const auto compute_ms = [&](int p0, int p1, int g) {
    return problem.compute_ms(p0, p1, problem.group(g * size, (g + 1) * size), plan->variant(g + 1));
  };
  double low = 0, high = 0;
  for (int g = 0; g < stages; ++g) {
    if (!problem.group(g * size, (g + 1) * size).valid) return false;
    high = std::max(high, compute_ms(0, n, g));
  }
  // The least T of which every part takes at most that, filled up part by part.
  const auto fill = [&](double limit, std::vector<int>* cuts) {
    int p = 0;
    for (int part = 0; part < parts; ++part) {
      const int most = n - (parts - part - 1);  // leaves a position for each part behind
      int reached = p + 1, beyond = most + 1;
      while (beyond - reached > 1) {
        const int middle = reached + (beyond - reached) / 2;
        (compute_ms(p, middle, group_of[at(part)]) <= limit ? reached : beyond) = middle;
      }
      if (compute_ms(p, reached, group_of[at(part)]) > limit) return false;
      p = reached;
      if (cuts != nullptr && part + 1 < parts) cuts->push_back(p);
    }
    return p == n;
  };
  constexpr int kMostHalvings = 64;  // more leave nothing of any interval at this accuracy
  for (int halvings = 0; halvings < kMostHalvings && high - low > 1e-6 * high; ++halvings) {
    const double middle = low + (high - low) / 2;
    (fill(middle, nullptr) ? high : low) = middle;
  }
  plan->cuts.clear();
  return fill(high, &plan->cuts);
}

namespace {

bool has_level(const Framework& framework, int stages, int width, int zero) {
  const std::vector<int>& levels = zero_levels(framework, stages, width);
  return !limits_plans(framework) || std::find(levels.begin(), levels.end(), zero) != levels.end();
}

// The best of one split; null: none is shorter than hopeless_ms.
std::shared_ptr<EvenChoice> best_even_of(const Question& question, const StepSize& size, const EvenShape& shape,
                                         double hopeless_ms, Work& work) {
  const PlanRequest& request = question.request;
  const std::shared_ptr<const Problem> problem = possible_problem(question, size, question.options);
  if (!problem) return nullptr;
  std::shared_ptr<EvenChoice> found;
  const int most = std::min(request.max_stages, problem->num_devices());
  const pipeline::ScheduleShape parts = *pipeline::shape_of(shape.schedule);
  for (int groups = std::max(shape.least_groups, request.stages);
       groups <= (request.stages > 0 ? request.stages : most); ++groups) {
    if (problem->num_devices() % groups != 0) continue;
    if (question.step.lone_replicas && groups != problem->num_devices()) continue;
    if (!pipeline::micro_batches_fault(shape.schedule, groups, size.micro_batches).empty()) continue;
    if (!micro_batches_inexpressible(*question.framework, groups, size.micro_batches).empty()) continue;
    const DeviceGroup& first = problem->group(0, problem->num_devices() / groups);
    if (!first.valid) continue;
    // A level that another makes superfluous may be the one that the framework has.
    std::vector<int> variants = problem->useful_variants(first);
    if (limits_plans(*question.framework)) {
      variants.resize(at(problem->num_variants()));
      std::iota(variants.begin(), variants.end(), 0);
    }
    for (const int chunks : shape.chunks) {
      for (const int variant : variants) {
        if (work.over()) return found;
        if (parts.split_backward && !splits_backward(problem->variant(variant))) continue;
        if (first.size > 1 && !has_level(*question.framework, groups, size.width, problem->variant(variant).zero))
          continue;
        Plan plan;
        plan.schedule = shape.schedule;
        plan.chunks = chunks;
        plan.placement = parts.placement;
        plan.split_backward = parts.split_backward;
        plan.variants.assign(at(groups), static_cast<std::uint8_t>(variant));
        const double ms = search_cuts(*problem, groups, hopeless_ms, request.effort.even_moves, work, &plan);
        if (!(ms < hopeless_ms)) continue;
        hopeless_ms = ms;
        found = std::make_shared<EvenChoice>(EvenChoice{size, problem, std::move(plan), ms});
      }
    }
  }
  return found;
}

}  // namespace

std::vector<StepSize> even_sizes(const Question& question) {
  std::vector<std::pair<double, StepSize>> by_work;
  for (const int width : pipeline::known_widths(question.profile())) {
    const WorkBound work(question, width);
    for (StepSize size : step_sizes(question.step, question.profile(), question.options.replicas)) {
      size.width = width;
      by_work.emplace_back(work.ms(size), std::move(size));
    }
  }
  // The most promising first, so that most of the others end at their bounds.
  std::stable_sort(by_work.begin(), by_work.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<StepSize> sizes;
  for (auto& [ms, size] : by_work) sizes.push_back(std::move(size));
  return sizes;
}

std::vector<EvenChoice> best_even(const Question& question, const std::vector<StepSize>& sizes,
                                  const EvenShape& shape) {
  std::vector<std::shared_ptr<EvenChoice>> found(sizes.size());
  const Deadline deadline(question.request.time_limits());
  const double best_ms = fold_in_order(sizes.size(), kInfinity, [&](std::size_t i, double best_so_far) {
    found[i] = nullptr;
    if (deadline.passed()) return best_so_far;
    Work work(deadline.limits(WorkLimits::kNoEnd));
    found[i] = best_even_of(question, sizes[i], shape, best_so_far * (1 + kNearEven), work);
    return found[i] ? std::min(best_so_far, found[i]->simulated_step_ms) : best_so_far;
  });
  std::vector<EvenChoice> near;
  for (const std::shared_ptr<EvenChoice>& one : found) {
    if (one && one->simulated_step_ms < best_ms * (1 + kNearEven)) near.push_back(std::move(*one));
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const EvenChoice& a, const EvenChoice& b) { return a.simulated_step_ms < b.simulated_step_ms; });
  return near;
}

}  // namespace automap::planners
