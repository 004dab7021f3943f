#include "train/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "tests/sanitized.h"
#include "tests/train/simple_learner.h"

namespace automap::train {
namespace {

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kQuiet);
    folder_ = std::filesystem::temp_directory_path() / ("automap-trainer-" + std::to_string(::getpid()) + "-" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    source_ = open_source("synth:mixed", 1, {}, {});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Few, small held-out problems, the same for all runs of a test.
  const Evaluation& evaluation(int problems = 6) {
    if (!evaluation_) {
      WorkerPool pool(1);
      EvaluationOptions options;
      options.problems = {problems, 0, 0, 0};
      evaluation_ = std::make_unique<Evaluation>(open_source("synth:mixed", 99, {}, {}), options, pool, "");
    }
    return *evaluation_;
  }

  TrainerSettings settings(const std::string& name) {
    TrainerSettings s;
    s.folder = (folder_ / name).string();
    std::filesystem::create_directories(s.folder);
    s.round_problems = 6;
    s.episodes = 6 * 4 * 8;
    s.time_s = 1e9;
    s.batch = 16;
    s.evaluate_every = 60;
    s.checkpoint_every_s = 1e9;
    s.play.label_fraction = 0.3;
    s.play.label_work = 20000;
    return s;
  }

  TrainResult run(TrainerSettings s, int background, Checkpoint* resume = nullptr) {
    SimpleLearner learner;
    WorkerPool pool(background);
    return train(learner, *source_, evaluation(), pool, s, resume);
  }

  static std::string file(const TrainerSettings& s, const char* name) { return read_file(s.folder + "/" + name); }

  std::filesystem::path folder_;
  std::unique_ptr<ProblemSource> source_;
  std::unique_ptr<Evaluation> evaluation_;
};

TEST_F(TrainerTest, TheSameForAnyNumberOfThreads) {
  const TrainerSettings alone = settings("alone");
  const TrainResult result = run(alone, 0);
  EXPECT_EQ(result.reason, std::to_string(result.counters.plays) + " episodes");
  EXPECT_GE(result.counters.plays, alone.episodes);
  EXPECT_GT(result.session_updates, 0u);
  EXPECT_GT(result.counters.labelled, 0u);
  const Checkpoint expected = load_checkpoint(alone.folder + "/checkpoint");
  for (const int background : {1, 2, 3}) {
    const TrainerSettings s = settings("threads" + std::to_string(background));
    run(s, background);
    EXPECT_EQ(file(s, "policy.bin"), file(alone, "policy.bin"));
    const Checkpoint other = load_checkpoint(s.folder + "/checkpoint");
    EXPECT_EQ(other.learner_state, expected.learner_state);
    EXPECT_EQ(other.acting_policy, expected.acting_policy);
    EXPECT_EQ(other.counters.plays, expected.counters.plays);
    EXPECT_EQ(other.counters.y, expected.counters.y);
  }
}

TEST_F(TrainerTest, StoppedAndResumedIsTheSameRun) {
  const TrainerSettings whole = settings("whole");
  run(whole, 1);
  const Checkpoint expected = load_checkpoint(whole.folder + "/checkpoint");
  for (const int stop_after : kSanitized ? std::vector<int>{0, 2} : std::vector<int>{0, 1, 2, 3, 5}) {
    TrainerSettings s = settings("stop" + std::to_string(stop_after));
    // Stopped again and again, after so many rounds each time.
    int sessions = 0;
    for (; sessions < 20; ++sessions) {
      int rounds = 0;
      TrainerSettings part = s;
      const int most = sessions == 0 ? stop_after : stop_after + 1;
      part.stop_requested = [&] { return rounds++ == most; };
      Checkpoint before;
      if (sessions > 0) before = load_checkpoint(s.folder + "/checkpoint");
      const TrainResult result = run(part, sessions % 3, sessions > 0 ? &before : nullptr);
      if (!result.stopped) break;
      EXPECT_EQ(result.reason, "a signal");
    }
    EXPECT_LT(sessions, 20);
    EXPECT_EQ(file(s, "policy.bin"), file(whole, "policy.bin")) << stop_after;
    const Checkpoint other = load_checkpoint(s.folder + "/checkpoint");
    EXPECT_EQ(other.learner_state, expected.learner_state) << stop_after;
    EXPECT_EQ(other.counters.plays, expected.counters.plays);
    EXPECT_EQ(other.counters.evaluations, expected.counters.evaluations);
    ASSERT_EQ(other.curve.size(), expected.curve.size());
    for (std::size_t i = 0; i < other.curve.size(); ++i) EXPECT_EQ(other.curve[i].episodes, expected.curve[i].episodes);
  }
}

// The same with rounds, evaluations and schedules as the run's length has them.
TEST_F(TrainerTest, StoppedAndResumedByDefault) {
  const auto by_default = [&](const char* name) {
    TrainerSettings s = settings(name);
    s.evaluate_every = 0;
    s.round_problems = 0;
    s.play.epsilon_episodes = 0;
    s.play.label_fraction = 0;
    return s;
  };
  evaluation(2);
  const TrainerSettings whole = by_default("whole"), s = by_default("parts");
  run(whole, 1);
  int sessions = 0;
  for (bool stopped = true; stopped && sessions < 20; ++sessions) {
    TrainerSettings part = s;
    int rounds = 0;
    part.stop_requested = [&rounds] { return rounds++ == 17; };
    Checkpoint before;
    if (sessions > 0) before = load_checkpoint(s.folder + "/checkpoint");
    stopped = run(part, sessions % 3, sessions > 0 ? &before : nullptr).stopped;
  }
  EXPECT_GT(sessions, 2);
  EXPECT_EQ(file(s, "policy.bin"), file(whole, "policy.bin"));
  const Checkpoint expected = load_checkpoint(whole.folder + "/checkpoint"),
                   other = load_checkpoint(s.folder + "/checkpoint");
  EXPECT_EQ(other.learner_state, expected.learner_state);
  EXPECT_EQ(other.start_policy, expected.start_policy);
  EXPECT_EQ(other.counters.start_score, expected.counters.start_score);
  ASSERT_EQ(other.curve.size(), expected.curve.size());
  for (std::size_t i = 0; i < other.curve.size(); ++i) EXPECT_EQ(other.curve[i].episodes, expected.curve[i].episodes);
}

TEST_F(TrainerTest, KilledBetweenCheckpointsItGoesOnFromTheLastOne) {
  const TrainerSettings whole = settings("whole");
  run(whole, 1);
  // A checkpoint after every round; the copy of the third stands for what a kill -9 left behind.
  TrainerSettings s = settings("killed");
  s.checkpoint_every_s = 0;
  int rounds = 0;
  std::string left;
  TrainerSettings first = s;
  first.stop_requested = [&] {
    if (rounds++ == 4) left = file(s, "checkpoint");
    return rounds == 7;
  };
  run(first, 1);
  write_file_atomic(s.folder + "/checkpoint", left);
  Checkpoint before = load_checkpoint(s.folder + "/checkpoint");
  EXPECT_GT(before.counters.plays, 0u);
  ASSERT_FALSE(before.best_policy.empty());
  // A file that the killed session wrote after its last checkpoint no longer belongs to this run.
  write_file_atomic(s.folder + "/policy.bin", "a later policy");
  TrainerSettings at_once = s;
  at_once.stop_requested = [] { return true; };
  run(at_once, 0, &before);
  EXPECT_EQ(file(s, "policy.bin"), before.best_policy);
  EXPECT_TRUE(before.learner_state.empty());
  before = load_checkpoint(s.folder + "/checkpoint");
  run(s, 2, &before);
  EXPECT_EQ(file(s, "policy.bin"), file(whole, "policy.bin"));
}

TEST_F(TrainerTest, UpdatesPerPlayDoNotDependOnThreads) {
  std::uint64_t updates = 0;
  for (const int background : {0, 1, 3}) {
    TrainerSettings s = settings("ratio" + std::to_string(background));
    // More than the learner can do while the actors play.
    s.replay_ratio = 200;
    const TrainResult result = run(s, background);
    EXPECT_LE(result.counters.update_credit, 1);
    if (background == 0) updates = result.session_updates;
    EXPECT_EQ(result.session_updates, updates) << background;
  }
  EXPECT_GT(updates, 1000u);
}

TEST_F(TrainerTest, PatienceEndsIt) {
  TrainerSettings s = settings("patience");
  s.episodes = 1u << 20;
  s.evaluate_every = 1;
  s.patience = 2;
  const TrainResult result = run(s, 1);
  EXPECT_EQ(result.reason, "no better policy in 2 evaluations");
  EXPECT_LT(result.counters.plays, s.episodes);
}

// A source whose later problems cannot be read, as a dataset with a damaged shard.
class Broken : public ProblemSource {
 public:
  explicit Broken(const ProblemSource& source) : source_(source) {}
  TrainingProblem problem(std::uint64_t i) const override {
    if (i == 20) throw Error(ErrorKind::kData, "shard 3: row 20 is NaN");
    return source_.problem(i);
  }
  const std::vector<std::string>& families() const override { return source_.families(); }
  std::string fingerprint() const override { return "broken"; }

