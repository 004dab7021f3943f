// The search behind online.h: the learner of automap-train (docs/learner.md, preset `rainbow`) plays the plan spaces of
// one problem, one for every stage count and schedule, with one network. It plays those spaces more often whose plans
// are short.
#pragma once

#include "plan/planners/online.h"

namespace automap::planners {

// As OnlineSearch. With the same request and work counted in units the same plans, however often the search was stopped
// and gone on with from its state file; a clock ends it anywhere. At least one play is made of every space. Throws
// Error(kData) also for a policy that is none of after-states of pipelines.
OnlineAnswer search_online(const pipeline::Problem& problem, const OnlineRequest& request, Work& work);

}  // namespace automap::planners
