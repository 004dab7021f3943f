// The systems that can be chosen, and an answer about a workload.
#include "plan/systems/systems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "plan/systems/other_spaces.h"

namespace automap::systems {
namespace {

using testing::HasSubstr;

// Two nodes of 3 bytes on two accelerators of 4.
TEST(OtherSpaces, MemoryIsAShareOfADevice) {
  placement::Workload workload;
  workload.accelerators = 2;
  workload.memory_bytes = 4;
  for (int i = 0; i < 2; ++i) {
    placement::Node node;
    node.name = "n", node.id = i, node.accelerator_ms = 1, node.cpu_ms = 10, node.bytes = 3;
    workload.nodes.push_back(node);
  }
  workload.edges = {{0, 1}};
  Question question;
  question.workload = &workload;
  const Answer answer = plan_tarnawski(question);
  ASSERT_TRUE(answer.found);
  EXPECT_DOUBLE_EQ(answer.fullest_share, 0.75);
}

TEST(CompareSystems, AreChosenByName) {
  // For a workload there are more systems: the ways to place it.
  EXPECT_EQ(systems_of("all", true).size(), all_systems().size());
  EXPECT_EQ(systems_of("all").size(), 12u);
  EXPECT_STREQ(systems_of("placement-greedy")[0]->name, "greedy");
  const auto chosen = systems_of("alpa,automap,alpa");
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_STREQ(chosen[0]->key, "alpa");
  for (const char* wrong : {"", "alpha", "alpa,", "automap,,alpa"}) {
    try {
      systems_of(wrong);
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_THAT(error.what(), HasSubstr("no system is called"));
    }
  }
}

}  // namespace
}  // namespace automap::systems
