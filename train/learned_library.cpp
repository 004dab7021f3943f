#include "train/learned_library.h"

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/plugin.h"
#include "train/learned_plugin.h"

namespace automap::train {

LearnedLibrary::LearnedLibrary() : LearnedLibrary(plugin_folders()) {}

LearnedLibrary::LearnedLibrary(const std::vector<std::string>& folders) : path_(find_plugin(folders)) {
  if (!path_.empty()) return;
  throw Error(
      ErrorKind::kConfig,
      std::string("training needs ") + kLearnedLibrary + ", which is neither in " + join(folders, " nor in "),
      "build with LibTorch (scripts/install_dependencies.sh --train) and keep the library beside the program, or "
      "install both; --evaluate and --compare do without");
}

void* LearnedLibrary::function(const char* name) const {
  return plugin_function(path_, name, "install LibTorch and the matching AutoMap; --evaluate and --compare do without");
}

std::unique_ptr<LearnerPort> LearnedLibrary::make_learner(const models::LearnerOptions& options) const {
  models::check_options(options);
  std::unique_ptr<LearnerPort> learner;
  reinterpret_cast<LearnerPlugin*>(function(kLearnerPlugin))(&options, &learner);
  return learner;
}

std::unique_ptr<models::RankLink> LearnedLibrary::join_ranks(const models::RankPlace& place, double timeout_s) const {
  std::unique_ptr<models::RankLink> link;
  reinterpret_cast<RanksPlugin*>(function(kRanksPlugin))(&place, timeout_s, &link);
  return link;
}

std::string LearnedLibrary::check_torch_speed() const {
  std::string line;
  reinterpret_cast<TorchSpeedPlugin*>(function(kTorchSpeedPlugin))(&line);
  return line;
}

}  // namespace automap::train
