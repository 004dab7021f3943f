#include "plan/systems/soap/full_simulation.h"

#include <gtest/gtest.h>

#include "tests/plan/systems/soap/random_space.h"

namespace automap::soap {
namespace {

// Two operators of 8 ms forward and 16 ms backward, split along samples of 2; 10 MB between them.
Space chain() {
  Space space;
  for (const char* name : {"a", "b"}) {
    Operator op;
    op.name = name;
    op.dims = {{DimKind::kSample, 2}, {DimKind::kParameter, 2}};
    op.forward_ms = 8;
    op.backward_ms = 16;
    op.backward = true;
    space.operators.push_back(op);
  }
  space.edges = {{0, 1, {{{{0, 0, 2, 0, 0}, {1, kNone, 1250000, 0, 0}}, 4, true}}}};
  space.edges[0].tensors[0].dims[1].extent = 1250000;
  space.link();
  return space;
}

constexpr double kInsideMs = 1;  // of 10 MB at 10 GB/s, inside a server

TEST(FullSimulation, OneDeviceAddsUp) {
  const MachineLinks machine(test_cluster(1));
  EXPECT_EQ(simulated_step_ms(chain(), {{{1, 1}, {0}}, {{1, 1}, {0}}}, machine), 48);
}

TEST(FullSimulation, PartsOnOneSideNeedNoMessages) {
  const MachineLinks machine(test_cluster(1));
  EXPECT_EQ(simulated_step_ms(chain(), {{{2, 1}, {0, 1}}, {{2, 1}, {0, 1}}}, machine), 24);
  EXPECT_EQ(bytes_moved(chain(), {{{2, 1}, {0, 1}}, {{2, 1}, {0, 1}}}, machine), 0);
}

// Launches are at most all of a part's time.
TEST(FullSimulation, EveryPartPaysTheLaunches) {
  const MachineLinks machine(test_cluster(1));
  Space space = chain();
  const Strategy halves{{{2, 1}, {0, 1}}, {{2, 1}, {0, 1}}};
  space.operators[0].forward_launch_ms = 2;
  EXPECT_EQ(simulated_step_ms(space, halves, machine), 24 + 1);
  space.operators[0].forward_launch_ms = 10;
  EXPECT_EQ(simulated_step_ms(space, halves, machine), 24 + 4);
}

TEST(FullSimulation, MessagesGoForwardAndBack) {
  const MachineLinks machine(test_cluster(1));
  const Strategy apart{{{1, 1}, {0}}, {{1, 1}, {1}}};
  EXPECT_DOUBLE_EQ(simulated_step_ms(chain(), apart, machine), 48 + 2 * kInsideMs);
  EXPECT_DOUBLE_EQ(bytes_moved(chain(), apart, machine), 2e7);
}

// b split by parameters: each of its parts reads all of a, whose two halves lie on two devices.
TEST(FullSimulation, ReadersTakeTheSlabsThatTheyMiss) {
  const MachineLinks machine(test_cluster(1));
  const Strategy mixed{{{2, 1}, {0, 1}}, {{1, 2}, {0, 1}}};
  EXPECT_DOUBLE_EQ(bytes_moved(chain(), mixed, machine), 2 * 1e7);  // half of it to each, and back
  EXPECT_DOUBLE_EQ(simulated_step_ms(chain(), mixed, machine), 4 + 4 + 8 + 8 + 2 * kInsideMs / 2);
}

// Two parts that hold the same weights: a ring of 2 devices, each of which sends the bytes once; then the update.
TEST(FullSimulation, GradientsAreAddedUpInARing) {
  const MachineLinks machine(test_cluster(1));
  Space space = chain();
  space.operators[0].weights = {{{1}, 1e7, 1e7, 3}};
  space.link();
  const Strategy data{{{2, 1}, {0, 1}}, {{2, 1}, {0, 1}}};
  EXPECT_DOUBLE_EQ(simulated_step_ms(space, data, machine), 24 + 1 + 3);
  EXPECT_DOUBLE_EQ(bytes_moved(space, data, machine), 2e7);
  // Split by parameters nobody shares them, and each updates its half.
  const Strategy split{{{1, 2}, {0, 1}}, {{1, 2}, {0, 1}}};
  const Simulated step = simulate(space, split, machine);
  EXPECT_DOUBLE_EQ(step.step_ms, 24 + 2 * kInsideMs / 2 + 1.5);
}

// First come, first served, and the lower order number first where two come at once.
TEST(FullSimulation, TiesGoByOrder) {
  const MachineLinks machine(test_cluster(1));
  Space space;
  for (int i = 0; i < 3; ++i) space.operators.push_back({"op", "dot", "", {}, 1.0 + i, 0, 0, 0, false, {}});
  space.link();
  const Simulated step = simulate(space, {{{}, {0}}, {{}, {0}}, {{}, {0}}}, machine);
  ASSERT_EQ(step.tasks.size(), 3u);
  EXPECT_EQ(step.tasks[0].start, 0);
  EXPECT_EQ(step.tasks[1].start, 1);
  EXPECT_EQ(step.tasks[2].start, 3);
}

// Every task after what it waits for, and none beside another one on its device.
TEST(FullSimulation, NoDeviceDoesTwoThingsAtOnce) {
  const MachineLinks machine(test_cluster(3));
  for (std::uint64_t item = 0; item < 50; ++item) {
    Rng rng(2, 1, item);
    const Space space = random_space(&rng, 1 + static_cast<int>(rng.below(10)));
    const Simulated step = simulate(space, random_strategy(&rng, space, machine.num_devices()), machine);
    std::map<std::int32_t, std::vector<TaskTimes>> on;
    for (const TaskTimes& task : step.tasks) {
      EXPECT_GE(task.start, task.ready);
      EXPECT_LE(task.end, step.step_ms);
      if (task.resource != kNone) on[task.resource].push_back(task);
    }
    for (auto& [resource, tasks] : on) {
      std::sort(tasks.begin(), tasks.end(), [](const TaskTimes& a, const TaskTimes& b) {
        return std::make_pair(a.ready, a.order) < std::make_pair(b.ready, b.order);
      });
      for (std::size_t i = 1; i < tasks.size(); ++i)
        EXPECT_EQ(tasks[i].start, std::max(tasks[i].ready, tasks[i - 1].end));
    }
  }
}

}  // namespace
}  // namespace automap::soap
