// The recorded timeline beside what it must agree with: the simulated step, the order of a pipeline, and memory.
#include "common/pipeline/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/numbers.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/warmup.h"
#include "tests/sanitized.h"

namespace automap::pipeline {
namespace {

double most_bytes(const TimelineGroup& group) {
  double most = 0;
  for (const MemoryLevel& level : group.memory) most = std::max(most, level.bytes);
  return most;
}

void expect_in_order(const std::vector<TimelineEvent>& lane, double end_ms) {
  double before = 0;
  for (const TimelineEvent& event : lane) {
    ASSERT_GE(event.start_ms, before - 1e-9 * end_ms) << to_string(event.kind) << " overlaps";
    ASSERT_GE(event.end_ms, event.start_ms);
    before = event.end_ms;
  }
  ASSERT_LE(before, end_ms * (1 + 1e-9));
}

// When event `kind` of micro-batch m begins and ends, by m.
std::map<int, TimelineEvent> by_number(const std::vector<TimelineEvent>& lane, TimelineKind kind) {
  std::map<int, TimelineEvent> out;
  for (const TimelineEvent& event : lane) {
    if (event.kind != kind) continue;
    EXPECT_TRUE(out.emplace(event.number, event).second) << "twice";
  }
  return out;
}

TEST(Timeline, IsTheSimulatedStepAndKeepsItsOrder) {
  for (std::uint64_t seed = 0; seed < 400 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed);
    const Problem problem = made.problem();
    CounterRandom random(seed, 9);
    Plan plan = random_plan(problem, random.integer(1, 8),
                            alternating_schedules()[seed % alternating_schedules().size()], random);
    if (plan.schedule == Schedule::kAdaptive && feasible(problem, plan)) choose_warmup(problem, plan);
    const PlacedPlan placed = place(problem, plan);
    const Timeline timeline = record_timeline(placed);
    ASSERT_NEAR(timeline.step_ms, simulate_step_ms(placed), 1e-11 * timeline.step_ms);
    const std::vector<double> memory = memory_of(placed);
    double last = 0;
    for (std::size_t s = 0; s < timeline.groups.size(); ++s) {
      const TimelineGroup& group = timeline.groups[s];
      for (const auto* lane : {&group.compute, &group.gradients, &group.to_next, &group.to_previous}) {
        expect_in_order(*lane, timeline.step_ms);
        if (!lane->empty()) last = std::max(last, lane->back().end_ms);
      }
      if (plan.schedule != Schedule::kAdaptive || !plan.warmup.empty()) {
        ASSERT_NEAR(most_bytes(group), memory[s], 1e-9 * memory[s]);
      }
      ASSERT_EQ(group.memory.back().in_flight, 0);
      const auto forward = by_number(group.compute, TimelineKind::kForward);
      const auto backward = by_number(group.compute, TimelineKind::kBackward);
      const auto to_next = by_number(group.to_next, TimelineKind::kTransfer);
      const auto to_previous = by_number(group.to_previous, TimelineKind::kTransfer);
      ASSERT_EQ(forward.size(), at(problem.micro_batches()));
      ASSERT_EQ(backward.size(), forward.size());
      ASSERT_EQ(to_next.size(), s + 1 < timeline.groups.size() ? forward.size() : 0);
      ASSERT_EQ(to_previous.size(), s > 0 ? forward.size() : 0);
      for (const auto& [m, event] : to_next) {
        ASSERT_GE(event.start_ms, forward.at(m).end_ms);
        const auto next = by_number(timeline.groups[s + 1].compute, TimelineKind::kForward);
        ASSERT_GE(next.at(m).start_ms, event.end_ms);
        if (m > 2) break;  // the others by the same recurrence
      }
      for (const auto& [m, event] : to_previous) {
        ASSERT_GE(event.start_ms, backward.at(m).end_ms);
        const auto front = by_number(timeline.groups[s - 1].compute, TimelineKind::kBackward);
        ASSERT_GE(front.at(m).start_ms, event.end_ms);
        if (m > 2) break;
      }
      // Gradients are there from the last backward on, and the optimizer waits for all sums.
      const TimelineEvent& last_backward = backward.at(problem.micro_batches());
      for (const TimelineEvent& event : group.gradients) {
        ASSERT_GE(event.start_ms, last_backward.start_ms * (1 - 1e-9));
        if (group.compute.back().kind == TimelineKind::kOptimizer) {
          ASSERT_LE(event.end_ms, group.compute.back().start_ms * (1 + 1e-9));
        }
      }
    }
    // A plan whose sync is hidden whole, and which counts no optimizer, ends with a backward.
    ASSERT_NEAR(last, timeline.step_ms, 1e-9 * timeline.step_ms);
  }
}

}  // namespace
}  // namespace automap::pipeline
