// libautomap_learned.so: what needs LibTorch, for programs that start without it (common/base/plugin.h).
#include "common/base/plugin.h"

#include <string>

#include "common/base/cli.h"
#include "plan/partition/learned/rainbow.h"
#include "plan/partition/rainbow_plugin.h"
#include "plan/planners/learned/online.h"
#include "plan/planners/online_plugin.h"

#define AUTOMAP_VISIBLE extern "C" __attribute__((visibility("default")))

AUTOMAP_VISIBLE void automap_rainbow_search(const automap::models::PartitionProblem* problem,
                                            const automap::partition::SearchLimits* limits,
                                            const std::string* policy_path, automap::StopRequested* stop_requested,
                                            automap::partition::PartitionAnswer* answer) {
  automap::partition::RainbowOptions options;
  options.stop_requested = stop_requested;
  *answer = automap::partition::rainbow_search(*problem, *limits, *policy_path, options);
}

AUTOMAP_VISIBLE void automap_online_search(const automap::pipeline::Problem* problem,
                                           const automap::planners::OnlineRequest* request, automap::Work* work,
                                           automap::planners::OnlineAnswer* answer) {
  *answer = automap::planners::search_online(*problem, *request, *work);
}

AUTOMAP_VISIBLE const char* automap_plugin_version() {
  static const std::string line = automap::version_line();
  return line.c_str();
}