 private:
  const ProblemSource& source_;
};

TEST_F(TrainerTest, ABadRowEndsTheRunWithItsMessage) {
  const Broken broken(*source_);
  for (const int background : {0, 2}) {
    const TrainerSettings s = settings("broken" + std::to_string(background));
    SimpleLearner learner;
    WorkerPool pool(background);
    try {
      train(learner, broken, evaluation(), pool, s, nullptr);
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), "shard 3: row 20 is NaN");
    }
  }
}

TEST_F(TrainerTest, HeldOutProblemsAreSolvedOnce) {
  WorkerPool pool(1);
  EvaluationOptions options;
  options.problems = {5, 0, 0, 0};
  const std::string cache = (folder_ / "heldout.json").string();
  std::filesystem::create_directories(folder_);
  const Evaluation first(open_source("synth:mixed", 5, {}, {}), options, pool, cache);
  const std::string written = read_file(cache);
  const Evaluation second(open_source("synth:mixed", 5, {}, {}), options, pool, cache);
  ASSERT_EQ(second.problems().size(), first.problems().size());
  for (std::size_t i = 0; i < first.problems().size(); ++i) {
    EXPECT_EQ(second.problems()[i].reference_ms, first.problems()[i].reference_ms);
    EXPECT_TRUE(first.problems()[i].proven);
  }
  ASSERT_EQ(second.baselines().size(), first.baselines().size());
  for (std::size_t b = 0; b < first.baselines().size(); ++b) {
    EXPECT_EQ(second.baselines()[b].length_ms, first.baselines()[b].length_ms);
    // Nobody is shorter than the optimum.
    for (const double gap : first.gaps(first.baselines()[b])) EXPECT_GE(gap, -1e-9);
  }
  // Damaged, or of other problems: solved again.
  write_file_atomic(cache, written.substr(0, written.size() / 2));
  const Evaluation third(open_source("synth:mixed", 5, {}, {}), options, pool, cache);
  EXPECT_EQ(third.problems().size(), first.problems().size());
}

