#include "plan/partition/partition_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>

#include "common/base/error.h"
#include "common/base/rng.h"
#include "common/hlo/hlo_reader.h"
#include "plan/partition/partition_search.h"
#include "profile/profiler.h"
#include "profile/time_estimator.h"
#include "tests/data_folders.h"

namespace automap::partition {
namespace {

struct LoadedMachine {
  hlo::HloModule module;
  sharding::ShardingModel model;
  machine::DeviceModel device;
  machine::Cluster cluster;
};
std::unique_ptr<LoadedMachine> load_machine(const std::string& name, int shards = 8,
                                            const std::string& cluster = "h100-1x8",
                                            const std::string& device = "h100") {
  auto module = hlo::load_hlo(kHloFixtures + name);
  auto loaded = std::make_unique<LoadedMachine>(
      LoadedMachine{std::move(module), {}, machine::load_device(device), machine::load_cluster(cluster)});
  sharding::ModelOptions options;
  options.shards = shards;
  loaded->model = sharding::ShardingModel::build(loaded->module.graph, options);
  return loaded;
}

std::vector<std::int32_t> all_inputs(const sharding::ShardingModel& model) {
  std::vector<std::int32_t> all(model.inputs().size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(PartitionCost, Collectives) {
  machine::Cluster cluster = machine::load_cluster("config-a");
  cluster.servers[0].intra_gbytes_per_s = 100;
  cluster.intra_latency_us = 5;
  const ShardLinks eight = shard_links(cluster, 8), one = shard_links(cluster, 1);
  EXPECT_DOUBLE_EQ(eight.all_reduce.ms(1e9), 2 * 7.0 / 8 * 10 + 14 * 5e-3);
  EXPECT_DOUBLE_EQ(eight.all_gather.ms(1e9), 7.0 / 8 * 10 + 7 * 5e-3);
  EXPECT_EQ(one.all_reduce.ms(1e9), 0);
  // Over two servers: rings through all devices, as slow as the ports.
  const ShardLinks sixteen = shard_links(cluster, 16);
  EXPECT_DOUBLE_EQ(sixteen.all_reduce.ms(1e9), 2 * (15.0 / 16 * 320 + 7 * 5e-3 + cluster.inter_latency_us * 1e-3));
}

TEST(PartitionCost, Links) {
  const machine::Cluster config_a = machine::load_cluster("config-a");
  EXPECT_EQ(shard_links(config_a, 8).gbytes_per_s, 130);
  EXPECT_TRUE(shard_links(config_a, 8).inside_server);
  EXPECT_EQ(shard_links(config_a, 16).gbytes_per_s, 3.125);
  EXPECT_FALSE(shard_links(config_a, 16).inside_server);
  EXPECT_EQ(shard_links(config_a, 1).gbytes_per_s, 130);
  EXPECT_THROW(shard_links(config_a, 17), Error);
  EXPECT_THROW(shard_links(config_a, 0), Error);
}

// The replicas of a mesh wait for each other: of all servers in use the slowest links count, on both axes.
TEST(PartitionCost, LinksOfAllServersInUseCount) {
  const auto two_servers = [](double first, double second) {
    machine::Cluster cluster = machine::load_cluster("config-a");
    cluster.servers.assign(2, cluster.servers[0]);
    for (machine::ServerGroup& server : cluster.servers) {
      server.count = 1;
      server.links = {};
    }
    cluster.servers[0].intra_gbytes_per_s = first;
    cluster.servers[1].intra_gbytes_per_s = second;
    return cluster;
  };
  const machine::Cluster slow = two_servers(5, 5);
  for (const machine::Cluster& mixed : {two_servers(130, 5), two_servers(5, 130)}) {
    // Two replicas of eight, and of four devices on three quarters of the cluster.
    EXPECT_EQ(shard_links(mixed, 8, 1, 2).all_reduce, shard_links(slow, 8, 1, 2).all_reduce);
    EXPECT_EQ(shard_links(mixed, 8, 1, 2).gbytes_per_s, 5);
    EXPECT_TRUE(shard_links(mixed, 8, 1, 2).inside_server);
    EXPECT_EQ(shard_links(mixed, 4, 1, 3).all_gather, shard_links(slow, 4, 1, 3).all_gather);
    EXPECT_EQ(shard_links(mixed, 4, 4).all_reduce, shard_links(slow, 4, 4).all_reduce);
  }
  // Two replicas of four stand in the first server that has room for both.
  EXPECT_EQ(shard_links(two_servers(130, 5), 4, 1, 2).gbytes_per_s, 130);
  EXPECT_THROW(shard_links(slow, 3, 1, 3), Error);  // a replica in two servers
  EXPECT_THROW(shard_links(slow, 8, 1, 3), Error);  // 24 devices of 16
}

// Where a server's links were measured, that counts, as it does for pipelines.
TEST(PartitionCost, MeasuredLinksCount) {
  const machine::Cluster cluster = machine::load_cluster("v100-2x8");
  const machine::MeasuredLinks& measured = machine::known_links("v100-32gb");
  ASSERT_FALSE(measured.empty());
  for (const int shards : {2, 4, 8}) {
    const auto time = measured.inside(CollectiveKind::kAllReduce, shards);
    ASSERT_TRUE(time);
    EXPECT_EQ(shard_links(cluster, shards).all_reduce, *time) << shards;
  }
  // Over servers no faster than inside one.
  EXPECT_GE(shard_links(cluster, 16).all_reduce.ms(1e9), shard_links(cluster, 8).all_reduce.ms(1e9));
}

// One latency for all that do not wait for each other: the query's, key's and value's in the backward pass; the
// gradients of all variables.
TEST(PartitionCost, CollectivesGoTogether) {
  const auto loaded = load_machine("t5_6_6.hlo.gz");
  const PartitionCost cost(loaded->model, loaded->device, loaded->cluster);
  const double wait = cost.links().all_reduce.latency_ms();
  ASSERT_GT(wait, 0);
  const auto waits = [&](sharding::GroupId group) {
    double moved = 0;
    for (const sharding::Collective& c : collectives_of_group(loaded->model, group, sharding::Placement::kAtOnce))
      moved += cost.links().all_reduce.ms(c.bytes) - wait;
    return (cost.effect(group).collective_ms - moved) / wait;
  };
  for (const sharding::ModelInput& input : loaded->model.inputs()) {
    if (input.role != graph::InputRole::kVariable && input.role != graph::InputRole::kStepInput) continue;
    const bool data = input.role == graph::InputRole::kStepInput;
    const bool query = sharding::path_of(input.name) == "params/encoder/layer/3/self_attention/q/kernel";
    if (!data && !query) continue;
    const sharding::GroupId group = loaded->model.linkage().group_of(input.node, query ? 1 : 0);
    ASSERT_TRUE(loaded->model.linkage().decidable(group)) << input.name;
    EXPECT_EQ(cost.effect(group).collectives, query ? 4 : cost.effect(group).collectives);
    if (query) {
      EXPECT_NEAR(waits(group), 2, 1e-6);
    } else {
      EXPECT_GT(cost.effect(group).collectives, 188);
      EXPECT_LT(waits(group), 10);
    }
  }
}

// In a conditional the branch that computes longest counts, with its collectives as with its compute: as if it stood
// there alone.
TEST(PartitionCost, CollectivesOfTheBranchThatCounts) {
  const std::string header = "HloModule m\n\n";
  const std::string dot = "f32[2048,4096]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";
  const std::string take =
      "  p = (f32[2048,4096]{1,0}, f32[4096,4096]{1,0}) parameter(0)\n"
      "  x = f32[2048,4096]{1,0} get-tuple-element(p), index=0\n"
      "  w = f32[4096,4096]{1,0} get-tuple-element(p), index=1\n";
  const std::string branches = header + "b1 {\n" + take + "  ROOT d = " + dot + "}\n\nb2 {\n" + take + "  d = " + dot +
                               "  ROOT n = f32[2048,4096]{1,0} negate(d)\n}\n\nENTRY main {\n"
                               "  c = pred[] parameter(0)\n  x = f32[2048,4096]{1,0} parameter(1)\n"
                               "  w = f32[4096,4096]{1,0} parameter(2)\n"
                               "  t = (f32[2048,4096]{1,0}, f32[4096,4096]{1,0}) tuple(x, w)\n"
                               "  ROOT r = f32[2048,4096]{1,0} conditional(c, t, t), true_computation=b1, "
                               "false_computation=b2\n}\n";
  const std::string alone = header +
                            "ENTRY main {\n  x = f32[2048,4096]{1,0} parameter(0)\n"
                            "  w = f32[4096,4096]{1,0} parameter(1)\n  d = " +
                            dot + "  ROOT n = f32[2048,4096]{1,0} negate(d)\n}\n";
  std::vector<PlanEstimate> estimates;
  std::vector<double> effects_ms;
  for (const std::string& text : {branches, alone}) {
    const hlo::HloModule module = hlo::read_hlo(text, "m.hlo");
    const sharding::ShardingModel model = sharding::ShardingModel::build(module.graph, {});
    const PartitionCost cost(model, machine::load_device("v100-16gb"), machine::load_cluster("config-a"));
    sharding::Propagation decided(model.linkage());
    const sharding::NodeId w = model.inputs()[static_cast<std::size_t>(model.find_input("w"))].node;
    ASSERT_FALSE(decided.split({w, 0}));
    estimates.push_back(cost.estimate(decided));
    effects_ms.push_back(cost.effect(model.linkage().group_of(w, 0)).collective_ms);
    double listed_ms = 0;
    for (const PartitionCost::CollectivePart& part : cost.parts(decided).collectives) listed_ms += part.ms;
    EXPECT_NEAR(listed_ms, estimates.back().collective_ms, 1e-9);
  }
  EXPECT_GT(estimates[1].collective_ms, 0);
  EXPECT_NEAR(estimates[0].collective_ms, estimates[1].collective_ms, 1e-9);
  EXPECT_NEAR(estimates[0].compute_ms, estimates[1].compute_ms, 1e-9);
  EXPECT_NEAR(effects_ms[0], effects_ms[1], 1e-9);
}

class Fixtures : public testing::TestWithParam<const char*> {};

const machine::CollectiveTime& time_of(const ShardLinks& links, CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ? links.all_reduce : links.all_gather;
}

// The waiting of one group by itself, a pass over all nodes.
double slow_collectives_ms(const LoadedMachine& loaded, const PartitionCost& cost, sharding::GroupId group) {
  const auto collectives = collectives_of_group(loaded.model, group, sharding::Placement::kAtOnce);
  const graph::FlowGraph& flow = loaded.model.flow();
  std::vector<int> behind(static_cast<std::size_t>(flow.size()), 0);  // collectives one after the other
  std::map<std::pair<int, CollectiveKind>, double> together;
  double out = 0;
  for (graph::NodeId id = 0; id < flow.size(); ++id) {
    int& here = behind[static_cast<std::size_t>(id)];
    for (const graph::NodeId operand : flow.operands(id))
      if (operand < id) here = std::max(here, behind[static_cast<std::size_t>(operand)]);
    bool any = false;
    for (const sharding::Collective& c : collectives) {
      if (c.node != id) continue;
      any = true;
      double& times = together[{here, c.written_kind()}];
      times = std::max(times, c.times);
      const machine::CollectiveTime& time = time_of(cost.links(), c.written_kind());
      out += c.times * (time.ms(c.bytes) - time.latency_ms());
    }
    if (any) ++here;
  }
  for (const auto& [level, times] : together) out += times * time_of(cost.links(), level.second).latency_ms();
  return out;
}

TEST_P(Fixtures, GroupsAtOnceAreGroupsOneByOne) {
  const auto loaded = load_machine(GetParam());
  const PartitionCost cost(loaded->model, loaded->device, loaded->cluster);
  std::vector<sharding::GroupId> groups;
  for (sharding::GroupId group = 0; group < loaded->model.linkage().num_groups(); ++group) {
    if (loaded->model.linkage().decidable(group)) groups.push_back(group);
  }
  const std::vector<PartitionCost::GroupEffect> effects = cost.effects(groups);
  ASSERT_EQ(effects.size(), groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const PartitionCost::GroupEffect alone = cost.effect(groups[i]);
    EXPECT_EQ(effects[i].collective_ms, alone.collective_ms);
    EXPECT_EQ(effects[i].saved_ms, alone.saved_ms);
    EXPECT_EQ(effects[i].collectives, alone.collectives);
    const double slow = slow_collectives_ms(*loaded, cost, groups[i]);
    EXPECT_NEAR(alone.collective_ms, slow, 1e-9 * (1 + slow));
  }
  EXPECT_TRUE(cost.effects({}).empty());
}

// The flow's nodes take as long as the module's instructions.
TEST_P(Fixtures, NothingSplit) {
  const auto loaded = load_machine(GetParam());
  const PartitionCost cost(loaded->model, loaded->device, loaded->cluster);
  const profile::InstructionTimes times = profile::estimate_times(loaded->module.graph, loaded->device);
  double entry = 0;
  const graph::Computation& computation = loaded->module.graph.entry();
  for (std::int32_t i = 0; i < computation.count; ++i)
    entry += times.ms[static_cast<std::size_t>(computation.first + i)];
  const PlanEstimate whole = cost.estimate(sharding::Propagation(loaded->model.linkage()));
  EXPECT_NEAR(whole.compute_ms, entry, 0.03 * entry);
  EXPECT_EQ(whole.collective_ms, 0);
  EXPECT_EQ(whole.all_reduce.count, 0);
  double parameters = 0;
  for (const sharding::ModelInput& input : loaded->model.inputs())
    parameters += static_cast<double>(loaded->model.flow().shape(input.node).bytes);
  EXPECT_EQ(whole.parameter_bytes, parameters);
  EXPECT_EQ(whole.memory_bytes, whole.parameter_bytes + whole.stash_bytes);
  profile::ProfilerOptions options;
  const profile::ModelProfile profile = profile::build_profile(loaded->module.graph, times, options);
  std::printf("%s: compute %.3f ms of %.3f, stash %.1f MB, profile's %.1f MB\n", GetParam(), whole.compute_ms, entry,
              whole.stash_bytes / 1e6, profile.memory.stash_bytes / 1e6);
}

// Effects add up, whatever is chosen.
TEST_P(Fixtures, EffectsAreAdditive) {
  const auto loaded = load_machine(GetParam());
  const sharding::Linkage& linkage = loaded->model.linkage();
  const PartitionCost cost(loaded->model, loaded->device, loaded->cluster);
  std::vector<sharding::GroupId> groups;
  const models::PartitionProblem problem =
      make_problem(loaded->model, cost, all_inputs(loaded->model), models::PartitionObjective::kTime, 0, &groups);
  Rng rng(11, 3, 0);
  std::vector<std::int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    sharding::Propagation decided(linkage);
    std::vector<std::int32_t> chosen;
    for (const std::int32_t g : order) {
      if (round > 0 && rng.uniform() < 0.3) continue;
      if (!decided.split_group(groups[static_cast<std::size_t>(g)])) chosen.push_back(g);
    }
    const PlanEstimate plan = cost.estimate(decided);
    const models::PartitionScore score = models::score(problem, chosen);
    EXPECT_FALSE(score.conflict);
    EXPECT_NEAR(plan.compute_ms, score.compute_ms, 1e-9 * problem.compute_ms);
    EXPECT_NEAR(plan.collective_ms, score.collective_ms, 1e-9 * (1 + score.collective_ms));
    EXPECT_NEAR(plan.memory_bytes, score.memory_bytes, 1e-9 * problem.memory_bytes);
    EXPECT_NEAR(plan.all_reduce.bytes + plan.all_gather.bytes, score.collective_bytes,
                1e-9 * (1 + score.collective_bytes));
    double count = 0;
    for (const std::int32_t g : chosen) count += problem.groups[static_cast<std::size_t>(g)].collectives;
    EXPECT_EQ(static_cast<double>(plan.all_reduce.count + plan.all_gather.count), count);
    EXPECT_GE(plan.compute_ms, problem.compute_ms / linkage.shards() * (1 - 1e-9));
    EXPECT_GE(plan.all_reduce.count, plan.all_reduce_delayed.count);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Fixtures,
                         testing::Values("tiny_mlp.hlo", "t5_6_6.hlo.gz", "vgg19.hlo.gz", "gpt2.hlo.gz",
                                         "moe_small.hlo.gz", "transformer_scan.hlo.gz", "transformer_remat.hlo.gz",
                                         "lit_small.hlo.gz"),
                         [](const auto& fixture) {
                           std::string name = fixture.param;
                           name = name.substr(0, name.find('.'));
                           return name;
                         });

}  // namespace
}  // namespace automap::partition
