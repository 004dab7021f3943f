#include "plan/partition/kept_shardings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/hlo/hlo_text.h"
#include "common/machine/cluster.h"
#include "common/sharding/propagation.h"
#include "plan/partition/kept_search.h"
#include "plan/partition/planner.h"
#include "profile/profile_hlo.h"

namespace automap::partition {
namespace {

using testing::HasSubstr;

// A step of one layer: y = tanh(x w), the loss its sum, and w less a part of its gradient. What is said of each stands
// in.
std::string step_text(const std::string& of_w, const std::string& of_x, const std::string& mark = "") {
  const std::string hidden =
      mark.empty()
          ? "  y = f32[16,64] tanh(h)\n"
          : "  t = f32[16,64] tanh(h)\n  y = f32[16,64] custom-call(t), custom_call_target=\"Sharding\"" + mark + "\n";
  return R"(HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=4, "y"=2]>}}
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  w = f32[32,64] parameter(0))" +
         of_w + "\n  x = f32[16,32] parameter(1)" + of_x + R"(
  h = f32[16,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)" + hidden +
         R"(  zero = f32[] constant(0)
  loss = f32[] reduce(y, zero), dimensions={0,1}, to_apply=sum
  one = f32[] constant(1)
  ones = f32[16,64] broadcast(one), dimensions={}
  yy = f32[16,64] multiply(y, y)
  slope = f32[16,64] subtract(ones, yy)
  g = f32[32,64] dot(x, slope), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  rate = f32[] constant(0.1)
  rates = f32[32,64] broadcast(rate), dimensions={}
  step = f32[32,64] multiply(g, rates)
  new_w = f32[32,64] subtract(w, step)
  ROOT out = (f32[32,64], f32[]) tuple(new_w, loss)
})";
}

struct KeptCase {
  graph::Graph graph;
  std::unique_ptr<sharding::ShardingModel> model;
  machine::Cluster cluster = machine::load_cluster("h100-1x8");

  KeptCase(const std::string& text, int shards) : graph(hlo::read_hlo_text(text, "test")) {
    sharding::ModelOptions options;
    options.shards = shards;
    model = std::make_unique<sharding::ShardingModel>(sharding::ShardingModel::build(graph, options));
  }
  Planned plan(bool data, bool keep = true, models::PartitionObjective objective = models::PartitionObjective::kTime) {
    PlanningRequest request;
    request.data = data;
    request.keep_shardings = keep;
    request.reshard = true;
    request.objective = objective;
    return make_plan(model.get(), profile::reference_device("", cluster), cluster, request);
  }
  // "1", "-1": along which an input is split.
  int dim_of(const Planned& planned, const std::string& name) const {
    for (const PlanTensor& input : planned.plan.inputs) {
      if (input.name == name) return input.dim;
    }
    ADD_FAILURE() << name;
    return -2;
  }
  static std::string left_of(const Planned& planned, const std::string& name) {
    for (const PlanKept& kept : planned.plan.kept) {
      if (kept.tensor == name) return kept.left;
    }
    return "not among what is kept";
  }
};

TEST(KeptShardings, WhatIsGivenIsKeptAndTheRestDecided) {
  for (const int dim : {0, 1}) {
    const std::string tiles = dim == 0 ? "[8,1]" : "[1,8]";
    KeptCase c(step_text(", sharding={devices=" + tiles + "<=[8]}", ""), 8);
    const Planned planned = c.plan(false);
    EXPECT_EQ(c.dim_of(planned, "w"), dim);
    EXPECT_EQ(KeptCase::left_of(planned, "w"), "");
    EXPECT_EQ(planned.plan.partitioned, 1);
    for (const std::string& warning : planned.plan.warnings) EXPECT_THAT(warning, Not(HasSubstr("set aside")));
  }
  KeptCase whole(step_text(", sharding={replicated}", ", sharding={devices=[8,1]<=[8]}"), 8);
  const Planned planned = whole.plan(false);
  EXPECT_EQ(whole.dim_of(planned, "w"), -1);
  EXPECT_EQ(whole.dim_of(planned, "x"), 0);
  EXPECT_TRUE(planned.plan.reshards.empty());
  // Without the option nothing is taken up, and it is said.
  KeptCase aside(step_text(", sharding={devices=[8,1]<=[8]}", ""), 8);
  const Planned free = aside.plan(false, false);
  EXPECT_TRUE(free.plan.kept.empty());
  EXPECT_THAT(free.plan.warnings, testing::Contains(HasSubstr("set aside")));
}

