#include "plan/systems/soap/delta_simulation.h"

#include <gtest/gtest.h>

#include "tests/plan/systems/soap/random_space.h"
#include "tests/sanitized.h"

namespace automap::soap {
namespace {

void expect_equal(const DeltaSimulation& delta, const Space& space, const MachineLinks& machine) {
  const Simulated full = simulate(space, delta.strategy(), machine);
  ASSERT_EQ(delta.step_ms(), full.step_ms);
  ASSERT_EQ(delta.num_tasks(), static_cast<std::int32_t>(full.tasks.size()));
  ASSERT_TRUE(delta.times() == full.tasks);
}

// Full simulation is the obvious algorithm: from nothing, one event after the other.
TEST(DeltaSimulation, HasTheTimesOfTheFullOneToTheBit) {
  const MachineLinks machine(test_cluster(3));
  for (std::uint64_t item = 0; item < 60 / kShare; ++item) {
    Rng rng(1, 1, item);
    const Space space = random_space(&rng, 1 + static_cast<int>(rng.below(14)));
    DeltaSimulation delta(space, machine, random_strategy(&rng, space, machine.num_devices()));
    // Looked at one by one, event by event from some moment on, or all of it.
    delta.set_most_looks(item % 3 == 0 ? 1e9 : item % 3 == 1 ? 0.2 : 0);
    expect_equal(delta, space, machine);
    for (int step = 0; step < 100 && !HasFatalFailure(); ++step) {
      const auto op = static_cast<OperatorId>(rng.below(space.operators.size()));
      const double before = delta.step_ms();
      delta.propose(op, random_config(&rng, space.operators[static_cast<std::size_t>(op)], machine.num_devices()));
      expect_equal(delta, space, machine);
      if (rng.below(2) == 0) {
        delta.accept();
      } else {
        delta.reject();
        EXPECT_EQ(delta.step_ms(), before);
      }
      expect_equal(delta, space, machine);
    }
  }
}

// The space behind one task waits for nothing else: what a change does not reach is not looked at.
TEST(DeltaSimulation, LooksAtWhatAChangeReaches) {
  const MachineLinks machine(test_cluster(2));
  Space space;
  for (int i = 0; i < 50; ++i) space.operators.push_back({"op", "dot", "", {}, 1, 0, 0, 0, false, {}});
  space.link();
  Strategy strategy(50, Config{{}, {0}});
  DeltaSimulation delta(space, machine, strategy);
  const std::int64_t before = delta.tasks_taken();
  delta.propose(49, Config{{}, {1}});
  delta.accept();
  EXPECT_LE(delta.tasks_taken() - before, 2);
  expect_equal(delta, space, machine);
}

}  // namespace
}  // namespace automap::soap
