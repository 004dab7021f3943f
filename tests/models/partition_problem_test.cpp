#include "models/partition_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace automap::models {
namespace {

using testing::HasSubstr;

// Two matrices in a row: the hidden dimension (group 0) or the outer one (group 1), and a bias of its own (group 2).
PartitionProblem two_matrices() {
  PartitionProblem problem;
  problem.variables = {{"w1", {8, 32}, 1024}, {"w2", {32, 8}, 1024}, {"bias", {5, 16}, 320}};
  problem.groups.resize(3);
  problem.groups[0] = {{{0, 1}, {1, 0}}, 3, 1, 1792, 100, 1, {1}};
  problem.groups[1] = {{{0, 0}, {1, 1}}, 3, 2.5, 1792, 300, 2, {0}};
  problem.groups[2] = {{{2, 1}}, 0, 0.25, 280, 10, 1, {}};
  problem.impossible = {{2, 0}};
  problem.compute_ms = 10;
  problem.collective_ms = 1;
  problem.memory_bytes = 2368;
  return problem;
}

std::string why(const PartitionProblem& problem) {
  try {
    check_partition_problem(problem);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    return error.what();
  }
  return "";
}

TEST(PartitionProblem, Score) {
  PartitionProblem problem = two_matrices();
  check_partition_problem(problem);
  EXPECT_EQ(problem.num_dims(), 6);
  EXPECT_EQ(problem.value(0), 2);
  const PartitionScore count = score(problem, {2, 0});
  EXPECT_EQ(count.variables, 3);
  EXPECT_EQ(count.value, 3);
  EXPECT_EQ(count.compute_ms, 7);
  EXPECT_EQ(count.collective_ms, 2.25);
  EXPECT_EQ(count.step_ms, 9.25);
  EXPECT_EQ(count.memory_bytes, 296);
  EXPECT_EQ(count.collective_bytes, 110);
  EXPECT_TRUE(count.fits);
  EXPECT_FALSE(count.conflict);
  EXPECT_TRUE(score(problem, {1, 0}).conflict);
  EXPECT_TRUE(score(problem, {1, 1}).conflict);
  problem.objective = PartitionObjective::kTime;
  problem.capacity_bytes = 500;
  EXPECT_EQ(problem.value(1), 0.5);
  EXPECT_EQ(problem.value(2), -0.25);
  EXPECT_FALSE(score(problem, {0}).fits);
  EXPECT_TRUE(score(problem, {0, 2}).fits);
  EXPECT_EQ(score(problem, {}).step_ms, 11);
}

TEST(PartitionProblem, Empty) {
  const PartitionProblem problem;
  check_partition_problem(problem);
  EXPECT_EQ(problem.num_dims(), 0);
  EXPECT_EQ(score(problem, {}).value, 0);
}

TEST(PartitionProblem, Checks) {
  const auto broken = [](auto change) {
    PartitionProblem problem = two_matrices();
    change(problem);
    return why(problem);
  };
  EXPECT_EQ(why(two_matrices()), "");
  EXPECT_THAT(broken([](PartitionProblem& p) { p.groups[2].members.clear(); }), HasSubstr("group 2 is empty"));
  EXPECT_THAT(broken([](PartitionProblem& p) {
                p.groups[2].members = {{3, 0}};
              }),
              HasSubstr("not among the variables"));
  EXPECT_THAT(broken([](PartitionProblem& p) {
                p.groups[2].members = {{2, 2}};
              }),
              HasSubstr("not among the dimensions"));
  EXPECT_THAT(broken([](PartitionProblem& p) { p.groups[2].members = {{2, 0}}; }), HasSubstr("stands in two places"));
  EXPECT_THAT(broken([](PartitionProblem& p) { p.groups[0].members = {{1, 0}, {0, 1}}; }), HasSubstr("not ascending"));
  EXPECT_THAT(broken([](PartitionProblem& p) { p.groups[0].saved_ms = -1; }), HasSubstr("saved_ms"));
  EXPECT_THAT(broken([](PartitionProblem& p) { p.memory_bytes = 1.0 / 0.0; }), HasSubstr("memory_bytes"));
  EXPECT_THAT(broken([](PartitionProblem& p) { p.groups[0].excludes.clear(); }), HasSubstr("other way round"));
  EXPECT_THAT(broken([](PartitionProblem& p) { p.groups[0].excludes = {0, 1}; }), HasSubstr("excludes 0"));
  EXPECT_THAT(broken([](PartitionProblem& p) {
                p.groups[0].excludes.clear();
                p.groups[1].excludes.clear();
              }),
              HasSubstr("two dimensions of one variable"));
}

}  // namespace
}  // namespace automap::models
