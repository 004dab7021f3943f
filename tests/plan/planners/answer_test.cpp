#include "plan/planners/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "common/base/error.h"
#include "common/pipeline/random_problem.h"

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

}  // namespace
}  // namespace automap::planners
