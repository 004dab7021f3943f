#include "plan/partition/rainbow.h"

#include "common/base/cli.h"
#include "common/base/plugin.h"
#include "plan/partition/rainbow_plugin.h"

namespace automap::partition {

RainbowSearch find_rainbow() {
  return find_rainbow(plugin_folders());
}

RainbowSearch find_rainbow(const std::vector<std::string>& folders) {
  const std::string path = find_plugin(folders);
  if (path.empty()) return {};
  return [path](const models::PartitionProblem& problem, const SearchLimits& limits, const std::string& policy) {
    const auto search = reinterpret_cast<RainbowPlugin*>(plugin_function(
        path, kRainbowPlugin, "install LibTorch and the matching AutoMap, or choose another --algorithm"));
    PartitionAnswer answer;
    search(&problem, &limits, &policy, &StopToken::stop_requested, &answer);
    return answer;
  };
}

}  // namespace automap::partition
