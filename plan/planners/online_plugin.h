// The functions that the library of learned searches (common/base/plugin.h) exports to online.cpp.
#pragma once

#include "plan/planners/online.h"

namespace automap::planners {

// Fills `answer`; throws as search_online does.
using OnlinePlugin = void(const pipeline::Problem* problem, const OnlineRequest* request, Work* work,
                          OnlineAnswer* answer);
constexpr char kOnlinePlugin[] = "automap_online_search";

}  // namespace automap::planners