TEST(KeptShardings, TheDataIsDecidedBesideWhatIsStored) {
  // ZeRO 3 as somebody wrote it: w in parts, and gathered where the batch goes through.
  KeptCase c(step_text(", sharding={devices=[8,1]<=[8]}", ", sharding={devices=[8,1]<=[8]}"), 8);
  const Planned planned = c.plan(true);
  EXPECT_EQ(c.dim_of(planned, "w"), 0);
  EXPECT_EQ(c.dim_of(planned, "x"), 0);
  ASSERT_FALSE(planned.plan.reshards.empty());
  bool gathered = false;
  for (const PlanReshard& reshard : planned.plan.reshards) {
    EXPECT_GT(reshard.ms, 0);
    gathered = gathered || (reshard.kind == "all-gather" && reshard.instruction == "w" && reshard.bytes == 32 * 64 * 4);
  }
  EXPECT_TRUE(gathered);
}

TEST(KeptShardings, AMarkThatIsOtherwiseIsAReshard) {
  // Along the batch before the mark, along the features behind it.
  KeptCase c(step_text("", ", sharding={devices=[8,1]<=[8]}", ", sharding={devices=[1,8]<=[8]}"), 8);
  const Planned planned = c.plan(false);
  EXPECT_EQ(c.dim_of(planned, "x"), 0);
  ASSERT_EQ(planned.plan.kept.size(), 2U);
  EXPECT_EQ(planned.plan.kept[1].tensor, "y");
  EXPECT_EQ(planned.plan.kept[1].dim, 1);
  EXPECT_EQ(planned.plan.kept[1].left, "");
  ASSERT_FALSE(planned.plan.reshards.empty());
  const PartitionPlan again = parse_partition_plan(to_json_text(planned.plan), "again");
  EXPECT_EQ(to_json_text(again), to_json_text(planned.plan));
}

TEST(KeptShardings, OneAxisOfAMeshIsPlanned) {
  const auto named = [](const std::string& dims) {
    return ", frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, [" + dims + "]>\"}";
  };
  const std::string of_x = named("{\\\"y\\\"}, {}"), of_w = named("{}, {\\\"x\\\"}");
  // Over x=4 the sharding of w is kept, over y=2 that of x; the other is whole over it, and named.
  KeptCase four(step_text(of_w, of_x), 4);
  const Planned by_x = four.plan(false);
  EXPECT_EQ(four.dim_of(by_x, "w"), 1);
  EXPECT_EQ(four.dim_of(by_x, "x"), -1);
  EXPECT_EQ(KeptCase::left_of(by_x, "x"), "2 parts of dimension 0: another axis than is planned");
  KeptCase two(step_text(of_w, of_x), 2);
  const Planned by_y = two.plan(true);
  EXPECT_EQ(two.dim_of(by_y, "w"), -1);
  EXPECT_EQ(two.dim_of(by_y, "x"), 0);
  // All eight as one axis: neither is what one axis can say.
  KeptCase eight(step_text(of_w, of_x), 8);
  EXPECT_THAT(KeptCase::left_of(eight.plan(false), "w"),
              HasSubstr("4 parts with 2 copies of each are not what one axis of 8 devices can say"));
  // Over both dimensions: the larger number of parts is kept.
  KeptCase both(step_text(named("{\\\"y\\\"}, {\\\"x\\\"}"), ""), 8);
  const Planned cut = both.plan(false);
  EXPECT_EQ(both.dim_of(cut, "w"), 1);
  EXPECT_EQ(KeptCase::left_of(cut, "w"),
            "2 parts of dimension 0, 4 parts of dimension 1 become 8: one axis of 8 devices cuts one dimension");
  KeptCase three(step_text(of_w, of_x), 3);
  EXPECT_THAT(why_not_kept(*three.model), HasSubstr("no axis of 3 devices: they split over axes of 2, 4"));
  try {
    three.plan(false);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
  }
}

