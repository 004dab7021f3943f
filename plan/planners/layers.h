// Moves instruction cuts to the layers that a user knows: finds the best plan whose cuts lie between whole layers
// (which torch.distributed.pipelining and the like can express), and counts the layers of each stack in its stages.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/mixed_widths.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "models/policy.h"

namespace automap::planners {

// A numbered layer: "encoder/layer/17" -> {"encoder/layer", 17}, "h_5/attn" -> {"h", 5}, "block 17 of 48" ->
// {"block", 17}. The first number that ends a path component counts; nothing without one.
struct LayerNumber {
  std::string stack;
  long long index = 0;
};
std::optional<LayerNumber> layer_number(const std::string& layer);

// A module's name as a path of PyTorch, "h/5" -> "h.5", "params/layers/5" -> "layers.5"; empty when a part of it is
// neither an identifier nor a number ("block 3 of 48", "wte.attend").
std::string module_path(const std::string& layer);

// The instruction cuts between whole layers, ascending; empty: the profile names no two layers.
std::vector<int> layer_cuts(const pipeline::Profile& profile);
// Behind which position each layer of the model's stack begins, ascending; empty: there is no stack, or several.
std::vector<int> stack_starts(const pipeline::Profile& profile);

// The cuts at which stages of whole layers of that one stack may end: in front of a layer, or right behind the last;
// ascending.
std::vector<int> stack_cuts(const pipeline::Profile& profile);

// The names of the layers at these cuts, without devices and lengths. Nothing: not all cuts lie between whole layers.
std::optional<pipeline::LayerSplit> layers_at_cuts(const pipeline::Profile& profile, const std::vector<int>& cuts);

struct LayerOptions {
  int min_stages = 1, max_stages = 16;
  // Search with the policy (null: with its rollouts alone) instead of the exact solver: about a millisecond.
  bool quick = false;
  const models::Policy* policy = nullptr;
  // Limits of the exact solver: units of work, and a time limit that may stop it earlier.
  std::int64_t units = 1'000'000'000;
  double time_limit_s = std::numeric_limits<double>::infinity();
};

struct LayerResult {
  std::optional<pipeline::LayerSplit> split;
  std::string why_not;       // without a split of a plan of several stages whose model has layer names, else empty
  bool cut_by_time = false;  // a time limit or StopToken stopped the solver
};

// The plan of min_stages..max_stages stages and the schedule of `plan` that is shortest in simulation among the exact
// solver's best over the starts of layers (the policy's, when `quick`), and `plan` itself with its cuts moved to the
// nearest starts of layers. About as many stages as `plan` has are tried, fewer when there are too few layers. No split
// when `plan` has one stage, when there are no layer names, or when no such plan of two stages or more fits.
LayerResult split_at_layers(const pipeline::Problem& problem, const pipeline::Profile& profile,
                            const pipeline::Plan& plan, const LayerOptions& options);

// Does the same for stages of different widths, which keep their devices, widths and variants: moves the cuts of `plan`
// to the nearest starts of layers, and from there from layer to layer as long as the simulated step gets shorter.
LayerResult split_mixed_at_layers(const pipeline::MixedProblem& problem, const pipeline::Profile& profile,
                                  const pipeline::MixedPlan& plan);

// The plan itself, where all of its cuts lie between whole layers.
std::optional<pipeline::LayerSplit> as_layer_split(const pipeline::PlacedPlan& placed,
                                                   const pipeline::Profile& profile);

}  // namespace automap::planners
