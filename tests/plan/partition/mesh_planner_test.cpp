#include "plan/partition/mesh_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "common/sharding/collectives.h"
#include "profile/profile_hlo.h"

namespace automap::partition {
namespace {

using sharding::Collective;
using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorStateKind;
using ::testing::HasSubstr;

struct MeshCase {
  explicit MeshCase(const std::string& name, const std::string& cluster_name = "config-a")
      : module(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name)),
        cluster(machine::load_cluster(cluster_name)),
        device(profile::reference_device("", cluster)),
        model(ShardingModel::build(module.graph, {})) {}
  PlannedMesh plan(int data, int width, std::optional<Zero> zero = Zero::kOff, bool reshard = true) const {
    MeshRequest request;
    request.data = data;
    request.model = width;
    request.zero = zero;
    request.operators.reshard = reshard;
    return make_mesh_plan(model, device, cluster, request);
  }
  hlo::HloModule module;
  machine::Cluster cluster;
  machine::DeviceModel device;
  ShardingModel model;
};

double parts(const Propagation& decided, sharding::NodeId node) {
  return decided.state(node).kind == TensorStateKind::kSplit ? decided.linkage().shards() : 1;
}

bool made_whole(const ShardingModel& model, sharding::NodeId node) {
  const auto& gathers = model.gathers();
  return std::any_of(gathers.begin(), gathers.end(), [&](const sharding::Gather& gather) {
    return gather.tensor == node && sharding::is_made_whole(model.flow(), gather);
  });
}

// The direct formula: every axis's collectives one by one, each of what the other axis leaves; only latencies that are
// paid together are the cost's own affair, so that links without any are asked.
TEST(MeshPlanner, CollectivesAreOfWhatTheOtherAxisLeaves) {
  for (const char* name : {"tiny_mlp.hlo", "gpt2.hlo.gz", "moe_dense.hlo.gz", "scan_remat.hlo.gz"}) {
    for (const Zero zero : {Zero::kOff, Zero::kOptimizer, Zero::kFull}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(static_cast<int>(zero)));
      const MeshCase c(name);
      const PlannedMesh planned = c.plan(2, 2, zero);
      const auto sum = [&](const MeshAxis& axis, const MeshAxis& other, const ShardLinks& links) {
        double ms = 0;
        for (const Collective& one : find_collectives(axis.model, *axis.decided, sharding::Placement::kAtOnce)) {
          const bool reduce = one.reduces();
          const double left = reduce && made_whole(other.model, one.node) ? 1 : parts(*other.decided, one.node);
          const auto& time = !reduce                                      ? links.all_gather
                             : one.kind == CollectiveKind::kReduceScatter ? links.reduce_scatter
                                                                          : links.all_reduce;
          ms += one.times * (time.ms(one.bytes / left) - time.latency_ms());
        }
        return ms;
      };
      const double data = sum(planned.data, planned.model, planned.price.outer_links);
      const double model = sum(planned.model, planned.data, planned.price.links);
      // Latencies come on top.
      EXPECT_GE(planned.plan.data_collective_ms, data * (1 - 1e-9));
      EXPECT_GE(planned.plan.model_collective_ms, model * (1 - 1e-9));
      EXPECT_LE(planned.plan.data_collective_ms, data + 1);
      EXPECT_LE(planned.plan.model_collective_ms, model + 3);
    }
  }
}

// Everything that a model axis may split, tried: on a small module the plan is the best of all.
TEST(MeshPlanner, TheModelAxisIsTheBestOfAll) {
  const MeshCase c("tiny_mlp.hlo");
  const PlannedMesh planned = c.plan(2, 2, Zero::kOff, false);
  const ShardingModel model = c.model.another_axis(2);
  const PartitionCost outer(planned.data.model, c.device, c.cluster, nullptr, 2);
  const OtherAxis left = outer.as_other(*planned.data.decided);
  const PartitionCost cost(model, c.device, c.cluster, &left);
  std::vector<sharding::GroupId> groups;
  for (const std::int32_t variable : model.variables()) {
    const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(variable)].node;
    for (const sharding::GroupId group : model.linkage().groups_of(node)) {
      if (group != sharding::kNone && model.linkage().decidable(group)) groups.push_back(group);
    }
  }
  double least = HUGE_VAL;
  int tried = 0;
  for (unsigned choice = 0; choice < 1U << groups.size(); ++choice) {
    Propagation decided(model.linkage());
    bool possible = true;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if ((choice >> g & 1U) != 0) possible = possible && !decided.split(model.linkage().inputs(groups[g])[0]);
    }
    if (!possible) continue;
    ++tried;
    least = std::min(least, cost.estimate(decided).step_ms);
  }
  EXPECT_GT(tried, 4);
  EXPECT_NEAR(planned.plan.step_ms, least, 1e-9 * least);
}

