#include "plan/partition/learned/rainbow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <map>

#include "common/base/error.h"
#include "common/base/files.h"
#include "models/features.h"
#include "plan/partition/rainbow.h"
#include "tests/models/random_partition_problem.h"

namespace automap::partition {
namespace {

using models::PartitionObjective;
using models::PartitionProblem;
using models::PartitionScore;
using models::Policy;
using models::RandomProblemOptions;
using ::testing::HasSubstr;

// Layers of a transformer: one group that holds a dimension of every variable and excludes all others, and the others,
// which together are worth more.
PartitionProblem layers(int count) {
  PartitionProblem problem;
  problem.objective = PartitionObjective::kTime;
  problem.groups.resize(1);
  const auto variable = [&](std::int32_t group) {
    const auto v = static_cast<std::int32_t>(problem.variables.size());
    problem.variables.push_back({"v" + std::to_string(v), {64, 64}, 16384});
    problem.groups[0].members.emplace_back(v, 0);
    problem.groups[static_cast<std::size_t>(group)].members.emplace_back(v, 1);
  };
  for (int layer = 0; layer < count; ++layer) {
    for (const int size : {4, 3}) {
      const auto g = static_cast<std::int32_t>(problem.groups.size());
      problem.groups.emplace_back();
      for (int i = 0; i < size; ++i) variable(g);
      problem.groups.back().saved_ms = size;
      problem.groups.back().collective_ms = 1;
      problem.groups.back().saved_bytes = 1000 * size;
      problem.groups.back().excludes = {0};
      problem.groups[0].excludes.push_back(g);
    }
  }
  problem.groups[0].saved_ms = 7.0 * count;
  problem.groups[0].collective_ms = 4.0 * count;
  problem.groups[0].saved_bytes = 7000 * count;
  problem.compute_ms = 8.0 * count;
  problem.memory_bytes = 10000 * count;
  return problem;
}

// The most valuable choice that fits, by trying all; -1: none fits.
double best_value(const PartitionProblem& problem, std::vector<std::int32_t> chosen = {}, std::int32_t from = 0) {
  const PartitionScore here = models::score(problem, chosen);
  double best = here.fits ? here.value : -1e9;
  for (auto g = from; g < static_cast<std::int32_t>(problem.groups.size()); ++g) {
    chosen.push_back(g);
    if (!models::score(problem, chosen).conflict) best = std::max(best, best_value(problem, chosen, g + 1));
    chosen.pop_back();
  }
  return best;
}

std::map<std::string, double> statistics(const PartitionAnswer& answer) {
  return {answer.statistics.begin(), answer.statistics.end()};
}

SearchLimits unlimited(std::uint64_t seed = 1) {
  SearchLimits limits;
  limits.units = WorkLimits::kNoEnd;
  limits.seed = seed;
  return limits;
}

void check_answer(const PartitionProblem& problem, const PartitionAnswer& answer) {
  EXPECT_EQ(answer.algorithm, "rainbow");
  EXPECT_TRUE(std::is_sorted(answer.groups.begin(), answer.groups.end()));
  const PartitionScore score = models::score(problem, answer.groups);
  EXPECT_FALSE(score.conflict);
  EXPECT_EQ(score.value, answer.score.value);
  EXPECT_EQ(score.fits, answer.score.fits);
  EXPECT_LE(score.value, answer.bound * (1 + 1e-9) + 1e-12);
  const std::map<std::string, double> s = statistics(answer);
  EXPECT_EQ(s.at("first_stage_variables") + s.at("second_stage_variables"), score.variables);
  EXPECT_GE(s.at("first_stage_variables"), 0);
  EXPECT_GE(s.at("second_stage_variables"), 0);
  EXPECT_GE(s.at("best_episode"), 1);
  EXPECT_LE(s.at("best_episode"), s.at("episodes"));
}

TEST(Rainbow, LearnsNotToSplitTheLargestGroup) {
  for (const int count : {3, 12}) {
    const PartitionProblem problem = layers(count);
    models::check_partition_problem(problem);
    const PartitionAnswer answer = rainbow_search(problem, unlimited(), "");
    check_answer(problem, answer);
    EXPECT_NEAR(answer.score.value, 5.0 * count, 1e-9);
    EXPECT_TRUE(answer.proven);
    EXPECT_FALSE(answer.cut_by_time);
    EXPECT_EQ(statistics(answer).at("learned"), 1);
    EXPECT_LT(statistics(answer).at("episodes"), 200);
  }
}

TEST(Rainbow, NeverWorseThanItsFirstEpisodeAndMostlyOptimal) {
  int optimal = 0, problems = 0;
  for (std::uint64_t n = 0; n < 30; ++n) {
    RandomProblemOptions options;
    options.variables = 25;
    options.groups = 12;
    options.objective = n % 2 ? PartitionObjective::kTime : PartitionObjective::kCount;
    options.exclusions = 0.05 * static_cast<double>(n % 6);
    const PartitionProblem problem = random_partition_problem(options, n);
    RainbowOptions first;
    first.episodes = 1;
    const PartitionAnswer greedy = rainbow_search(problem, unlimited(n), "", first);
    check_answer(problem, greedy);
    EXPECT_EQ(statistics(greedy).at("episodes"), 1);
    RainbowOptions some;
    some.patience_episodes = 100;
    const PartitionAnswer answer = rainbow_search(problem, unlimited(n), "", some);
    check_answer(problem, answer);
    EXPECT_GE(answer.score.value, greedy.score.value);
    const double best = best_value(problem);
    EXPECT_LE(answer.score.value, best + 1e-9);
    EXPECT_GE(answer.bound, best - 1e-9);
    optimal += answer.score.value >= best - 1e-9 ? 1 : 0;
    ++problems;
  }
  EXPECT_GE(optimal, problems - 1);
}

TEST(Rainbow, MemoryLimits) {
  int fit = 0, optimal = 0;
  for (std::uint64_t n = 0; n < 12; ++n) {
    RandomProblemOptions options;
    options.variables = 20;
    options.groups = 10;
    options.objective = n % 2 ? PartitionObjective::kTime : PartitionObjective::kCount;
    options.capacity = 0.7 + 0.02 * static_cast<double>(n);
    const PartitionProblem problem = random_partition_problem(options, n);
    RainbowOptions some;
    some.patience_episodes = 100;
    const PartitionAnswer answer = rainbow_search(problem, unlimited(n), "", some);
    check_answer(problem, answer);
    const double best = best_value(problem);
    EXPECT_LE(answer.score.fits ? answer.score.value : -1e9, best + 1e-9);
    if (best <= -1e9) {
      EXPECT_FALSE(answer.score.fits);
      continue;
    }
    ++fit;
    optimal += answer.score.fits && answer.score.value >= best - 1e-9 ? 1 : 0;
  }
  EXPECT_GE(fit, 4);
  EXPECT_GE(optimal, fit - 1);
}

TEST(Rainbow, SameSeedSameSearch) {
  RandomProblemOptions random;
  random.variables = 60;
  random.groups = 30;
  const PartitionProblem problem = random_partition_problem(random, 3);
  RainbowOptions options;
  options.episodes = 60;
  options.patience_episodes = 0;
  std::vector<PartitionAnswer> answers;
  for (const std::uint64_t seed : {1, 1, 2}) answers.push_back(rainbow_search(problem, unlimited(seed), "", options));
  std::vector<std::map<std::string, double>> s;
  for (const PartitionAnswer& answer : answers) {
    s.push_back(statistics(answer));
    s.back().erase("best_seconds");
  }
  EXPECT_EQ(answers[0].groups, answers[1].groups);
  EXPECT_EQ(s[0], s[1]);
  EXPECT_NE(s[0], s[2]);
  EXPECT_EQ(s[0].at("episodes"), 60);
  EXPECT_GT(s[0].at("updates"), 10);
}

TEST(Rainbow, SwitchesOfTheLearner) {
  const PartitionProblem problem = layers(20);
  for (int i = 0; i < 5; ++i) {
    RainbowOptions options;
    models::LearnerOptions& l = options.learner;
    options.episodes = 150;
    if (i == 0) {
      l.returns = models::Returns::kMonteCarlo;
      l.double_q = false;
      l.target_every = 0;
    }
    if (i == 1) l.prioritized = false;
    if (i == 2) l.double_q = false;
    if (i == 3) l.distribution = models::Distribution::kC51;
    if (i == 4) l.distribution = models::Distribution::kHlGauss;
    const PartitionAnswer answer = rainbow_search(problem, unlimited(), "", options);
    check_answer(problem, answer);
    EXPECT_NEAR(answer.score.value, 100, 1e-9) << i;
    EXPECT_GT(statistics(answer).at("updates"), 0) << i;
  }
  RainbowOptions wrong;
  wrong.learner.target_every = 0;  // double Q without a target network
  EXPECT_THROW(rainbow_search(problem, unlimited(), "", wrong), Error);
}

TEST(Rainbow, WithoutPruningOrSecondStage) {
  const PartitionProblem problem = layers(8);
  for (const bool prune : {false, true}) {
    for (const bool second : {false, true}) {
      RainbowOptions options;
      options.env = {prune, second};
      options.episodes = 300;
      const PartitionAnswer answer = rainbow_search(problem, unlimited(), "", options);
      check_answer(problem, answer);
      // The first episode comes to 24; conflicts that nothing keeps it from make learning harder.
      EXPECT_GE(answer.score.value, prune ? 40 - 1e-9 : 30) << prune << second;
      if (!second) {
        EXPECT_EQ(statistics(answer).at("second_stage_variables"), 0);
      }
    }
  }
}

TEST(Rainbow, NothingToDecideAndNoTime) {
  const PartitionAnswer empty = rainbow_search(PartitionProblem(), unlimited(), "");
  EXPECT_TRUE(empty.groups.empty());
  EXPECT_TRUE(empty.proven);
  PartitionProblem whole;
  whole.variables = {{"a", {7}, 28}};
  whole.impossible = {{0, 0}};
  whole.memory_bytes = 10;
  whole.capacity_bytes = 5;
  EXPECT_FALSE(rainbow_search(whole, unlimited(), "").score.fits);

  SearchLimits none;
  none.budget_s = 0;
  RandomProblemOptions random;
  random.groups = 12;
  const PartitionProblem problem = random_partition_problem(random, 4);
  const PartitionAnswer answer = rainbow_search(problem, none, "");
  EXPECT_TRUE(answer.cut_by_time || answer.proven);
  check_answer(problem, answer);  // the first episode's

  // Counted work ends it at the same place whatever the clock says.
  SearchLimits counted;
  counted.units = 60'000'000;
  random.groups = 60;  // whose bound cannot be reached
  random.variables = 150;
  const PartitionProblem large = random_partition_problem(random, 4);
  const PartitionAnswer first = rainbow_search(large, counted, "");
  EXPECT_TRUE(first.cut_by_effort);
  EXPECT_FALSE(first.cut_by_time);
  check_answer(large, first);
  counted.budget_s = 1e6;
  const PartitionAnswer second = rainbow_search(large, counted, "");
  EXPECT_EQ(second.groups, first.groups);
  EXPECT_EQ(second.score.value, first.score.value);
  for (const char* counter : {"episodes", "steps", "updates", "best_episode"}) {
    EXPECT_EQ(statistics(second).at(counter), statistics(first).at(counter)) << counter;
  }
  std::printf("%.3f s for %lld million units\n", first.seconds, static_cast<long long>(counted.units / 1'000'000));

  int looks = 0;
  RainbowOptions stopped;
  stopped.stop_requested = [&looks] { return ++looks > 30; };
  const PartitionAnswer early = rainbow_search(large, unlimited(), "", stopped);
  EXPECT_TRUE(early.cut_by_time);
  EXPECT_LT(statistics(early).at("episodes"), 31);
}

class RainbowPolicy : public ::testing::Test {
 protected:
  ~RainbowPolicy() override { ::unlink(path_.c_str()); }
  const std::string path_ = ::testing::TempDir() + "rainbow_test_" + std::to_string(::getpid()) + ".policy";
};

TEST_F(RainbowPolicy, TrainedOnOneModelServesAnother) {
  RainbowOptions training;
  training.episodes = 120;
  write_file_atomic(path_, train_partition_policy({layers(3), layers(5)}, unlimited(), training).serialize());
  // Its first own episode, the second of the search, is the best one on a model of other size.
  const PartitionProblem larger = layers(30);
  RainbowOptions options;
  options.episodes = 2;
  const PartitionAnswer answer = rainbow_search(larger, unlimited(), path_, options);
  EXPECT_NEAR(answer.score.value, 150, 1e-9);
  EXPECT_EQ(statistics(answer).at("best_episode"), 2);
  const PartitionAnswer scratch = rainbow_search(larger, unlimited(), "", options);
  EXPECT_LT(scratch.score.value, 149);
}

TEST_F(RainbowPolicy, DistributionalPoliciesToo) {
  RainbowOptions training;
  training.episodes = 60;
  training.learner.distribution = models::Distribution::kHlGauss;
  training.learner.atoms = 31;
  training.learner.hidden = {16};
  write_file_atomic(path_, train_partition_policy({layers(3)}, unlimited(), training).serialize());
  RainbowOptions options;
  options.episodes = 20;
  check_answer(layers(4), rainbow_search(layers(4), unlimited(), path_, options));
}

TEST_F(RainbowPolicy, OtherFilesAreRefused) {
  const PartitionProblem problem = layers(2);
  EXPECT_THROW(rainbow_search(problem, unlimited(), "/nonexistent.policy"), Error);
  models::Architecture a;
  a.features = models::kFeatures;
  a.feature_version = models::kFeatureVersion;
  a.hidden = {4};
  write_file_atomic(path_, Policy(a, std::vector<float>(Policy::num_weights(a), 0.1f)).serialize());
  try {
    rainbow_search(problem, unlimited(), path_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.what(), HasSubstr(path_));
    EXPECT_THAT(error.what(), HasSubstr("not a policy for partitionings"));
  }
  EXPECT_THROW(train_partition_policy({}, unlimited()), Error);
  EXPECT_THROW(train_partition_policy({PartitionProblem()}, unlimited()), Error);
}

TEST(FindRainbow, OpensTheLibrary) {
  const PartitionProblem problem = layers(3);
  const RainbowSearch search = find_rainbow({"/nonexistent", executable_folder() + "/.."});
  ASSERT_TRUE(search);
  const PartitionAnswer answer = search(problem, unlimited(), "");
  const PartitionAnswer linked = rainbow_search(problem, unlimited(), "");
  EXPECT_EQ(answer.groups, linked.groups);
  EXPECT_EQ(statistics(answer).at("episodes"), statistics(linked).at("episodes"));
  // Errors of the other side are caught on this one.
  EXPECT_THROW(search(problem, unlimited(), "/nonexistent.policy"), Error);
}

TEST(FindRainbow, LibrariesThatAreNone) {
  EXPECT_FALSE(find_rainbow({"/nonexistent"}));
  EXPECT_FALSE(find_rainbow(std::vector<std::string>()));
  const std::string folder = ::testing::TempDir() + "rainbow_test_" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  const std::string path = folder + "/libautomap_learned.so";
  write_file_atomic(path, "no library");
  const RainbowSearch search = find_rainbow({folder});
  ASSERT_TRUE(search);
  try {
    search(layers(2), unlimited(), "");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr(path));
  }
  ::unlink(path.c_str());
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace automap::partition
