// Lower bounds on the plans of a step, over every split of its batch that was considered: by sums, by the plans of one
// stage, and by the relaxations of common/pipeline/exact.h.
#pragma once

#include "common/base/numbers.h"
#include "common/pipeline/problem.h"
#include "plan/planners/bounds.h"
#include "plan/planners/least_work.h"
#include "plan/planners/question.h"

namespace automap::planners {

// The request for one split's problem: with equal groups the number of stages follows.
PlanRequest request_for(const pipeline::Problem& problem, PlanRequest request);

// The most stages that a plan of the problem may have.
int most_stages(const pipeline::Problem& problem, const PlanRequest& request);

// Lower bounds from simple sums: on all plans of the problem, and on those of several stages; infinite: no such plan.
struct SimpleBound {
  double ms = kInfinity, several_ms = kInfinity;
};
SimpleBound simple_bound(const pipeline::Problem& problem, const PlanRequest& request);

// A lower bound on V and on the simulated step of every plan of a split: its samples' compute spread over all of its
// devices. It serves the splits of one width.
class WorkBound {
 public:
  WorkBound(const Question& question, int width);
  double ms(const StepSize& size) const;

 private:
  const SampleTimes times_;
  const int devices_;  // replicas of the cluster
};

// Lowers both bounds, if they are open, to what no plan of the splits considered is below: by sums alone where the
// planner answers at once, and by the work alone, which bounds the simulated step, too, once no time is left. They
// begin at what plans are known to reach; where the simulated bound is 0, it stays unknown. They are about plans of any
// framework, within the request's time.
void close_bounds(const Question& question, Bounds* bounds);

}  // namespace automap::planners
