// What a training needs of LibTorch, in a library that is opened when it is asked for (common/base/plugin.h):
// everything else that automap-train does starts without.
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
  // Throws Error(kConfig) when the library is in none of the folders (plugin_folders(), or a test's). Costs a look at
  // the file system.
  LearnedLibrary();
  explicit LearnedLibrary(const std::vector<std::string>& folders);

  // The first of these calls opens the library, and throws Error(kConfig) when it cannot be used (LibTorch is gone) or
  // is of another version.

  // models::Learner, and what its constructor throws. Options that do not go together need no library to be refused.
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
