#include "common/graph/user_shardings.h"

#include <gtest/gtest.h>

#include <string>

#include "common/graph/hlo_cost.h"
#include "common/graph/training_step.h"
#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

// One parameter, and a mark of its value.
std::string marked(const std::string& on_parameter, const std::string& mark) {
  return "HloModule m\nENTRY e {\n  w = f32[8,4] parameter(0)" + on_parameter + "\n  x = f32[8,4] tanh(w)\n" +
         (mark.empty() ? "  ROOT r = f32[8,4] negate(x)\n"
                       : "  c = f32[8,4] custom-call(x), custom_call_target=\"Sharding\"" + mark +
                             "\n  ROOT r = f32[8,4] negate(c)\n") +
         "}\n";
}

std::string said(const std::string& text) {
  return user_shardings_text(hlo::read_hlo_text(text, "test"));
}

TEST(UserShardings, AreCountedAndSetAside) {
  EXPECT_EQ(said(marked("", "")), "");
  EXPECT_EQ(said(marked(", sharding={replicated}", ", sharding={replicated}")), "");
  EXPECT_EQ(said(marked(", sharding={devices=[1,1,8]<=[8] last_tile_dim_replicate}", "")), "");
  EXPECT_EQ(
      said(marked(", sharding={devices=[4,1]<=[4]}", "")),
      "the module's own shardings, of 1 parameter (w: {devices=[4,1]<=[4]}), are set aside: nothing is planned or "
      "priced by them without --keep-shardings");
  EXPECT_EQ(
      said(marked("", ", sharding={devices=[1,2]<=[2]}")),
      "the module's own shardings, of 1 value inside (c: {devices=[1,2]<=[2]}), are set aside: nothing is planned "
      "or priced by them without --keep-shardings");
  EXPECT_EQ(said(marked(", sharding={devices=[4,1]<=[4]}", ", sharding={devices=[1,2]<=[2]}")),
            "the module's own shardings, of 1 parameter and 1 value inside (w: {devices=[4,1]<=[4]}), are set aside: "
            "nothing is planned or priced by them without --keep-shardings");
  // Shardy's own, as JAX writes them.
  const std::string whole = R"(, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {}]>"})";
  const std::string split = R"(, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"x\"}, {}]>"})";
  EXPECT_EQ(said(marked(whole, "")), "");
  EXPECT_NE(said(marked(split, "")).find("of 1 parameter (w: #sdy.sharding<@mesh"), std::string::npos)
      << said(marked(split, ""));
}

TEST(UserShardings, AreNoWork) {
  const std::string mark = ", sharding={devices=[1,2]<=[2]}";
  const Graph with = hlo::read_hlo_text(marked("", mark), "test"), without = hlo::read_hlo_text(marked("", ""), "test");
  const ModuleCost one = analyze_cost(with), other = analyze_cost(without);
  EXPECT_EQ(one.total.flops, other.total.flops);
  EXPECT_EQ(one.total.bytes, other.total.bytes);
  EXPECT_EQ(one.custom_calls, 0);
  const TrainingStep step = analyze_training_step(with);
  ASSERT_EQ(step.warnings.size(), 1U);
  EXPECT_NE(step.warnings[0].find("set aside"), std::string::npos);
}

}  // namespace
}  // namespace automap::graph
