#include <string>

#include "common/base/cli.h"
#include "search/learned/rainbow.h"
#include "search/rainbow_plugin.h"

extern "C" __attribute__((visibility("default"))) void automap_rainbow_search(
    const automap::models::PartitionProblem* problem, const automap::search::SearchLimits* limits,
    const std::string* policy_path, automap::search::StopRequested* stop_requested,
    automap::search::PartitionAnswer* answer) {
  automap::search::RainbowOptions options;
  options.stop_requested = stop_requested;
  *answer = automap::search::rainbow_search(*problem, *limits, *policy_path, options);
}

extern "C" __attribute__((visibility("default"))) const char* automap_rainbow_version() {
  static const std::string line = automap::version_line();
  return line.c_str();
}
