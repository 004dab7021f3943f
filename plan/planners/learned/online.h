// The search behind online.h: the learner of automap-train (docs/learner.md, preset `rainbow`) plays the plan spaces of
// one problem, one for every stage count and schedule, with one network. It plays those spaces more often whose plans
// are short.
#pragma once

#include "plan/planners/online.h"

namespace automap::planners {

// Searches as OnlineSearch says. With the same request and work counted in units it finds the same plans, however often
// the search was stopped and resumed from its state file; a clock ends it anywhere. It plays every space at least once.
// Throws Error(kData) also for a policy that does not score after-states of pipelines.
OnlineAnswer search_online(const pipeline::Problem& problem, const OnlineRequest& request, Work& work);

}  // namespace automap::planners
