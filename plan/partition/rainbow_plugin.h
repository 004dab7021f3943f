// What libautomap_partition_learned.so shows to search/rainbow.cpp. No LibTorch.
#pragma once

#include <string>

#include "plan/partition/partition_search.h"

namespace automap::partition {

// The program's StopToken: the library has a copy of its own, which no signal reaches.
using StopRequested = bool() noexcept;

// Fills `answer`; throws as rainbow_search does.
using RainbowPlugin = void(const models::PartitionProblem* problem, const SearchLimits* limits,
                           const std::string* policy_path, StopRequested* stop_requested, PartitionAnswer* answer);
constexpr char kRainbowPlugin[] = "automap_rainbow_search";

// version_line() of the library.
using RainbowPluginVersion = const char*();
constexpr char kRainbowPluginVersion[] = "automap_rainbow_version";

}  // namespace automap::partition
