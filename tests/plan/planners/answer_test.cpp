#include "plan/planners/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "common/base/error.h"
#include "common/pipeline/random_problem.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

std::atomic<bool> stopped;

Question small_question() {
  pipeline::RandomProblemOptions options;
  options.min_instructions = options.max_instructions = 8;
  options.whole = 1;
  const pipeline::RandomProblem made = pipeline::random_problem(5, options);
  StepRequest step;
  step.batch = 8;
  PlanRequest request;
  request.effort = plan_effort(Effort::kQuick);
  request.cancelled = [] { return stopped.load(); };
  return {made.profile, made.cluster, made.options, step, request};
}

// A kind that finds nothing, during which a signal may come.
template <bool kSignal>
KindRow nothing_found() {
  return {"no plan", [](const Question&) { return true; },
          [](const KindTurn&, const char*) -> std::optional<Candidate> {
            if (kSignal) stopped = true;
            return std::nullopt;
          },
          false};
}

TEST(Answer, SaysWhetherASignalEndedIt) {
  for (const bool signal : {false, true}) {
    stopped = false;
    Question question = small_question();
    const Answer found = answer(question, {signal ? nothing_found<true>() : nothing_found<false>()});
    ASSERT_TRUE(found.one_width.found());
    EXPECT_EQ(found.notes.cut_by_time, signal);
  }
}

// A plan of another schedule is no answer.
TEST(Answer, TellsOfTheScheduleAloneThatIsAskedFor) {
  stopped = false;
  Question question = small_question();
  question.beside.only = pipeline::Schedule::kSearched;
  question.request.better = [&](const pipeline::PlacedPlan& placed, double) {
    EXPECT_EQ(placed.plan.schedule, pipeline::Schedule::kSearched);
  };
  EXPECT_THROW(answer(question, {nothing_found<false>()}), Error);
}

TEST(Answer, IsNoLongerThanWhatItTold) {
  stopped = false;
  Question question = small_question();
  double shortest_ms = kInfinity;
  question.request.better = [&](const pipeline::PlacedPlan& placed, double length_ms) {
    EXPECT_FALSE(plan_text(placed).empty());
    shortest_ms = std::min(shortest_ms, length_ms);
  };
  const Answer found = answer(question, {nothing_found<false>()});
  ASSERT_TRUE(found.one_width.found());
  EXPECT_TRUE(found.leaner.empty());
  EXPECT_EQ(found.plan().simulated_step_ms, shortest_ms);
}

// Bounds of alternating plans are asked for where such a plan is the answer, and not beside an ordered one.
TEST(Answer, HasTheBoundsOfItsKindOfPlan) {
  stopped = false;
  pipeline::RandomProblemOptions options;
  options.min_instructions = 8;
  options.max_instructions = 24;
  options.min_devices = 2;
  options.whole = 1;
  int ordered = 0, alternating = 0;
  for (std::uint64_t seed = 0; seed < (kSanitized ? 6 : 24); ++seed) {
    const pipeline::RandomProblem made = pipeline::random_problem(seed, options);
    Question question(made.profile, made.cluster, made.options, {}, small_question().request);
    question.step.batch = 16;
    question.options.micro_batch_samples = 0;
    question.beside = any_beside();
    Answer found;
    try {
      found = answer(question, beside_kinds());
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::kUsage) << e.what();  // devices and samples that have no divisor
      continue;
    }
    if (!found.one_width.found()) continue;
    EXPECT_FALSE(found.bounds.open) << seed;
    const double step_ms = found.plan().simulated_step_ms;
    for (const Candidate& one : found.kinds) {
      if (!one.found() || !one.left_out.empty()) continue;
      EXPECT_LE(step_ms, one.simulated_step_ms) << seed << ": " << one.kind;
    }
    if (found.ordered_is_plan()) {
      ++ordered;
      EXPECT_EQ(found.bounds.value_ms, 0) << seed;
      EXPECT_GT(found.any_order.simulated_ms, 0) << seed;
      EXPECT_LE(found.any_order.simulated_ms, step_ms) << seed;
    } else if (!found.mixed) {
      ++alternating;
      EXPECT_GT(found.bounds.value_ms, 0) << seed;
      EXPECT_LE(found.bounds.value_ms, found.one_width.step_ms) << seed;
      EXPECT_LE(found.bounds.simulated_ms, step_ms) << seed;
    }
  }
  EXPECT_GT(ordered + alternating, 0);
  EXPECT_TRUE(kSanitized || (ordered > 0 && alternating > 0));
}

// Stopped, they are what costs nothing: the work alone.
TEST(Answer, ClosesBoundsByTheWorkOnceItIsStopped) {
  stopped = false;
  Question question = small_question();
  const Answer whole = answer(question, {nothing_found<false>()});
  const Answer ended = answer(question, {nothing_found<true>()});
  stopped = false;
  ASSERT_TRUE(ended.one_width.found());
  EXPECT_GT(ended.bounds.value_ms, 0);
  EXPECT_LE(ended.bounds.value_ms, whole.bounds.value_ms * (1 + 1e-9));
  EXPECT_LE(ended.bounds.simulated_ms, whole.bounds.simulated_ms * (1 + 1e-9));
}

}  // namespace
}  // namespace automap::planners