TEST(Evaluation, NoProblemsLeft) {
  WorkerPool pool(0);
  EvaluationOptions options;
  options.problems = {0, 0, 0, 1};  // "small" has no wide ones
  EXPECT_THROW(Evaluation(open_source("synth:small", 1, {}, {}), options, pool, ""), Error);
  options.may_be_empty = true;
  const Evaluation evaluation(open_source("synth:small", 1, {}, {}), options, pool, "");
  EXPECT_TRUE(evaluation.problems().empty());
  EXPECT_EQ(evaluation.next(), 200u);
}

// No plan counts as the worst plan, in every figure.
TEST(Evaluation, NoPlanCountsAlikeEverywhere) {
  WorkerPool pool(0);
  EvaluationOptions options;
  options.problems = {4, 0, 0, 0};
  const Evaluation evaluation(open_source("synth:mixed", 5, {}, {}), options, pool, "");
  PlannerLengths lengths{"none", {}, 0};
  for (const HeldOut& held : evaluation.problems()) lengths.length_ms.push_back(held.reference_ms);
  ASSERT_EQ(lengths.length_ms.size(), 4u);
  lengths.length_ms[1] = std::numeric_limits<double>::infinity();
  lengths.length_ms[2] *= 5;
  EXPECT_EQ(evaluation.gaps(lengths), (std::vector<double>{0, 1, 1, 0}));
  const Quality quality = evaluation.quality(lengths, -1);
  EXPECT_EQ(quality.problems, 4);
  EXPECT_EQ(quality.failed, 1);
  EXPECT_EQ(quality.mean, 0.5);
  EXPECT_EQ(quality.p95, 1);
  EXPECT_EQ(quality.optimal, 0.5);
  EXPECT_EQ(evaluation.score({lengths}), 0.5);
}

// Every update makes it worse.
class RuinedLearner : public SimpleLearner {
 public:
  models::LearnerMetrics update() override {
    models::Policy policy = SimpleLearner::policy("{}");
    std::vector<float> weights = policy.weights();
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = i % 2 == 0 ? 50.0f : -50.0f;
    load_policy(models::Policy(policy.architecture(), weights, "{}"));
    return SimpleLearner::update();
  }
};

