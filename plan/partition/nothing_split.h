// Explains in one sentence why a plan splits nothing: such an answer looks like a failure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/sharding/model.h"

namespace automap::partition {

// Splitting is possible, and nothing that was looked at makes the step shorter.
constexpr const char* kNothingFaster = "no choice of what to split is estimated faster than none";

// `inputs`: those that the plan decides, places in model.inputs(). Says whether the devices divide none of their
// dimensions ("7 devices divide no dimension of any of the 188 variables; 2, 4 or 8 divide one of 188"), whether the
// divisible dimensions cannot be split, or whether splitting was possible and not chosen. `what`: "variable" or "data
// input".
std::string why_nothing_is_split(const sharding::ShardingModel& model, const std::vector<std::int32_t>& inputs,
                                 const std::string& what, bool by_time);

}  // namespace automap::partition
