#include "infer/layers.h"

#include <gtest/gtest.h>

#include "common/pipeline/cost.h"
#include "infer/report.h"

namespace automap::infer {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::Profile;

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

// `layers` layers of four equal instructions between an embedding and a head of two.
Profile stacked(int layers) {
  Profile profile;
  profile.model = "stacked";
  const auto add = [&](const std::string& layer) {
    profile.c_ms.push_back(1);
    profile.a_bytes.push_back(1e5);
    profile.w_bytes.push_back(1e5);
    profile.stash_bytes.push_back(0);
    profile.layer.push_back(layer);
  };
  for (int i = 0; i < 2; ++i) add("embeddings");
  for (int l = 0; l < layers; ++l) {
    for (const char* part : {"/attn", "/attn", "/mlp", ""}) add("h/" + std::to_string(l) + part);
  }
  for (int i = 0; i < 2; ++i) add("head");
  return profile;
}

TEST(Layers, CutsMoveToTheNearestWholeLayer) {
  const Profile profile = stacked(6);
  const Problem problem(profile, pipeline::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {9, 17};  // inside h/1 (7..10, nearer to its end) and h/3 (15..18)
  plan.device_cuts = {4, 8};
  const auto split = split_at_layers(problem, profile, plan);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->cuts, (std::vector<int>{10, 18}));
  EXPECT_EQ(split->split_before, (std::vector<std::string>{"h/2", "h/4"}));
  EXPECT_EQ(split->layers_per_stage.at("h"), (std::vector<int>{2, 2, 2}));
  Plan whole = plan;
  whole.cuts = {10, 18};
  EXPECT_EQ(split->step_ms, value_ms(problem, whole));
  EXPECT_EQ(split->infeasible, "");
}

TEST(Layers, TwoCutsInOneLayerTakeTwoBorders) {
  const Profile profile = stacked(6);
  const Problem problem(profile, pipeline::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {24, 25, 26};  // the last border is before h/5 at 22: three cuts need three borders
  plan.device_cuts = {4, 8, 12};
  const auto split = split_at_layers(problem, profile, plan);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->split_before, (std::vector<std::string>{"h/3", "h/4", "h/5"}));
}

TEST(Layers, NothingToSayWithoutEnoughLayers) {
  Profile profile = stacked(2);
  Plan plan;
  plan.cuts = {3, 5, 7};
  plan.device_cuts = {1, 2, 3};
  {
    const Problem problem(profile, pipeline::load_cluster("config-a"), {});
    EXPECT_FALSE(split_at_layers(problem, profile, plan));
    EXPECT_FALSE(split_at_layers(problem, profile, Plan()));
  }
  profile.layer.clear();
  const Problem problem(profile, pipeline::load_cluster("config-a"), {});
  plan.cuts = {3};
  plan.device_cuts = {8};
  EXPECT_FALSE(split_at_layers(problem, profile, plan));
}

TEST(Layers, NumberedInstructionsAreNoStack) {
  Profile profile = stacked(4);
  for (std::size_t i = 0; i < profile.layer.size(); ++i) profile.layer[i] = "Conv2d " + std::to_string(i);
  const Problem problem(profile, pipeline::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {7};
  plan.device_cuts = {8};
  const auto split = split_at_layers(problem, profile, plan);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->cuts, plan.cuts);
  EXPECT_TRUE(split->layers_per_stage.empty());
}

TEST(Report, SaysWhatThePlanIs) {
  const Profile profile = stacked(6);
  const Problem problem(profile, pipeline::load_cluster("config-a"), {});
  Plan plan;
  plan.cuts = {9};
  plan.device_cuts = {8};
  pipeline::PlanDocument document = describe_plan(problem, profile, plan);
  document.cluster = "config-a";
  document.planner = "exact";
  document.objective = "value";
  document.lower_bound_ms = document.step_ms;
  document.lower_bound_method = "exact over all cuts";
  document.alternatives = {{"uniform", 4, document.step_ms * 2, document.simulated_step_ms * 2, 0.1}};
  document.limits = {{"stage", 2, 1, 0.5, "stage 2 computes"}, {"all-reduce", 1, 0, 0.001, "a trifle"}};
  document.layer_split = split_at_layers(problem, profile, plan);
  ReportOptions options;
  options.micro_batch_size = 2;
  const std::string text = report_text(document, problem, options);
  for (const char* expected :
       {"stacked on config-a: 2 pipeline stages on 16 devices, 16 micro-batches per step, schedule 1f1b",
        "embeddings .. h/1/mlp", "1-9", "8 (9-16, server 2)", "samples/s in steps of 32", "optimal",
        "Limited by   stage 2 computes\n", "+100", "layers of h per stage: 2, 4", "\"h.2\": SplitPoint.BEGINNING"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\nin\n" << text;
  }
  EXPECT_EQ(text.find("a trifle"), std::string::npos);
}

}  // namespace
}  // namespace automap::infer