TEST_F(TrainerTest, NeverWorseThanItsStart) {
  for (const bool fresh : {true, false}) {
    TrainerSettings s = settings(fresh ? "fresh" : "given");
    s.evaluate_every = 0;
    RuinedLearner learner;
    s.provenance = [](const TrainCounters&) { return R"({"from": "the run"})"; };
    if (!fresh) s.start_policy = learner.policy(R"({"from": "elsewhere"})").serialize();
    WorkerPool pool(0);
    const TrainResult result = train(learner, *source_, evaluation(), pool, s, nullptr);
    EXPECT_GT(result.session_updates, 0u);
    EXPECT_TRUE(result.start_won());
    EXPECT_EQ(result.counters.best_score, result.counters.start_score);
    EXPECT_EQ(result.best.weights(), result.start.weights());
    EXPECT_EQ(result.best.weights(), SimpleLearner().policy("{}").weights());
    if (!fresh) {
      EXPECT_EQ(file(s, "policy.bin"), s.start_policy);
    }
  }
}

// The curve, the best policy's figure and the table say the same.
TEST_F(TrainerTest, OneFigure) {
  TrainerSettings s = settings("figure");
  const TrainResult result = run(s, 0);
  WorkerPool pool(0);
  const std::vector<PlannerLengths> planned = evaluation().plan(result.best, pool);
  EXPECT_EQ(evaluation().score(planned), result.counters.best_score);
  EXPECT_EQ(evaluation().quality(planned.back(), -1).mean, result.counters.best_score);
  double least = 1;
  const Checkpoint end = load_checkpoint(s.folder + "/checkpoint");
  for (const CurvePoint& point : end.curve) {
    for (const auto& [name, value] : point.values) {
      if (name == "gap/score") least = std::min(least, value);
    }
  }
  EXPECT_EQ(least, result.counters.best_score);
  EXPECT_GT(result.counters.evaluation_seconds, 0);
  EXPECT_EQ(end.start_policy, result.start.serialize());
}

double value_of(const CurvePoint& point, const std::string& wanted) {
  for (const auto& [name, value] : point.values) {
    if (name == wanted) return value;
  }
  ADD_FAILURE() << "no " << wanted;
  return 0;
}

// By default a run has 24 evaluations behind that of the start, and its schedules end when it ends, however long it is.
TEST_F(TrainerTest, RhythmAndSchedulesLastAsLongAsTheRun) {
  for (const std::uint64_t episodes :
       kSanitized ? std::vector<std::uint64_t>{96} : std::vector<std::uint64_t>{96, 192}) {
    std::vector<double> before;
    for (const int background : episodes == 96 ? std::vector<int>{0, 2} : std::vector<int>{1}) {
      TrainerSettings s = settings("plays" + std::to_string(episodes) + std::to_string(background));
      s.episodes = episodes;
      s.evaluate_every = 0;
      s.round_problems = 0;
      s.play.plays = 2;
      s.play.label_fraction = 0;
      s.play.epsilon_episodes = 0;
      s.play.epsilon_start = 0.64;
      s.play.epsilon_end = 0.04;
      SimpleLearner learner;
      WorkerPool pool(background);
      const TrainResult result = train(learner, *source_, evaluation(2), pool, s, nullptr);
      const Checkpoint end = load_checkpoint(s.folder + "/checkpoint");
      ASSERT_EQ(end.curve.size(), static_cast<std::size_t>(kEvaluations + 1));
      EXPECT_EQ(end.curve.front().episodes, 0u);
      EXPECT_EQ(end.curve.back().episodes, result.counters.plays);
      EXPECT_EQ(result.counters.plays, episodes);
      EXPECT_EQ(value_of(end.curve.front(), "train/epsilon"), 0.8);  // the first rung: the square root
      EXPECT_NEAR(value_of(end.curve.back(), "train/epsilon"), 0.2, 1e-9);
      ASSERT_FALSE(learner.progresses.empty());
      EXPECT_LT(learner.progresses.front(), 0.1);
      EXPECT_GT(learner.progresses.back(), 0.95);
      EXPECT_LE(learner.progresses.back(), 1);
      EXPECT_TRUE(std::is_sorted(learner.progresses.begin(), learner.progresses.end()));
      if (background == 2) {
        EXPECT_EQ(learner.progresses, before);
      }
      before = learner.progresses;
    }
  }
}