// A replica on a slower server: the model axis is as slow as there.
TEST(MeshPlanner, ReplicasOnSlowerServersCount) {
  MeshCase c("tiny_mlp.hlo");
  c.cluster.servers.assign(2, c.cluster.servers[0]);
  for (machine::ServerGroup& server : c.cluster.servers) {
    server.count = 1;
    server.links = {};
  }
  c.cluster.servers[1].intra_gbytes_per_s = 5;
  const ShardLinks mixed = c.plan(2, 8).price.links;
  EXPECT_EQ(mixed.gbytes_per_s, 5);
  c.cluster.servers[0].intra_gbytes_per_s = 5;
  EXPECT_EQ(mixed.all_reduce, c.plan(2, 8).price.links.all_reduce);
}

TEST(MeshPlanner, OneAxisIsWhatItWas) {
  const MeshCase c("t5_6_6.hlo.gz");
  const PlannedMesh mesh = c.plan(1, 8);
  ShardingModel model = c.model.another_axis(8);
  PlanningRequest request;
  request.reshard = true;
  const Planned one = make_plan(&model, c.device, c.cluster, request);
  EXPECT_NEAR(mesh.plan.step_ms, one.plan.step_ms, 1e-9 * one.plan.step_ms);
  EXPECT_EQ(mesh.plan.memory_bytes, one.plan.memory_bytes);
  EXPECT_EQ(mesh.plan.data_collective_ms, 0);
}

TEST(MeshPlanner, StoringInPartsSavesMemory) {
  const MeshCase c("gpt2.hlo.gz");
  double last = HUGE_VAL;
  for (const Zero zero : {Zero::kOff, Zero::kOptimizer, Zero::kFull}) {
    const PlannedMesh planned = c.plan(4, 1, zero);
    EXPECT_LT(planned.price.memory.arguments, last);
    last = planned.price.memory.arguments;
    EXPECT_EQ(planned.plan.zero, static_cast<int>(zero));
  }
}

// No level of ZeRO is left out where it is the quickest that fits.
TEST(MeshPlanner, TheQuickestLevelThatFitsIsTaken) {
  const MeshCase c("moe_small.hlo.gz");
  MeshRequest request;
  request.data = 2;
  request.model = 8;
  request.operators.reshard = true;
  request.operators.memory_limit_bytes = 133.1 * (1 << 20);
  const MeshPlan found = make_mesh_plan(c.model, c.device, c.cluster, request).plan;
  EXPECT_LE(found.memory_bytes, request.operators.memory_limit_bytes);
  for (const Zero zero : {Zero::kOptimizer, Zero::kFull}) {
    EXPECT_LE(found.step_ms, c.plan(2, 8, zero).plan.step_ms * (1 + 1e-9)) << static_cast<int>(zero);
  }
}

// Experts of a mixture lie over the data axis, and tokens go to them: quicker than every expert on every device. What
// has no experts is split as before.
TEST(MeshPlanner, ExpertsOverTheDataAxis) {
  for (const auto& [name, experts] :
       {std::make_pair("moe_dense.hlo.gz", 2), {"moe_sort.hlo.gz", 2}, {"gpt2.hlo.gz", 0}, {"bert_large.hlo.gz", 0}}) {
    SCOPED_TRACE(name);
    const MeshCase c(name);
    const PlannedMesh planned = c.plan(4, 1, Zero::kOff);
    int split = 0;
    for (const std::int32_t variable : planned.data.model.variables()) {
      const auto& input = planned.data.model.inputs()[static_cast<std::size_t>(variable)];
      if (parts(*planned.data.decided, input.node) == 1) continue;
      ++split;
      EXPECT_THAT(input.name, HasSubstr("experts"));
    }
    EXPECT_EQ(split, experts);
    // Against the batch alone.
    ShardingModel model = c.model.another_axis(4);
    const DataChoice batch = choose_batch(&model);
    Propagation decided(model.linkage());
    for (const sharding::GroupId group : batch.groups) decided.split(model.linkage().inputs(group)[0]);
    const double without_ms = PartitionCost(model, c.device, c.cluster).estimate(decided).step_ms;
    if (experts > 0) {
      EXPECT_LT(planned.plan.step_ms, 0.99 * without_ms);
      EXPECT_THAT(planned.plan.warnings, ::testing::Contains(HasSubstr("also splits 2 variables of experts")));
    } else {
      EXPECT_NEAR(planned.plan.step_ms, without_ms, 1e-9 * without_ms);
    }
  }
}

// Where the data axis splits no experts it does not say that tokens go to them.
TEST(MeshPlanner, NoExpertsAreNamedWhereNoneAreSplit) {
  const MeshCase c("moe_small.hlo.gz");
  const std::vector<std::string> warnings = c.plan(2, 8).plan.warnings;
  EXPECT_THAT(warnings, ::testing::Contains(HasSubstr("the data axis splits no experts")));
  EXPECT_THAT(warnings, ::testing::Not(::testing::Contains(HasSubstr("0 variables of experts"))));
}

