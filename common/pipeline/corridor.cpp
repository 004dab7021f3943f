// Corridor refinement: the exact program within a few places of every cut of a plan.
#include <algorithm>

#include "common/pipeline/exact.h"
#include "common/pipeline/exact_program.h"

namespace automap::pipeline {
namespace internal {
namespace {

constexpr double kNoStep = 1e-12;  // a step of rounding size is no step
// A corridor with more labels than this is tried again half as wide.
constexpr std::int64_t kMostLabels = 60000;
// Plans may be refused for a reason that no stage alone decides (stages that idle beside the others); then more are
// kept.
constexpr int kKept = 8;

// Cuts that may be used, ascending: a list, or every one of 1..count.
class Pivots {
 public:
  Pivots(const std::vector<int>* list, int count) : list_(list), count_(count) {}
  int count() const { return count_; }
  int cut(int place) const { return list_ == nullptr ? place + 1 : (*list_)[static_cast<std::size_t>(place)]; }
  int place(int cut) const {
    if (list_ == nullptr) return cut - 1;
    return static_cast<int>(std::lower_bound(list_->begin(), list_->end(), cut) - list_->begin());
  }

 private:
  const std::vector<int>* list_;
  int count_;
};

Plan refine(const Problem& problem, Plan plan, const Pivots& pivots, int pivot_radius, int device_radius, Work& work) {
  const int stages = plan.num_stages();
  if (stages == 1) return plan;
  double value = value_ms(problem, plan);
  while (!work.over()) {
    ProgramInput input;
    input.problem = &problem;
    input.schedule = plan.schedule;
    input.needs_variable = problem.stages_need_variables(stages);
    input.min_stages = input.max_stages = stages;
    input.limit_ms = {value * (1 - kNoStep)};
    input.most_labels = kMostLabels;
    if (!problem.options().allow_idle_stages) input.keep = kKept;
    std::vector<int> cuts;  // all that any boundary may use
    for (int cut : plan.cuts) {
      const int place = pivots.place(cut);
      const int first = std::max(0, place - pivot_radius), last = std::min(pivots.count() - 1, place + pivot_radius);
      for (int i = first; i <= last; ++i) {
        if (cuts.empty() || pivots.cut(i) > cuts.back()) cuts.push_back(pivots.cut(i));
      }
    }
    const Points points = exact_points(problem, cuts);
    input.points = &points;
    for (std::size_t s = 0; s < plan.cuts.size(); ++s) {
      const int place = pivots.place(plan.cuts[s]);
      const int low = pivots.cut(std::max(0, place - pivot_radius));
      const int high = pivots.cut(std::min(pivots.count() - 1, place + pivot_radius));
      input.boundary_points.emplace_back();
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        if (cuts[i] >= low && cuts[i] <= high) input.boundary_points.back().push_back(static_cast<int>(i) + 1);
      }
      input.boundary_device_cuts.emplace_back();
      const int d = plan.device_cuts[s];
      for (int i = std::max(1, d - device_radius); i <= std::min(problem.num_devices() - 1, d + device_radius); ++i) {
        input.boundary_device_cuts.back().push_back(i);
      }
    }
    const ProgramOutput output = run_program(input, work);
    if (output.gave_up && pivot_radius > 1) {
      pivot_radius /= 2;
      device_radius = 1;
      continue;
    }
    bool moved = false;
    for (const Completion& completion : output.by_stages.front()) {
      Plan better;
      better.schedule = plan.schedule;
      for (int point : completion.points) better.cuts.push_back(cuts[static_cast<std::size_t>(point - 1)]);
      better.device_cuts = completion.device_cuts;
      better.variants = completion.variants;
      const double better_value = value_ms(problem, better);
      if (!(better_value < value * (1 - kNoStep))) break;
      if (!feasible(problem, better)) continue;
      plan = std::move(better);
      value = better_value;
      moved = true;
      break;
    }
    if (!moved) return plan;
  }
  return plan;
}

}  // namespace

Plan refine_on_pivots(const Problem& problem, Plan plan, const std::vector<int>& pivots, int pivot_radius,
                      int device_radius, Work& work) {
  return refine(problem, std::move(plan), Pivots(&pivots, static_cast<int>(pivots.size())), pivot_radius, device_radius,
                work);
}

}  // namespace internal

Plan refine_in_corridor(const Problem& problem, Plan plan, int pivot_radius, int device_radius, Work* work) {
  if (!feasible(problem, plan)) return plan;
  Work without_end;
  return internal::refine(problem, std::move(plan), internal::Pivots(nullptr, problem.num_instructions() - 1),
                          pivot_radius, device_radius, work == nullptr ? without_end : *work);
}

}  // namespace automap::pipeline
