// The interface of the library of learned searches (common/base/plugin.h) to rainbow.cpp. No LibTorch.
#pragma once

#include <string>

#include "common/base/plugin.h"
#include "plan/partition/partition_search.h"

namespace automap::partition {

// Fills `answer`; throws as rainbow_search does.
using RainbowPlugin = void(const models::PartitionProblem* problem, const SearchLimits* limits,
                           const std::string* policy_path, StopRequested* stop_requested, PartitionAnswer* answer);
constexpr char kRainbowPlugin[] = "automap_rainbow_search";

}  // namespace automap::partition
