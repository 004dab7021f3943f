// models::Learner behind the interface of the training loop.
#pragma once

#include <memory>

#include "train/learner_port.h"

namespace automap::train {

std::unique_ptr<LearnerPort> make_torch_learner(const models::LearnerOptions& options);

}  // namespace automap::train
