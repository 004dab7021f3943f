#include "plan/planners/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"
#include "tests/plan/planners/stacked_profile.h"

namespace automap::planners {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::Profile;

LayerOptions stages(int least, int most) {
  LayerOptions options;
  options.min_stages = least;
  options.max_stages = most;
  return options;
}

TEST(Layers, Numbers) {
  const auto number = [](const char* layer) {
    const auto found = layer_number(layer);
    return found ? found->stack + " #" + std::to_string(found->index) : std::string("none");
  };
  EXPECT_EQ(number("encoder/layer/17"), "encoder/layer #17");
  EXPECT_EQ(number("h/5/attn"), "h #5");
  EXPECT_EQ(number("layers_12"), "layers #12");
  EXPECT_EQ(number("block 17 of 48"), "block #17");
  EXPECT_EQ(number("conv4_block3/out"), "conv4_block #3");
  EXPECT_EQ(number("12"), " #12");
  EXPECT_EQ(number("embeddings"), "none");
  EXPECT_EQ(number(""), "none");
  EXPECT_EQ(number("x/99999999999999999999"), "none");
}

TEST(Layers, TheBestPlanAtWholeLayersIsFound) {
  const Profile profile = stacked(6);
  const Problem problem(profile, machine::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {9, 17};  // inside h/1 and h/3
  plan.device_cuts = {4, 8};
  const auto split = split_at_layers(problem, profile, plan, stages(3, 3)).split;
  ASSERT_TRUE(split);
  // Every plan of three stages that cuts where a layer starts: 3, 7, 11, ... and the head at 27.
  double best = 1e300;
  for (int a = 2; a <= 26; a += 4) {
    for (int b = a + 4; b <= 26; b += 4) {
      for (int d = 1; d < 15; ++d) {
        for (int e = d + 1; e < 16; ++e) {
          Plan other = plan;
          other.cuts = {a, b};
          other.device_cuts = {d, e};
          if (feasible(problem, other)) best = std::min(best, simulate_step_ms(problem, other));
        }
      }
    }
  }
  EXPECT_NEAR(split->simulated_step_ms, best, 1e-9 * best);
  ASSERT_EQ(split->cuts.size(), 2u);
  for (std::size_t s = 0; s < 2; ++s) {
    const int layer = (split->cuts[s] - 2) / 4;
    EXPECT_EQ(split->cuts[s], 2 + 4 * layer);
    EXPECT_EQ(split->split_before[s], layer == 6 ? "head" : "h/" + std::to_string(layer));
  }
  const std::vector<int>& counts = split->layers_per_stage.at("h");
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 6);
  EXPECT_EQ(counts[0], (split->cuts[0] - 2) / 4);
  Plan found = plan;
  found.cuts = split->cuts;
  found.device_cuts = split->device_cuts;
  EXPECT_EQ(split->step_ms, value_ms(problem, found));
}

TEST(Layers, StageCountsAreKept) {
  const Profile profile = stacked(6);
  const Problem problem(profile, machine::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {24, 25, 26};  // late: fewer borders there than cuts
  plan.device_cuts = {4, 8, 12};
  EXPECT_EQ(split_at_layers(problem, profile, plan, stages(4, 4)).split->cuts.size(), 3u);
  for (const int most : {1, 2}) {  // data parallelism cuts nothing
    const LayerResult none = split_at_layers(problem, profile, Plan(), stages(1, most));
    EXPECT_FALSE(none.split);
    EXPECT_EQ(none.why_not, "");
  }
  const LayerResult none = split_at_layers(problem, profile, plan, stages(9, 16));  // 7 borders
  EXPECT_FALSE(none.split);
  EXPECT_EQ(none.why_not, "the model has 8 layers, too few for 9 stages");
}

TEST(Layers, APlanOfMoreStagesThanLayersIsCutAtEachOfThem) {
  const Profile profile = stacked(2);  // embeddings, h/0, h/1, head
  const Problem problem(profile, machine::load_cluster("a100-8x8"), {});
  Plan plan;
  for (int s = 1; s < 12; ++s) {
    plan.cuts.push_back(s);
    plan.device_cuts.push_back(5 * s);
  }
  for (const bool quick : {false, true}) {
    LayerOptions options = stages(1, 16);
    options.quick = quick;
    const LayerResult result = split_at_layers(problem, profile, plan, options);
    ASSERT_TRUE(result.split) << result.why_not;
    EXPECT_EQ(result.split->split_before, (std::vector<std::string>{"h/0", "h/1", "head"}));
    EXPECT_EQ(result.why_not, "");
  }
}

TEST(Layers, LayersWithoutVariablesAreNoStages) {
  Profile profile = stacked(6);  // 8 layers, of which embeddings, h/0 and head hold the 8 variables
  for (std::size_t i = 6; i < 26; ++i) profile.w_bytes[i] = 0;
  const Problem problem(profile, machine::load_cluster("config-a"), {});
  Plan plan;
  for (int s = 1; s < 10; ++s) {
    plan.cuts.push_back(2 * s);
    plan.device_cuts.push_back(s);
  }
  const LayerResult result = split_at_layers(problem, profile, plan, stages(1, 16));
  ASSERT_TRUE(result.split) << result.why_not;
  EXPECT_LE(result.split->cuts.size(), 2u);
}

TEST(Layers, WhatDoesNotFitIsSaid) {
  Profile profile = stacked(2);
  for (double& w : profile.w_bytes) w = 1e12;
  const Problem problem(profile, machine::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {4};
  plan.device_cuts = {8};
  const LayerResult result = split_at_layers(problem, profile, plan, stages(1, 16));
  EXPECT_FALSE(result.split);
  EXPECT_EQ(result.why_not.find("none of 2 to 4 stages is possible, nearest to this plan: stage 1"), 0u)
      << result.why_not;
}

// split_spec, or why there is none, of the plan that cuts `profile` before instruction 7.
std::string spec(const Profile& profile) {
  pipeline::ProblemOptions options;
  options.allow_empty_stages = true;
  const Problem problem(profile, machine::load_cluster("config-a"), options);
  Plan plan;
  plan.cuts = {6};
  plan.device_cuts = {8};
  const LayerResult result = split_at_layers(problem, profile, plan, stages(2, 2));
  const auto& split = result.split;
  if (!split) return "no split: " + result.why_not;
  EXPECT_NE(split->split_spec.empty(), split->no_split_spec.empty());
  std::string out = split->no_split_spec;
  for (const std::string& path : split->split_spec) out += (out.empty() ? "" : ", ") + path;
  return out;
}

TEST(Layers, OnlyModulesAreNamed) {
  const auto halves = [](const std::string& first, const std::string& second, double bytes) {
    Profile profile = stacked(2);
    for (std::size_t i = 0; i < profile.layer.size(); ++i) {
      profile.layer[i] = i < 6 ? first : second;
      if (i >= 6) profile.w_bytes[i] = bytes;
    }
    return profile;
  };
  EXPECT_EQ(spec(halves("start", "encoder/layer_1/attention", 1e5)), "encoder.layer_1.attention");
  EXPECT_EQ(spec(halves("start", "h/5", 1e5)), "h.5");
  EXPECT_EQ(spec(halves("start", "flatten", 0)),
            "\"flatten\" holds no variables, so it may be a function and no module");
  for (const char* name : {"block 3 of 48", "wte.attend", "a//b", "5x", "jit(f)"}) {
    EXPECT_EQ(spec(halves("start", name, 1e5)), "\"" + std::string(name) + "\" is no module's path");
  }
  Profile nothing = halves("start", "h/5", 0);
  for (double& w : nothing.w_bytes) w = 0;
  EXPECT_EQ(spec(nothing), "the profile says of no layer that it holds variables, so names may be those of functions");
  // Layers of a stack that share the first one's variables.
  EXPECT_EQ(spec(halves("h/0", "h/1", 0)), "h.1");
}

TEST(Layers, NothingToSayWithoutNames) {
  Profile profile = stacked(2);
  profile.layer.clear();
  const Problem problem(profile, machine::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {3};
  plan.device_cuts = {8};
  EXPECT_FALSE(split_at_layers(problem, profile, plan, stages(1, 16)).split);
}

// Positions of `stacked`: 2 of the embedding, 4 of every layer, 2 of the head, in which there is another layer here.
TEST(Layers, StagesOfOneStackEndInFrontOfLayersAndRightBehind) {
  pipeline::Profile profile = stacked(3);
  profile.layer.back() = "loss";
  EXPECT_EQ(layer_cuts(profile), (std::vector<int>{2, 6, 10, 14, 15}));
  EXPECT_EQ(stack_cuts(profile), (std::vector<int>{2, 6, 10, 14}));
  const auto split = layers_at_cuts(profile, {6, 14});
  ASSERT_TRUE(split);
  const std::vector<std::vector<std::string>> stages = {{"embeddings", "h/0"}, {"h/1", "h/2"}, {"head", "loss"}};
  EXPECT_EQ(split->stage_layers, stages);
  EXPECT_EQ(split->stage_modules, stages);
  EXPECT_EQ(split->layers_per_stage, (std::map<std::string, std::vector<int>>{{"h", {1, 2, 0}}}));
  profile.w_bytes.back() = 0;
  EXPECT_EQ(layers_at_cuts(profile, {6, 14})->stage_modules.back(), (std::vector<std::string>{"head"}));
  EXPECT_FALSE(layers_at_cuts(profile, {7}));
  // A second stack.
  for (std::size_t i = 0; i < 2; ++i) profile.layer[i] = "e/" + std::to_string(i);
  profile.layer.insert(profile.layer.begin(), {"e/0", "e/1"});
  profile.layer.resize(profile.w_bytes.size());
  EXPECT_TRUE(stack_cuts(profile).empty());
}

TEST(Layers, NumberedInstructionsAreNoStack) {
  Profile profile = stacked(4);
  for (std::size_t i = 0; i < profile.layer.size(); ++i) profile.layer[i] = "Conv2d " + std::to_string(i);
  const Problem problem(profile, machine::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {7};
  plan.device_cuts = {8};
  const auto split = split_at_layers(problem, profile, plan, stages(2, 2)).split;
  ASSERT_TRUE(split);
  EXPECT_LE(split->simulated_step_ms, simulate_step_ms(problem, plan) * (1 + 1e-12));
  EXPECT_TRUE(split->layers_per_stage.empty());
}

}  // namespace
}  // namespace automap::planners
