// Plans that the searchers find on whole models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/partition_search.h"

namespace automap::partition {
namespace {

using models::PartitionObjective;

struct SearchCase {
  hlo::HloModule module;
  sharding::ShardingModel model;
  std::unique_ptr<PartitionCost> cost;
  models::PartitionProblem problem;
  std::vector<sharding::GroupId> groups;

  sharding::Propagation decide(const PartitionAnswer& answer) const {
    sharding::Propagation decided(model.linkage());
    for (const std::int32_t g : answer.groups) EXPECT_FALSE(decided.split_group(groups[static_cast<std::size_t>(g)]));
    return decided;
  }
  // Variable -> dimension; -1: whole.
  std::map<std::string, int> dims(const PartitionAnswer& answer) const {
    std::map<std::string, int> out;
    for (const models::PartitionVariable& variable : problem.variables) out[sharding::path_of(variable.name)] = -1;
    for (const std::int32_t g : answer.groups) {
      for (const auto& [v, d] : problem.groups[static_cast<std::size_t>(g)].members)
        out[sharding::path_of(problem.variables[static_cast<std::size_t>(v)].name)] = d;
    }
    return out;
  }
};

std::unique_ptr<SearchCase> load_search(const std::string& name, PartitionObjective objective,
                                        const std::string& cluster, const std::string& device, bool data = false,
                                        int shards = 8) {
  auto c = std::make_unique<SearchCase>();
  c->module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name);
  sharding::ModelOptions options;
  options.shards = shards;
  c->model = sharding::ShardingModel::build(c->module.graph, options);
  c->cost = std::make_unique<PartitionCost>(c->model, machine::load_device(device), machine::load_cluster(cluster));
  c->problem = make_problem(c->model, *c->cost, data ? c->model.data() : c->model.variables(), objective,
                            c->cost->capacity_bytes(), &c->groups);
  return c;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The plan of the paper's Tables 3 and 4, which is Megatron's, found by the estimate alone.
TEST(Plans, TimeFindsMegatron) {
  const std::vector<std::pair<std::string, std::string>> machines = {{"config-a", "v100-16gb"}, {"h100-1x8", "h100"}};
  for (const auto& [cluster, device] : machines) {
    SCOPED_TRACE(cluster);
    const auto c = load_search("t5_6_6.hlo.gz", PartitionObjective::kTime, cluster, device);
    const auto answers = run_search(c->problem, {});
    const PartitionAnswer& best = answers[0];
    EXPECT_TRUE(best.proven);
    EXPECT_GE(best.score.variables, 111);
    const PlanEstimate plan = c->cost->estimate(c->decide(best));
    EXPECT_LE(plan.all_reduce.count, 103);
    EXPECT_EQ(plan.all_gather.count, 0);
    EXPECT_LT(plan.step_ms, c->problem.compute_ms);
    int seen = 0;
    for (const auto& [name, dim] : c->dims(best)) {
      const std::map<std::string, int> expected = {
          {"q/kernel", 1},   {"k/kernel", 1},     {"v/kernel", 1},    {"o/kernel", 0},  {"conv1/kernel", 1},
          {"conv1/bias", 0}, {"conv2/kernel", 0}, {"conv2/bias", -1}, {"embedding", 0}, {"scale", -1}};
      for (const auto& [end, wanted] : expected) {
        if (!ends_with(name, end)) continue;
        EXPECT_EQ(dim, wanted) << name;
        ++seen;
      }
    }
    EXPECT_GE(seen, 130);
  }
}

// As many variables as possible: proven, and more than the paper's 111, 432 and 5.
TEST(Plans, CountsAreProven) {
  const auto count = [](const std::string& name) {
    const auto c = load_search(name, PartitionObjective::kCount, "h100-1x8", "h100");
    const auto answers = run_search(c->problem, {});
    EXPECT_TRUE(answers[0].proven) << name;
    EXPECT_EQ(answers[0].bound, answers[0].score.variables);
    return answers[0].score.variables;
  };
  // All but the inner biases of the feed-forward blocks and that of the softmax.
  EXPECT_EQ(count("t5_6_6.hlo.gz"), 188 - 13);
  EXPECT_EQ(count("t5_24_24.hlo.gz"), 728 - 49);
  EXPECT_GE(count("vgg19.hlo.gz"), 5);
}

// 49.7 GiB with nothing split, 16 GiB per device.
TEST(Plans, Memory) {
  const auto c = load_search("t5_24_24.hlo.gz", PartitionObjective::kCount, "config-a", "v100-16gb");
  const auto answers = run_search(c->problem, {});
  EXPECT_TRUE(answers[0].proven);
  EXPECT_TRUE(answers[0].score.fits);
  EXPECT_GE(answers[0].score.variables, 432);
  models::PartitionProblem tight = c->problem;
  tight.capacity_bytes = 1e9;
  try {
    run_search(tight, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInfeasible);
    EXPECT_THAT(error.what(), testing::HasSubstr("no plan fits into the 953.674 MiB"));
  }
}

// Over 16 devices the two groups that partition most save too little: one of them makes room for its layers' groups.
TEST(Plans, MemoryMakesRoom) {
  const auto c = load_search("t5_24_24.hlo.gz", PartitionObjective::kCount, "config-a", "v100-16gb", false, 16);
  const PartitionAnswer exact = search_enumerate(c->problem, {});
  EXPECT_TRUE(exact.proven);
  EXPECT_TRUE(exact.score.fits);
  for (const PartitionAnswer& answer : {search_greedy(c->problem, {}), search_cost(c->problem, {})}) {
    EXPECT_TRUE(answer.score.fits) << answer.algorithm;
    EXPECT_GE(answer.score.variables, 432) << answer.algorithm;
    EXPECT_LE(answer.score.variables, exact.score.variables) << answer.algorithm;
  }
}

// Layers that are alike are worth the same, to the bit: equal parts are recognised by it.
TEST(Plans, EqualLayersHaveEqualValues) {
  const auto c = load_search("t5_24_24.hlo.gz", PartitionObjective::kTime, "h100-1x8", "h100");
  std::set<std::pair<double, double>> values;
  for (std::size_t g = 0; g < c->problem.groups.size(); ++g)
    values.insert({c->problem.value(static_cast<std::int32_t>(g)), c->problem.groups[g].saved_bytes});
  EXPECT_EQ(c->problem.groups.size(), 125u);
  EXPECT_LE(values.size(), 16u);
}

// ADP: the batch.
TEST(Plans, DataParallel) {
  const auto c = load_search("t5_6_6.hlo.gz", PartitionObjective::kCount, "h100-1x8", "h100", true);
  const auto answers = run_search(c->problem, {});
  EXPECT_TRUE(answers[0].proven);
  for (const auto& [name, dim] : c->dims(answers[0])) EXPECT_EQ(dim, 0) << name;
}

}  // namespace
}  // namespace automap::partition
