#include "infer/report.h"

#include <gtest/gtest.h>

#include "common/pipeline/schedule.h"
#include "plan/planners/layers.h"
#include "tests/plan/planners/stacked_profile.h"

namespace automap::infer {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::Profile;

TEST(Report, SaysWhatThePlanIs) {
  const Profile profile = planners::stacked(6);
  const Problem problem(profile, machine::load_cluster("config-a"), {});
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
  planners::LayerOptions two;
  two.min_stages = two.max_stages = 2;
  document.layer_split = planners::split_at_layers(problem, profile, plan, two).split;
  ReportOptions options;
  options.model_batch = 2;
  const std::string text = report_text(document, problem, options);
  for (const char* expected :
       {"stacked on config-a: 2 pipeline stages on 16 devices, 16 micro-batches of ", "embeddings .. h/1/mlp", "1-9",
        "8 (9-16, server 2)", "samples/s in steps of 16", "optimal", "Limited by   stage 2 computes\n", "+100",
        "Cut at whole layers (2 stages): ", "layers of h per stage: ", ": SplitPoint.BEGINNING", "of 16.0 GiB"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\nin\n" << text;
  }
  EXPECT_EQ(text.find("a trifle"), std::string::npos);
  document.layer_split->split_spec.clear();
  document.layer_split->no_split_spec = "\"x\" holds no variables";
  const std::string unnamed = report_text(document, problem, options);
  EXPECT_EQ(unnamed.find("SplitPoint"), std::string::npos);
  EXPECT_NE(unnamed.find("  stage 2 begins with: h/"), std::string::npos) << unnamed;
  EXPECT_NE(unnamed.find("  no split_spec: \"x\" holds no variables\n"), std::string::npos) << unnamed;
}

}  // namespace
}  // namespace automap::infer
