// Plans one step with replicas that are all of one width: every split of the batch and every number of devices is
// planned with a share of the effort, the best of them with the rest. step_choice.h asks it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/numbers.h"
#include "common/base/work.h"
#include "plan/planners/device_choices.h"
#include "plan/planners/question.h"
#include "plan/planners/step_bounds.h"
#include "plan/planners/step_plan.h"

namespace automap::planners {

// A look at every split takes one part of so many of the effort, a glance before it an eighth of that.
constexpr int kLookShare = 4;

class WidthPlanner {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Plans with replicas of `width` devices. Plans that are no shorter than hopeless_ms need not be found. The question
  // must outlive it.
  WidthPlanner(const Question& question, int width, double hopeless_ms, Time start);

  // Plans every split with a share of the effort; a single split that is asked for `alone` waits for all of it. Then
  // plans one after the other of `further`, as long as the split into the most micro-batches is the best, or there is
  // no plan.
  void look_at_all(std::vector<StepSize> sizes, const std::vector<StepSize>& further, bool alone);

  const std::vector<StepSize>& considered() const { return considered_; }
  // True if the splits considered cover all choices of devices.
  bool considered_all_devices() const { return all_devices_; }

  // The shortest length of the plans found so far; infinite: none.
  double best_look_ms() const;
  bool looked() const { return !looks_.empty(); }
  // The looks' best plan.
  std::optional<WidthAlternative> best_look() const;

  // The best of the splits with the rest of the effort, and the bound of its own.
  StepPlan finish();

  // A plan of one split, with all of the effort.
  StepPlan of_split(const StepSize& size) const;

  // Since the planning of all widths began.
  double gone_ms() const;

 private:
  bool wants_effort() const { return !answers_at_once(request_.planner); }
  // Expands splits by numbers of devices and of equal groups, for replicas of this width.
  std::vector<StepSize> spread(std::vector<StepSize> sizes) const;
  void look_further(const std::vector<StepSize>& further);
  int micro_batches_of_best() const;  // 0: there is no plan yet
  bool best_has_the_most_micro_batches() const;
  // Fewer devices than there are: the first types of devices without the others; where no stage can take all, the most
  // that one can, and a few more; and where no split shares half of the devices evenly, what stages of one device each
  // can take, halves of the servers and of the first one.
  void leave_some_free(std::vector<StepSize>& sizes) const;

  // Devices of half of the servers, of a quarter, ..., of half of the first server, ...
  std::vector<int> halves() const;

  // An upper bound on the devices that can share the samples of a split.
  std::int64_t most_busy(const StepSize& size) const;

  // Plans every split on half of the devices, on a quarter, ..., where a bound by compute alone is below the best:
  // links may cost more than the other devices save.
  void look_at_halves(double best_ms);

  // Plans every split on all choices of devices (device_choices.h) where these are few; else, where servers differ, in
  // other orders of them, and then on choices beside the best one as long as one is shorter. Skips those whose bound by
  // compute alone is not below the best.
  void look_at_choices();
  // A split on a choice, as the splits looked at are written: in groups where stages are to be equal, or lone.
  std::vector<StepSize> on_choice(const StepSize& split, const DeviceChoice& choice) const;
  // True unless the request asks for even servers and the split stands on others.
  bool stands_evenly(const StepSize& size) const;
  // Leaves out what does not, and adds every split on the choices that do.
  void make_even(const std::vector<StepSize>& splits, std::vector<StepSize>& sizes) const;
  // Plans those of the choices' splits that are promising and were not considered yet. Returns true if one is the best.
  bool look_at(const std::vector<DeviceChoice>& choices, const std::vector<StepSize>& splits);
  // The splits of the batch that were considered, whatever their devices.
  std::vector<StepSize> splits() const;

  // Called when no split has a plan. It tries the splits that do not fail for memory on ever fewer devices until one
  // has a plan, and adds that one to the splits.
  void look_at_fewer(std::vector<StepSize>& sizes);

  // The reason why devices are left free; empty: none are.
  std::string why_fewer(const StepSize& chosen) const;

  // Replaces every split by those with every number of devices per stage that divides the devices and the samples.
  void make_equal(std::vector<StepSize>& sizes) const;
  std::vector<StepSize> in_equal_groups(const StepSize& size) const;
  // True if the request allows so many stages, and the profile has as many positions.
  bool may_have(int stages) const;

  // Puts every split on as many devices as there may be stages.
  void make_lone(std::vector<StepSize>& sizes) const;

  // Adds the planners' results on the other splits, where they are better than those of `result`, or it has none.
  void collect_alternatives(PlanResult& result) const;

  struct Look {
    StepSize size;
    std::unique_ptr<pipeline::Problem> problem;
    PlanResult result;
  };

  std::unique_ptr<pipeline::Problem> problem_of(const StepSize& size) const { return make_problem(size, options_); }

  // Null where the profile's times do not reach so many samples.
  std::unique_ptr<pipeline::Problem> possible_problem(const StepSize& size) const;

  std::unique_ptr<pipeline::Problem> make_problem(const StepSize& size, pipeline::ProblemOptions options) const;

  // Calls the planner; the result's times count from the start of all planning.
  PlanResult planned(const pipeline::Problem& problem, const PlanRequest& request) const;

  StepPlan at_full_effort(const StepSize& size, std::unique_ptr<pipeline::Problem> problem) const;

  void tell(const pipeline::Problem& problem, const PlanResult& found) const;

  // The time limit is for all splits together.
  bool out_of_time();
  PlanRequest in_time(PlanRequest request) const;
  // The request with one of `shares` equal shares of the effort.
  static PlanRequest with_share(PlanRequest request, std::int64_t shares);

  struct Split {
    double bound_ms = 0;
    StepSize size;
    std::unique_ptr<pipeline::Problem> problem;
    std::optional<PlanResult> result;
  };
  // The splits that are possible, ordered by their simple lower bounds.
  std::vector<Split> bounded(const std::vector<StepSize>& sizes);
  // Plans of the splits, which stand in the order of hope_ms, as long as that is below the best so far. The better of
  // two results of a split stays.
  void ask(std::vector<Split>& splits, const PlanRequest& share, double* best_ms,
           const std::function<double(const Split&)>& hope_ms);
  // Plans every split with a share of the effort, unless its simplest bound or a glance rules it out.
  void look(const std::vector<StepSize>& sizes, std::size_t among);

  [[noreturn]] void refuse_all(const std::vector<StepSize>& sizes) const;

  const pipeline::CheckedProfile profile_;
  const machine::Cluster& whole_;   // of single devices
  const machine::Cluster cluster_;  // of replicas
  const pipeline::ProblemOptions options_;
  const PlanRequest& request_;
  bool equal_replicas_, lone_replicas_, even_servers_;
  const double hopeless_ms_;
  const WorkBound work_bound_;
  const Time start_;  // of the planning of all widths
  Work clock_;
  bool cut_by_time_ = false, all_devices_ = false;
  std::vector<StepSize> considered_;
  std::vector<Look> looks_;
};

}  // namespace automap::planners
