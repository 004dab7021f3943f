// Opens the library that holds the parts of a training that use LibTorch, when the first of them is called
// (common/base/plugin.h); everything else that automap-train does starts without LibTorch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/learner_options.h"
#include "models/rank_link.h"
#include "train/learner_port.h"

namespace automap::train {

class LearnedLibrary {
 public:
  // Looks for the library's file, but does not open it. Throws Error(kConfig) when it is in none of the folders
  // (plugin_folders(), or a test's).
  LearnedLibrary();
  explicit LearnedLibrary(const std::vector<std::string>& folders);

  // The first of these calls opens the library, and throws Error(kConfig) when it cannot be used (LibTorch is gone) or
  // is of another version.

  // Makes a models::Learner, and throws what its constructor throws. Options that contradict each other are refused
  // without the library.
  std::unique_ptr<LearnerPort> make_learner(const models::LearnerOptions& options) const;
  // As models::join_ranks (models/learner/gloo_link.h).
  std::unique_ptr<models::RankLink> join_ranks(const models::RankPlace& place, double timeout_s) const;
  // As models::check_torch_speed (models/learner/learner.h).
  std::string check_torch_speed() const;

 private:
  void* function(const char* name) const;

  std::string path_;
};

}  // namespace automap::train
