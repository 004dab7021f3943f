#include "plan/partition/rainbow.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "plan/partition/rainbow_plugin.h"

#ifndef AUTOMAP_PLUGIN_FOLDER
// From the programs' folder to the library's in an installed copy.
#define AUTOMAP_PLUGIN_FOLDER "../lib/automap"
#endif

namespace automap::partition {
namespace {

constexpr char kLibrary[] = "libautomap_partition_learned.so";

[[noreturn]] void cannot_use(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::kConfig, path + ": cannot be used: " + why,
              "install LibTorch and the matching AutoMap, or choose another --algorithm");
}

RainbowPlugin* open_plugin(const std::string& path) {
  // Never closed: LibTorch's threads outlive a search.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto text = [] {
    const char* error = ::dlerror();
    return std::string(error ? error : "unknown error");
  };
  if (!library) cannot_use(path, text());
  const auto version = reinterpret_cast<RainbowPluginVersion*>(::dlsym(library, kRainbowPluginVersion));
  const auto entry = reinterpret_cast<RainbowPlugin*>(::dlsym(library, kRainbowPlugin));
  if (!version || !entry) cannot_use(path, text());
  // Classes cross the border: both sides must come from the same sources.
  if (version() != version_line()) {
    cannot_use(path, "it is of " + std::string(version()) + ", this program is " + version_line());
  }
  return entry;
}

}  // namespace

std::vector<std::string> rainbow_folders() {
  const std::string here = executable_folder();
  return {here, here + "/" + AUTOMAP_PLUGIN_FOLDER};
}

RainbowSearch find_rainbow() {
  return find_rainbow(rainbow_folders());
}

RainbowSearch find_rainbow(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + kLibrary;
    struct stat status;
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    return [path](const models::PartitionProblem& problem, const SearchLimits& limits, const std::string& policy) {
      PartitionAnswer answer;
      open_plugin(path)(&problem, &limits, &policy, &StopToken::stop_requested, &answer);
      return answer;
    };
  }
  return {};
}

}  // namespace automap::partition
