#include <string>

#include "common/base/cli.h"
#include "plan/partition/learned/rainbow.h"
#include "plan/partition/rainbow_plugin.h"

extern "C" __attribute__((visibility("default"))) void automap_rainbow_search(
    const automap::models::PartitionProblem* problem, const automap::partition::SearchLimits* limits,
    const std::string* policy_path, automap::partition::StopRequested* stop_requested,
    automap::partition::PartitionAnswer* answer) {
  automap::partition::RainbowOptions options;
  options.stop_requested = stop_requested;
  *answer = automap::partition::rainbow_search(*problem, *limits, *policy_path, options);
}

extern "C" __attribute__((visibility("default"))) const char* automap_rainbow_version() {
  static const std::string line = automap::version_line();
  return line.c_str();
}
