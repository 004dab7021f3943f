#include "plan/systems/soap/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "plan/systems/soap/proposals.h"
#include "tests/plan/systems/soap/random_space.h"

namespace automap::soap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Operator matmul(const std::string& name) {
  Operator op;
  op.name = name;
  op.opcode = "dot";
  op.dims = {{DimKind::kSample, 6}, {DimKind::kParameter, 4}};
  op.forward_ms = 8;
  return op;
}

// The message of a refused space or strategy, and the hint behind it.
template <typename Run>
std::string refusal(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return std::string(error.what()) + "; " + error.hint();
  }
  return "nothing was refused";
}

TEST(Space, DegreesAreTheDivisorsWhoseProductFits) {
  EXPECT_THAT(degree_vectors(matmul("a"), 4), ElementsAre(ElementsAre(1, 1), ElementsAre(1, 2), ElementsAre(1, 4),
                                                          ElementsAre(2, 1), ElementsAre(2, 2), ElementsAre(3, 1)));
  EXPECT_EQ(degree_vectors(Operator(), 4).size(), 1u);
}

TEST(Space, RefusesWhatIsNoGraph) {
  const auto with = [](const Edge& edge) {
    return refusal([&] {
      Space space;
      space.operators = {matmul("a"), matmul("b")};
      space.edges = {edge};
      space.link();
    });
  };
  EXPECT_THAT(with({1, 0, {}}), HasSubstr("from operator 1 to operator 0 would make a cycle"));
  EXPECT_THAT(with({0, 0, {}}), HasSubstr("cycle"));
  EXPECT_THAT(with({0, 7, {}}), HasSubstr("leads nowhere"));
  EXPECT_THAT(with({0, 1, {{{{2, 0, 6, 0, 0}}, 4, true}}}), HasSubstr("operator a has no dimension 2"));
  EXPECT_THAT(with({0, 1, {{{{0, 1, 6, 0, 0}}, 4, true}}}), HasSubstr("does not divide the 6"));
  EXPECT_THAT(refusal([] {
                Space space;
                space.operators = {matmul("a")};
                space.operators[0].forward_ms = -1;
                space.link();
              }),
              HasSubstr("forward_ms is -1"));
}

TEST(Space, RefusesStrategiesByName) {
  Space space;
  space.operators = {matmul("a"), matmul("b")};
  space.link();
  const Config good{{2, 2}, {0, 1, 2, 3}};
  const auto with = [&](const Config& config) {
    return refusal([&] { check_strategy(space, {good, config}, 4, "plan.json"); });
  };
  EXPECT_NO_THROW(check_strategy(space, {good, good}, 4, "plan.json"));
  EXPECT_EQ(
      with({{4, 1}, {0, 1, 2, 3}}),
      "plan.json: operator 2 (b): degree 4 does not divide its sample dimension of 6; parts have equal sizes: 1, 2, 3 "
      "divide it");
  EXPECT_THAT(with({{1, 3}, {0, 1, 2}}), HasSubstr("degree 3 does not divide its parameter dimension of 4"));
  EXPECT_THAT(with({{0, 1}, {}}), HasSubstr("degree 0 does not divide"));
  EXPECT_THAT(with({{2}, {0, 1}}), HasSubstr("1 degrees, expected one for each of its 2 dimensions"));
  EXPECT_THAT(with({{2, 1}, {0}}), HasSubstr("2 parts, but 1 devices are named"));
  EXPECT_THAT(with({{2, 1}, {0, 4}}), HasSubstr("there is no device 5, the cluster has 4"));
  EXPECT_THAT(refusal([&] { check_strategy(space, {good}, 4, "plan.json"); }),
              HasSubstr("1 operators, but the model has 2"));
}

TEST(Proposals, NumberEveryRange) {
  Space space;
  space.operators = {matmul("a")};
  space.link();
  const Proposals proposals(space, 4, Placement::kRange);
  // 1 part: 4 places; 2 parts, twice: 3; 4 parts, twice: 1; 3 parts: 2.
  ASSERT_EQ(proposals.count(0), 4 + 3 + 1 + 3 + 1 + 2);
  std::vector<Config> seen;
  for (std::int64_t i = 0; i < proposals.count(0); ++i) {
    const Config config = proposals.config(0, i);
    EXPECT_NO_THROW(check_strategy(space, {config}, 4, "here"));
    for (const Config& other : seen) EXPECT_TRUE(other != config);
    seen.push_back(config);
  }
}

TEST(Proposals, BeginWithDataParallelAndExpert) {
  Space space;
  space.operators = {matmul("small"), matmul("large")};
  space.operators[0].weights = {{{1}, 10, 10, 0}};
  space.operators[1].weights = {{{1}, 1e6, 1e6, 0}};
  space.edges = {{0, 1, {{{{0, 0, 6, 0, 0}, {1, kNone, 4, 0, 0}}, 4, true}}}};
  space.link();
  const Strategy data = data_parallel(space, 4), by_expert = expert(space, 4);
  EXPECT_THAT(data[0].degrees, ElementsAre(3, 1));
  EXPECT_THAT(data[1].devices, ElementsAre(0, 1, 2));
  EXPECT_TRUE(by_expert[0] == data[0]);
  EXPECT_THAT(by_expert[1].degrees, ElementsAre(1, 4));
  EXPECT_TRUE(same_devices_everywhere(data));
  EXPECT_FALSE(same_devices_everywhere(by_expert));
}

}  // namespace
}  // namespace automap::soap