// A cluster of more servers never gets a slower plan.
TEST(MeshPlanner, MoreDevicesAreNeverSlower) {
  const MeshCase c("scan_remat.hlo.gz", "a100-2x8");
  double last = HUGE_VAL;
  for (const int servers : {1, 2, 4, 8, 16, 32}) {
    machine::Cluster cluster = c.cluster;
    cluster.servers.resize(1);
    cluster.servers[0].count = servers;
    MeshRequest request;
    request.operators.reshard = true;
    request.operators.fit_device = true;
    const PlannedMesh planned = best_mesh_plan(c.model, c.device, cluster, request);
    EXPECT_LE(planned.plan.step_ms, last * (1 + 1e-12)) << servers;
    EXPECT_LE(planned.plan.devices(), 8 * servers);
    last = planned.plan.step_ms;
  }
}

std::string mesh_complaint(const MeshCase& c, int data, int width, ErrorKind kind) {
  try {
    c.plan(data, width);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return std::string(e.what()) + " | " + e.hint();
  }
  ADD_FAILURE() << "planned " << data << " x " << width;
  return "";
}

TEST(MeshPlanner, RefusesWhatCannotBe) {
  const MeshCase c("tiny_mlp.hlo");
  EXPECT_THAT(mesh_complaint(c, 8, 4, ErrorKind::kUsage), HasSubstr("needs 32 devices; cluster 'config-a' has 16"));
  EXPECT_THAT(mesh_complaint(c, 1, 16, ErrorKind::kUsage), HasSubstr("8"));
  EXPECT_THAT(mesh_complaint(c, 3, 2, ErrorKind::kData), HasSubstr("cannot split the batch"));
}

TEST(MeshPlan, ReadsWhatItWrote) {
  const MeshCase c("moe_dense.hlo.gz");
  const PlannedMesh planned = c.plan(4, 2, Zero::kFull);
  const std::string text = to_json_text(planned.plan);
  const MeshPlan read = parse_mesh_plan(text, "plan.json");
  EXPECT_EQ(to_json_text(read), text);
  std::vector<std::string> warnings;
  const AppliedMesh applied = apply_mesh_plan(c.model, read, "", &warnings);
  EXPECT_TRUE(warnings.empty());
  const auto sorted = [](std::vector<sharding::GroupId> groups) {
    std::sort(groups.begin(), groups.end());
    return groups;
  };
  EXPECT_EQ(sorted(applied.data_decided.split_groups()), sorted(planned.data.decided->split_groups()));
  EXPECT_EQ(sorted(applied.model_decided.split_groups()), sorted(planned.model.decided->split_groups()));
  const Price again =
      price({&applied.data, &applied.data_decided}, {&applied.model, &applied.model_decided}, c.device, c.cluster);
  EXPECT_DOUBLE_EQ(again.estimate.step_ms, planned.plan.step_ms);
  EXPECT_EQ(again.memory.total, planned.plan.memory_bytes);
}

std::string refusal(const std::string& text) {
  try {
    parse_mesh_plan(text, "plan.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    return e.what();
  }
  ADD_FAILURE() << "read " << text;
  return "";
}

TEST(MeshPlan, RefusesWhatIsWrong) {
  const std::string head = R"({"schema": "automap.plan/1", "kind": "mesh", )";
  EXPECT_THAT(refusal(head + R"("axes": {}})"), HasSubstr("mesh"));
  EXPECT_THAT(refusal(head + R"("mesh": {"data": 4}, "axes": {}})"), HasSubstr("model"));
  EXPECT_THAT(refusal(head + R"("mesh": {"data": 4, "model": 0}, "axes": {}})"), HasSubstr("model"));
  EXPECT_THAT(refusal(head + R"("mesh": {"data": 4, "model": 2}, "shards": 9, "axes": {}})"), HasSubstr("4 x 2"));
  EXPECT_THAT(refusal(head + R"("mesh": {"data": 4, "model": 2}, "axes": {"data": {"shards": 2}}})"),
              HasSubstr("mesh says 4"));
  EXPECT_THAT(refusal(head + R"("mesh": {"data": 4, "model": 2}, "axes": {"model": {"kind": "data"}}})"),
              HasSubstr("expected \"operator\""));
  // By hand: partitions alone.
  const MeshPlan plan = parse_mesh_plan(
      head + R"("mesh": {"data": 4, "model": 2}, "axes": {"data": {"partition": {"batch/x": 0}}}})", "plan.json");
  EXPECT_EQ(plan.devices(), 8);
  EXPECT_EQ(plan.data_axis.partitioned, 1);
  const MeshCase c("tiny_mlp.hlo");
  MeshPlan both = plan;
  // 16 samples over 4 x 8 devices.
  both.model_axis.shards = 8;
  both.model_axis.inputs = plan.data_axis.inputs;
  both.model_axis.decided = plan.data_axis.decided;
  try {
    apply_mesh_plan(c.model, both);
    ADD_FAILURE() << "16 samples over 32 devices";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInfeasible);
    EXPECT_THAT(e.what(), HasSubstr("4 x 8 parts, which do not divide 16"));
  }
}

}  // namespace
}  // namespace automap::partition
