// From instruction cuts to the layers a user knows: how many layers of each stack a stage holds, and the nearest plan
// whose cuts lie between whole layers (what torch.distributed.pipelining and the like can express).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::infer {

// A numbered layer: "encoder/layer/17" -> {"encoder/layer", 17}, "h_5/attn" -> {"h", 5}, "block 17 of 48" ->
// {"block", 17}. The first number that ends a path component counts; nothing without one.
struct LayerNumber {
  std::string stack;
  long long index = 0;
};
std::optional<LayerNumber> layer_number(const std::string& layer);

// The cuts of `plan` moved to the nearest (by compute) starts of layers, with both lengths. Nothing when the profile
// has no layer names or too few layers to tell the stages apart.
std::optional<pipeline::LayerSplit> split_at_layers(const pipeline::Problem& problem, const pipeline::Profile& profile,
                                                    const pipeline::Plan& plan);

}  // namespace automap::infer
