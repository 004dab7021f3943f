// libautomap_learned.so: what needs LibTorch, for programs that start without it (common/base/plugin.h).
#include "common/base/plugin.h"

#include <memory>
#include <string>

#include "common/base/cli.h"
#include "common/base/log.h"
#include "models/learner/gloo_link.h"
#include "models/learner/learner.h"
#include "plan/partition/learned/rainbow.h"
#include "plan/partition/rainbow_plugin.h"
#include "plan/planners/learned/online.h"
#include "plan/planners/online_plugin.h"
#include "train/learned/torch_learner.h"
#include "train/learned_plugin.h"

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

AUTOMAP_VISIBLE void automap_make_learner(const automap::models::LearnerOptions* options,
                                          std::unique_ptr<automap::train::LearnerPort>* learner) {
  *learner = automap::train::make_torch_learner(*options);
}

AUTOMAP_VISIBLE void automap_join_ranks(const automap::models::RankPlace* place, double timeout_s,
                                        std::unique_ptr<automap::models::RankLink>* link) {
  *link = automap::models::join_ranks(*place, timeout_s);
}

AUTOMAP_VISIBLE void automap_check_torch_speed(std::string* line) {
  *line = automap::models::check_torch_speed();
}

AUTOMAP_VISIBLE void automap_plugin_log_level(automap::LogLevel level) {
  automap::set_log_level(level);
}

AUTOMAP_VISIBLE const char* automap_plugin_version() {
  static const std::string line = automap::version_line();
  return line.c_str();
}
