// Rewrites a training step as if its module had been exported with another batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/graph/graph.h"
#include "common/graph/resized_graph.h"
#include "common/graph/training_step.h"

namespace automap::profile {

// Throws the Error(kData) of a module that does not grow with its batch.
[[noreturn]] void cannot_resize(const std::string& why);

class ModuleAtBatch {
 public:
  // `module` must stay alive. Throws as above where it cannot be seen at another batch (batch_dims.h says why),
  // even when it has so many samples already.
  ModuleAtBatch(const graph::Graph& module, std::int64_t samples);

  // The module's own.
  std::int64_t own_batch() const { return own_batch_; }
  const graph::TrainingStep& own_step() const { return own_step_; }
  // The step with so many samples. resized() is false where that is the module itself.
  bool resized() const { return resized_.has_value(); }
  const graph::Graph& graph() const { return resized_ ? resized_->graph() : module_; }
  const graph::TrainingStep& step() const { return resized_ ? step_ : own_step_; }

 private:
  const graph::Graph& module_;
  graph::TrainingStep own_step_, step_;
  std::int64_t own_batch_ = 0;
  std::optional<graph::ResizedGraph> resized_;
};

}  // namespace automap::profile
