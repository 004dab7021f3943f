#include "train/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/train/simple_learner.h"

namespace automap::train {
namespace {

std::string text_of(const PairedDifference& difference, double margin = 0, const std::string& unsettled = "",
                    int first_lost = 0) {
  PromotionTest test(margin, 0.0003);
  test.look(difference, first_lost, 0);
  Compared compared;
  compared.searches = {"greedy", "beam 16 + corridor"};
  compared.first_lost = first_lost;
  return verdict_text("A", "B", margin, test, compared, unsettled);
}

bool begins(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

TEST(Comparison, VerdictsInWords) {
  EXPECT_TRUE(
      begins(text_of({10000, -0.01, 0.001}), "A is better than B (beam 16 + corridor: difference from -1.24 to -0."));
  EXPECT_TRUE(
      begins(text_of({10000, 0.01, 0.001}), "A is worse than B (beam 16 + corridor: difference from 0.760 to 1."));
  EXPECT_EQ(text_of({36, 0, 0}, 0, "why"),
            "undecided: A against B (beam 16 + corridor: difference from -9.19 to 9.19 %, bounds for up to 6 looks, no "
            "problem "
            "told them apart; why)\n");
  const std::string loses = text_of({10000, -0.01, 0.001}, 0, "", 3);
  EXPECT_TRUE(begins(loses, "undecided: A against B ")) << loses;
  EXPECT_NE(loses.find("no plan on 3 problems, the other's on 0"), std::string::npos) << loses;
  EXPECT_NE(text_of({10000, 0.01, 0.001}, 0.1).find("\nshown to be worse by less than 10.0 %\n"), std::string::npos);
  EXPECT_NE(text_of({36, 0, 0}, 0.05).find("\nNOT shown to be worse by less than 5.0 %\n"), std::string::npos);
}

TEST(Comparison, WhyItEnded) {
  PromotionTest test(0, 0.0003);
  test.look({29, -0.001, 0.001});
  EXPECT_STREQ(ended_by(test, Asked::kTime), "time");
  EXPECT_STREQ(ended_by(test, Asked::kStopped), "stopped");
  EXPECT_STREQ(ended_by(test, Asked::kNoMore), "too_few_problems");
  EXPECT_EQ(why_unsettled(test, Asked::kTime, 29, 0.0003),
            "29 problems could be judged, at least 30 are needed: nothing is shown");
  test.look({60, -0.001, 0.001});
  for (const auto& [asked, end] : {std::pair<Asked, const char*>{Asked::kTime, "the time is over (--time-limit)"},
                                   {Asked::kStopped, "stopped by a signal"},
                                   {Asked::kNoMore, "there are no more problems"}}) {
    const std::string why = why_unsettled(test, asked, 60, 0.0003);
    EXPECT_NE(why.find(std::string("0.0300 % were asked for: ") + end), std::string::npos) << why;
  }
  test.look({10000, -0.01, 0.001});
  EXPECT_STREQ(ended_by(test, Asked::kStopped), "accepted");
  EXPECT_EQ(why_unsettled(test, Asked::kStopped, 10000, 0.0003), "");
}

// The same small problem for ever.
class OneProblem : public ProblemSource {
 public:
  OneProblem() : source_(open_source("synth:small", 3, {}, {})) {
    std::uint64_t i = 0;
    do problem_ = source_->problem(i++);
    while (std::min(problem_.stages, problem_.parts.cluster.num_devices()) < 3);
  }
  TrainingProblem problem(std::uint64_t) const override { return problem_; }
  const std::vector<std::string>& families() const override { return source_->families(); }
  std::string fingerprint() const override { return "one problem"; }

 private:
  std::unique_ptr<ProblemSource> source_;
  TrainingProblem problem_;
};

TEST(Comparison, PartsOfALook) {
  const std::vector<models::Policy> policies = {SimpleLearner().policy("{}")};
  const auto source = std::make_shared<const OneProblem>();
  WorkerPool pool(0);
  EvaluationOptions options;
  options.problems = {18, 0, 0, 0};
  const double never = std::numeric_limits<double>::infinity();
  Comparison whole(policies, source, options, pool, never);
  EXPECT_EQ(whole.ask(1), Asked::kAll);
  EXPECT_EQ(whole.compared().first.back().size(), 18u);
  EXPECT_EQ(whole.compared().second.size(), whole.compared().searches.size());
  // Time that is over ends it behind the first part.
  Comparison cut(policies, source, options, pool, 0);
  EXPECT_EQ(cut.ask(1), Asked::kTime);
  EXPECT_EQ(cut.compared().first.back().size(), 9u);
  EXPECT_EQ(cut.ask(1), Asked::kTime);
  EXPECT_EQ(cut.compared().first.back().size(), 9u);
  // None of a kind is no end of the problems.
  options.problems = {1, 16, 0, 0};
  Comparison small(policies, source, options, pool, never);
  EXPECT_EQ(small.ask(1), Asked::kAll);
  EXPECT_EQ(small.compared().first.back().size(), 1u);
}

// Every other problem has no room for any plan.
class HalfInfeasible : public OneProblem {
 public:
  TrainingProblem problem(std::uint64_t i) const override {
    TrainingProblem out = OneProblem::problem(i);
    if (i % 2 == 0 || all) {
      out.parts.options.memory = true;
      for (auto& [name, device] : out.parts.cluster.devices) device.memory_gib = 1e-9;
    }
    return out;
  }
  bool all = false;
};

// Problems that nobody has a plan for say nothing, as in --evaluate: they count for neither.
TEST(Comparison, ProblemsWithoutAnyPlanAreLeftOut) {
  const std::vector<models::Policy> policies = {SimpleLearner().policy("{}"), SimpleLearner().policy("{}")};
  const auto source = std::make_shared<HalfInfeasible>();
  WorkerPool pool(0);
  EvaluationOptions options;
  options.problems = {16, 0, 0, 0};
  const double never = std::numeric_limits<double>::infinity();
  Comparison half(policies, source, options, pool, never);
  EXPECT_EQ(half.ask(1), Asked::kAll);
  EXPECT_EQ(half.compared().first.back().size(), 8u);
  EXPECT_LT(mean_of(half.compared().first.back()), 0.5);
  EXPECT_EQ(half.compared().first_lost, 0);
  EXPECT_EQ(half.compared().second_lost, 0);
  source->all = true;
  Comparison none(policies, source, options, pool, never);
  EXPECT_THROW(none.ask(1), Error);
}

}  // namespace
}  // namespace automap::train