TEST(KeptShardings, WhatTheDevicesDoNotDivideIsNamed) {
  KeptCase c(step_text("", ", sharding={devices=[1,8]<=[8]}", ", sharding={devices=[1,8]<=[8]}"), 8);
  const Planned planned = c.plan(false);
  EXPECT_EQ(KeptCase::left_of(planned, "x"), "");
  std::string odd = step_text("", ", sharding={devices=[8,1]<=[8]}");
  for (std::size_t at = odd.find("[16,"); at != std::string::npos; at = odd.find("[16,")) odd.replace(at, 4, "[12,");
  KeptCase twelve(odd, 8);
  EXPECT_EQ(KeptCase::left_of(twelve.plan(false), "x"), "8 devices do not divide the 12 of dimension 0");
}

TEST(KeptShardings, OpenDimensionsAreDecided) {
  const auto x_is = [](const std::string& dims) {
    return ", frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, [" + dims + "]>\"}";
  };
  const std::string of_x = x_is("{\\\"x\\\", \\\"y\\\"}, {}");
  KeptCase open(step_text(x_is("{?}, {?}"), of_x), 8), closed(step_text(x_is("{}, {}"), of_x), 8);
  const Planned free = open.plan(false, true, models::PartitionObjective::kCount);
  const Planned kept = closed.plan(false, true, models::PartitionObjective::kCount);
  EXPECT_EQ(closed.dim_of(kept, "w"), -1);
  EXPECT_GE(free.plan.partitioned, kept.plan.partitioned);
}

// The search beside what is given against all choices.
TEST(KeptSearch, FindsTheBestOfAllThatHoldsWhatIsGiven) {
  models::PartitionProblem problem;
  problem.objective = models::PartitionObjective::kTime;
  problem.compute_ms = 100;
  problem.memory_bytes = 1000;
  const double saved[] = {5, 4, 3, 8, 2, 6}, paid[] = {1, 1, 4, 1, 1, 0};
  for (int g = 0; g < 6; ++g) {
    problem.variables.push_back({"v" + std::to_string(g), {8}, 10});
    models::PartitionGroup group;
    group.members = {{g, 0}};
    group.saved_ms = saved[g];
    group.collective_ms = paid[g];
    problem.groups.push_back(group);
  }
  const auto exclude = [&](std::int32_t a, std::int32_t b) {
    problem.groups[static_cast<std::size_t>(a)].excludes.push_back(b);
    problem.groups[static_cast<std::size_t>(b)].excludes.push_back(a);
  };
  exclude(0, 3);
  exclude(1, 5);
  exclude(2, 4);
  for (int split = 0; split < 6; ++split) {
    for (int whole = 0; whole < 6; ++whole) {
      if (whole == split) continue;
      GivenGroups given;
      given.split = {split};
      given.whole = {whole};
      for (const std::int32_t other : problem.groups[static_cast<std::size_t>(split)].excludes) {
        if (other != whole) given.whole.push_back(other);
      }
      given.with.compute_ms = 100 - saved[split];
      given.with.collective_ms = paid[split];
      given.with.step_ms = given.with.compute_ms + given.with.collective_ms;
      given.with.memory_bytes = 1000;
      double best = 0;
      for (unsigned chosen = 0; chosen < 64; ++chosen) {
        if ((chosen >> split & 1) == 0 || (chosen >> whole & 1) != 0) continue;
        std::vector<std::int32_t> groups;
        for (int g = 0; g < 6; ++g) {
          if ((chosen >> g & 1) != 0) groups.push_back(g);
        }
        const models::PartitionScore score = models::score(problem, groups);
        if (!score.conflict && (best == 0 || score.step_ms < best)) best = score.step_ms;
      }
      const PartitionAnswer answer = run_search_beside(problem, given, {}).front();
      EXPECT_NEAR(answer.score.step_ms, best, 1e-9) << split << " " << whole;
      EXPECT_NEAR(models::score(problem, answer.groups).step_ms, best, 1e-9);
      EXPECT_NEAR(answer.score.value, given.with.step_ms - best, 1e-9);
      EXPECT_TRUE(answer.proven);
    }
  }
}

}  // namespace
}  // namespace automap::partition