// With `deterministic` plays stand for seconds: no clock has a part in the schedules or in when the run ends.
TEST_F(TrainerTest, TimeIsCountedWhereNoClockMay) {
  std::string policy;
  for (const int background : {0, 2}) {
    TrainerSettings s = settings("counted" + std::to_string(background));
    s.deterministic = true;
    s.episodes = 0;
    s.time_s = 0.4;
    s.play.epsilon_episodes = 0;
    const TrainResult result = run(s, background);
    EXPECT_EQ(result.reason, "120 episodes, which stand for 400 ms of --time");
    const Checkpoint end = load_checkpoint(s.folder + "/checkpoint");
    ASSERT_GT(end.curve.size(), 1u);
    for (const CurvePoint& point : end.curve) {
      EXPECT_DOUBLE_EQ(value_of(point, "train/progress"),
                       std::min(1.0, static_cast<double>(point.episodes) / (kPlaysPerSecond * s.time_s)));
    }
    EXPECT_EQ(value_of(end.curve.back(), "train/progress"), 1);
    if (background == 0) policy = end.learner_state;
    EXPECT_EQ(end.learner_state, policy);
  }
}

// By a clock the share of the time counts, and rounds get as long as the run has it.
TEST_F(TrainerTest, SchedulesByTheClock) {
  TrainerSettings s = settings("clock");
  s.episodes = 0;
  s.time_s = 0.3;
  s.evaluate_every = 0;
  s.round_problems = 0;
  SimpleLearner learner;
  WorkerPool pool(0);
  const TrainResult result = train(learner, *source_, evaluation(), pool, s, nullptr);
  EXPECT_EQ(result.reason, "300 ms of training");
  EXPECT_TRUE(std::is_sorted(learner.progresses.begin(), learner.progresses.end()));
  if (result.session_plays > 0) {
    EXPECT_GT(result.counters.progress, 0);
  }
  EXPECT_LE(result.counters.progress, 1);
  EXPECT_GE(result.counters.seconds, 0.3);
}

// Rounds settle where they take the time that is wanted, whoever sets the pace, and keep their size while none has been
// timed.
TEST(Trainer, RoundsSettle) {
  constexpr int kMost = 100000;
  for (const auto& [learning_s, playing_s, beside] : {std::tuple<double, double, bool>{0.01, 0.001, true},
                                                      {0.001, 0.01, true},
                                                      {0.005, 0.005, true},
                                                      {0.01, 0.002, false},
                                                      {0.002, 0.01, false}}) {
    const auto took = [&, learning_s = learning_s, playing_s = playing_s, beside = beside](int learned, int played) {
      const double a = learning_s * learned, b = playing_s * played;
      return beside ? std::max(a, b) : a + b;
    };
    const double each_s = beside ? std::max(learning_s, playing_s) : learning_s + playing_s;
    const double wanted_s = 500 * each_s;
    int learned = 8, played = next_round_problems(0, 8, 0, wanted_s, kMost);
    EXPECT_EQ(played, 8);
    for (int round = 0; round < 30; ++round) {
      const int next = next_round_problems(learned, played, took(learned, played), wanted_s, kMost);
      EXPECT_LE(next, 2 * played);
      learned = played;
      played = next;
      if (round > 15) {
        EXPECT_NEAR(played, 500, 25) << round;
      }
    }
  }
  EXPECT_EQ(next_round_problems(64, 64, 100, 1, kMost), 32);
  EXPECT_EQ(next_round_problems(64, 64, 1, 100, 100), 100);
  EXPECT_EQ(next_round_problems(0, 64, 0, 1, kMost), 64);
}

// Whoever gives a run that has ended more plays does not get its schedules again.
TEST_F(TrainerTest, SchedulesDoNotGoBack) {
  TrainerSettings s = settings("longer");
  s.play.epsilon_episodes = 0;
  run(s, 0);
  Checkpoint before = load_checkpoint(s.folder + "/checkpoint");
  EXPECT_EQ(before.counters.progress, 1);
  s.episodes *= 2;
  const TrainResult result = run(s, 0, &before);
  EXPECT_GE(result.counters.plays, s.episodes);
  const Checkpoint after = load_checkpoint(s.folder + "/checkpoint");
  EXPECT_EQ(after.counters.progress, 1);
  EXPECT_GT(after.counters.evaluations, before.counters.evaluations);
}

}  // namespace
}  // namespace automap::train
