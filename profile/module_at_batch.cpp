#include "profile/module_at_batch.h"

#include "common/base/error.h"
#include "profile/batch_dims.h"

namespace automap::profile {

void cannot_resize(const std::string& why) {
  throw Error(ErrorKind::kData, "the module cannot be seen at another batch: " + why,
              "export it with the batch of the step");
}

ModuleAtBatch::ModuleAtBatch(const graph::Graph& module, std::int64_t samples)
    : module_(module), own_step_(graph::analyze_training_step(module)) {
  const BatchDims dims = find_batch_dims(module, own_step_);
  if (!dims.problem.empty()) cannot_resize(dims.problem);
  own_batch_ = dims.batch;
  if (own_batch_ == samples) return;
  resized_.emplace(module, dims.marks, dims.batch);
  resized_->resize(samples);
  step_ = graph::analyze_training_step(resized_->graph());
}

}  // namespace automap::profile
