#include "plan/planners/even_search.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/placed_work.h"

namespace automap::planners {
namespace {

using pipeline::DeviceGroup;
using pipeline::Plan;
using pipeline::Problem;

class EvenSearch {
 public:
  EvenSearch(const Problem& problem, Plan shape, int most_moves)
      : problem_(problem), best_(std::move(shape)), most_moves_(most_moves) {}

  // Parts of about equal compute, then cuts moved as long as the step gets shorter. Infinite: it cannot run.
  double run(int stages, double hopeless_ms) {
    if (bound_ms(stages) >= hopeless_ms || !balance_parts(problem_, stages, &best_)) return kInfinity;
    order_ = *order_without_times(best_, problem_.micro_batches());  // the same wherever the cuts are
    best_ms_ = judged(best_);
    int moves = 0;
    for (int reach = std::max(1, problem_.num_instructions() / best_.num_parts() / 4); reach >= 1; reach /= 2) {
      for (std::size_t cut = 0; cut < best_.cuts.size(); ++cut) {
        for (const int by : {-reach, reach}) {
          while (++moves <= most_moves_ && try_move(cut, by)) {
          }
        }
      }
    }
    return best_ms_;
  }
  const Plan& plan() const { return best_; }

 private:
  // All groups compute all of the model, in parts.
  double bound_ms(int stages) const {
    double least = kInfinity;
    const int size = problem_.num_devices() / stages;
    for (int g = 0; g < stages; ++g) {
      const DeviceGroup& group = problem_.group(g * size, (g + 1) * size);
      if (!group.valid) return kInfinity;
      least = std::min(least, problem_.compute_ms(0, problem_.num_instructions(), group, best_.variant(g + 1)));
    }
    return problem_.micro_batches() * least / stages;
  }

  double judged(const Plan& plan) const {
    const pipeline::PlacedPlan placed = place(problem_, plan);
    return feasible_step_ms(placed, work_times(placed), order_);
  }

  bool try_move(std::size_t cut, int by) {
    Plan moved = best_;
    moved.cuts[cut] += by;
    const int before = cut == 0 ? 0 : moved.cuts[cut - 1];
    const int behind = cut + 1 == moved.cuts.size() ? problem_.num_instructions() : moved.cuts[cut + 1];
    if (moved.cuts[cut] <= before || moved.cuts[cut] >= behind) return false;
    const double ms = judged(moved);
    if (!(ms < best_ms_)) return false;
    best_ms_ = ms;
    best_ = std::move(moved);
    return true;
  }

  const Problem& problem_;
  Plan best_;
  pipeline::WorkOrder order_;
  const int most_moves_;
  double best_ms_ = kInfinity;
};

}  // namespace

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

// The best of one split; null: none is shorter than hopeless_ms.
std::shared_ptr<EvenChoice> best_even_of(const Question& question, const StepSize& size, const EvenShape& shape,
                                         double hopeless_ms) {
  const PlanRequest& request = question.request;
  std::unique_ptr<Problem> problem = possible_problem(question, size, question.options);
  if (!problem) return nullptr;
  std::shared_ptr<EvenChoice> found;
  const int most = std::min(request.max_stages, problem->num_devices());
  const pipeline::ScheduleShape parts = *pipeline::shape_of(shape.schedule);
  for (int groups = std::max(shape.least_groups, request.stages);
       groups <= (request.stages > 0 ? request.stages : most); ++groups) {
    if (problem->num_devices() % groups != 0) continue;
    if (question.step.lone_replicas && groups != problem->num_devices()) continue;
    if (!pipeline::micro_batches_fault(shape.schedule, groups, size.micro_batches).empty()) continue;
    const DeviceGroup& first = problem->group(0, problem->num_devices() / groups);
    if (!first.valid) continue;
    for (const int chunks : shape.chunks) {
      for (const int variant : problem->useful_variants(first)) {
        if (parts.split_backward && !splits_backward(problem->variant(variant))) continue;
        Plan plan;
        plan.schedule = shape.schedule;
        plan.chunks = chunks;
        plan.placement = parts.placement;
        plan.split_backward = parts.split_backward;
        plan.variants.assign(at(groups), static_cast<std::uint8_t>(variant));
        EvenSearch search(*problem, plan, request.effort.even_moves);
        const double ms = search.run(groups, hopeless_ms);
        if (!(ms < hopeless_ms)) continue;
        hopeless_ms = ms;
        found = std::make_shared<EvenChoice>();
        found->plan = search.plan();
        found->simulated_step_ms = ms;
      }
    }
  }
  if (found) found->problem = std::move(problem);
  return found;
}

}  // namespace

std::optional<EvenChoice> best_even(const Question& question, int width, const EvenShape& shape) {
  std::vector<StepSize> sizes = step_sizes(question.step, question.profile(), question.options.replicas);
  for (StepSize& size : sizes) size.width = width;
  using Best = std::shared_ptr<EvenChoice>;
  const Best best = fold_in_order(sizes.size(), Best(), [&](std::size_t i, Best so_far) {
    if (question.request.stopped()) return so_far;
    Best found = best_even_of(question, sizes[i], shape, so_far ? so_far->simulated_step_ms : kInfinity);
    return found ? found : so_far;
  });
  if (!best) return std::nullopt;
  return std::move(*best);
}

}  // namespace automap::planners
