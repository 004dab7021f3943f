// The functions that the library of learned code (common/base/plugin.h) exports to learned_library.cpp. No LibTorch.
#pragma once

#include <memory>
#include <string>

#include "models/learner_options.h"
#include "models/rank_link.h"
#include "train/learner_port.h"

namespace automap::train {

// Each function fills its last argument, and throws what the function throws that it stands for.
using LearnerPlugin = void(const models::LearnerOptions* options, std::unique_ptr<LearnerPort>* learner);
constexpr char kLearnerPlugin[] = "automap_make_learner";
using RanksPlugin = void(const models::RankPlace* place, double timeout_s, std::unique_ptr<models::RankLink>* link);
constexpr char kRanksPlugin[] = "automap_join_ranks";
using TorchSpeedPlugin = void(std::string* line);
constexpr char kTorchSpeedPlugin[] = "automap_check_torch_speed";

}  // namespace automap::train
