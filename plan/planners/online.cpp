#include "plan/planners/online.h"

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/plugin.h"
#include "plan/planners/online_plugin.h"

namespace automap::planners {

OnlineSearch find_online_search() {
  const std::string path = find_plugin(plugin_folders());
  if (path.empty()) {
    throw Error(ErrorKind::kConfig,
                std::string("the planner online needs ") + kLearnedLibrary + ", which is neither in " +
                    join(plugin_folders(), " nor in "),
                "build with LibTorch (scripts/install_dependencies.sh), or choose another --planner");
  }
  return [path](const pipeline::Problem& problem, const OnlineRequest& request, Work& work) {
    const auto search = reinterpret_cast<OnlinePlugin*>(
        plugin_function(path, kOnlinePlugin, "install LibTorch and the matching AutoMap, or choose another --planner"));
    OnlineAnswer answer;
    search(&problem, &request, &work, &answer);
    return answer;
  };
}

}  // namespace automap::planners
