#include "train/actors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "models/policy_search.h"
#include "tests/train/simple_learner.h"

namespace automap::train {
namespace {

std::unique_ptr<ProblemSource> mixed(std::uint64_t seed = 1) {
  return open_source("synth:mixed", seed, {}, {});
}

// Problems small enough for the exact solver, one after the other.
class SmallProblems : public ProblemSource {
 public:
  explicit SmallProblems(int stages, bool whole = false) : stages_(stages), whole_(whole) {}
  TrainingProblem problem(std::uint64_t i) const override {
    pipeline::RandomProblemOptions options;
    options.min_instructions = options.max_instructions = 24;
    options.min_servers = options.max_servers = 2;
    options.min_devices = options.max_devices = 4;
    options.with_memory_limit = whole_ ? 0.8 : 0.3;
    options.whole = whole_ ? 1 : 0;
    options.without_idle = 0;
    const pipeline::RandomProblem random = pipeline::random_problem(i, options);
    TrainingProblem problem;
    problem.parts = {random.profile, random.cluster, random.options};
    problem.stages = stages_;
    if (whole_) problem.schedule = pipeline::Schedule::kAdaptive;
    return problem;
  }
  const std::vector<std::string>& families() const override { return families_; }
  std::string fingerprint() const override { return "small"; }

 private:
  int stages_;
  bool whole_;
  std::vector<std::string> families_{"random"};
};

double exact_ms(const TrainingProblem& problem) {
  pipeline::ExactOptions options;
  options.min_stages = options.max_stages = problem.stages;
  options.schedule = problem.schedule;
  const auto result = pipeline::solve_exact(problem.parts.problem(), options);
  return result.by_stages.front().value_ms.empty() ? INFINITY : result.by_stages.front().value_ms.front();
}

double root_ms(const TrainingProblem& problem) {
  const pipeline::Problem prepared = problem.parts.problem();
  models::PlanSpaceOptions options;
  options.stages = problem.stages;
  options.schedule = problem.schedule;
  return models::PlanSpace(prepared, options).root().bound_ms;
}

bool same(const models::Episode& a, const models::Episode& b) {
  if (a.y != b.y || a.feasible != b.feasible || a.decisions.size() != b.decisions.size()) return false;
  for (std::size_t i = 0; i < a.decisions.size(); ++i) {
    const models::Decision &x = a.decisions[i], &y = b.decisions[i];
    if (x.inputs != y.inputs || x.actions != y.actions || x.log_bound != y.log_bound || x.chosen != y.chosen ||
        x.exact_y != y.exact_y || x.legal != y.legal) {
      return false;
    }
  }
  return true;
}

TEST(Actors, EpsilonLadderAndSchedule) {
  models::PlayOptions options;
  options.epsilon_start = 0.64;
  options.epsilon_end = 0.04;
  options.epsilon_episodes = 1000;
  EXPECT_DOUBLE_EQ(models::epsilon_of_play(options, 0), 0.8);              // first rung: the square root
  EXPECT_NEAR(models::epsilon_of_play(options, 7 + 8000), 0.0016, 1e-12);  // last rung: the square
  EXPECT_DOUBLE_EQ(models::epsilon_of_play(options, 8000), 0.2);
  options.flat = true;
  EXPECT_DOUBLE_EQ(models::epsilon_of_play(options, 500), 0.34);
  // As long as the run.
  options.epsilon_episodes = 0;
  EXPECT_DOUBLE_EQ(models::epsilon_of_play(options, 500), 0.64);
  options.progress = 0.5;
  EXPECT_DOUBLE_EQ(models::epsilon_of_play(options, 0), 0.34);
  options.progress = 1;
  EXPECT_NEAR(models::epsilon_of_play(options, 7), 0.04, 1e-12);
  options.epsilon_episodes = 1000;
  options.exponential = true;
  EXPECT_DOUBLE_EQ(models::epsilon_of_play(options, 500), 0.16);
}

TEST(Actors, APlayDependsOnSeedNumberAndWeightsOnly) {
  const auto source = mixed();
  const SimpleLearner learner;
  models::PlayOptions options;
  options.label_fraction = 0.5;
  for (const std::uint64_t number : {0, 5, 17, 40}) {
    const models::Played a = play_problem(*source, number, learner.policy("{}"), options, 7);
    const models::Played b = play_problem(*source, number, learner.policy("{}"), options, 7);
    ASSERT_EQ(a.episodes.size(), b.episodes.size());
    for (std::size_t i = 0; i < a.episodes.size(); ++i) EXPECT_TRUE(same(a.episodes[i], b.episodes[i])) << i;
  }
}

// No return is below the optimum, and the exact values of a problem's root have the optimum as their least.
// `off`: by how much, where stages have variants.
void check_returns_and_labels(bool whole, double off) {
  const SimpleLearner learner;
  int labelled = 0, with_optimum = 0;
  for (const int stages : {3, 4, 5}) {
    const SmallProblems source(stages, whole);
    models::PlayOptions options;
    options.label_fraction = 1;
    options.label_limit = 1.3;
    for (std::uint64_t number = 0; number < 25; ++number) {
      const TrainingProblem problem = source.problem(number);
      const double optimum = exact_ms(problem), root = root_ms(problem);
      const models::Played played = play_problem(source, number, learner.policy("{}"), options, 1);
      EXPECT_EQ(played.plays, static_cast<std::uint64_t>(options.plays));
      if (!std::isfinite(optimum)) continue;
      const double optimal_y = std::log(optimum / root);
      for (const models::Episode& episode : played.episodes) {
        EXPECT_GE(static_cast<double>(episode.y), optimal_y - 1e-5);
        ASSERT_EQ(episode.decisions.size(), 1u);
        const models::Decision& d = episode.decisions.front();
        EXPECT_EQ(d.inputs.size(), static_cast<std::size_t>(d.actions) * 58);
        EXPECT_EQ(d.log_bound.size(), static_cast<std::size_t>(d.actions));
        ASSERT_LT(d.chosen, d.actions);
        if (d.exact_y.empty()) {
          EXPECT_EQ(d.actions, 1);
          continue;
        }
        ++labelled;
        for (std::size_t a = 0; a < d.exact_y.size(); ++a) {
          EXPECT_GE(d.exact_y[a], d.exact_y[static_cast<std::size_t>(d.chosen)]);
          // The plan space has chosen the variants of the stages that stand; exact labels have not.
          if (whole) continue;
          EXPECT_GE(d.exact_y[a], d.log_bound[a] - 1e-5f) << "below its admissible bound";
        }
        const double best = static_cast<double>(d.exact_y[static_cast<std::size_t>(d.chosen)]);
        EXPECT_GE(best, optimal_y - 1e-5);
        if (best < optimal_y + off) ++with_optimum;
      }
    }
  }
  EXPECT_GT(labelled, 100);
  EXPECT_GT(with_optimum, 60);
}

TEST(Actors, ReturnsAndLabelsAgainstTheExactSolver) {
  check_returns_and_labels(false, 1e-5);
}

TEST(Actors, ReturnsAndLabelsOfWholeSamplesAgainstTheExactSolver) {
  check_returns_and_labels(true, 5e-3);
}

TEST(Actors, BestReturnsAreAtMostThePlaysOwn) {
  const SmallProblems source(4);
  const SimpleLearner learner;
  models::PlayOptions best, own;
  own.best_return = false;
  for (std::uint64_t number = 0; number < 10; ++number) {
    const models::Played a = play_problem(source, number, learner.policy("{}"), best, 1);
    const models::Played b = play_problem(source, number, learner.policy("{}"), own, 1);
    EXPECT_EQ(a.y, b.y);  // the same plays
    EXPECT_EQ(b.decisions, 2u * 4u);
    EXPECT_LE(a.decisions, b.decisions);  // each decision once
    int matched = 0;
    for (const models::Episode& mine : a.episodes) {
      for (const models::Episode& theirs : b.episodes) {
        if (theirs.decisions.front().inputs != mine.decisions.front().inputs) continue;
        EXPECT_LE(mine.y, theirs.y);
        ++matched;
      }
    }
    EXPECT_EQ(static_cast<std::size_t>(matched), b.episodes.size());
  }
}

// Expert iteration: one more episode, whose end is that of the wide beam with its corridor, or of the beam alone.
TEST(Actors, TheExpertsPlanIsFollowed) {
  const SmallProblems source(5);
  const SimpleLearner learner;
  const models::Policy policy = learner.policy("{}");
  models::PlayOptions options;
  options.whole_episodes = true;
  options.best_return = false;
  options.epsilon_start = options.epsilon_end = 1;  // plays alone end badly
  int shorter = 0;
  for (std::uint64_t number = 0; number < 12; ++number) {
    SCOPED_TRACE(number);
    options.expert_fraction = 0;
    const models::Played plays = play_problem(source, number, policy, options, 1);
    options.expert_fraction = 1;
    const models::Played played = play_problem(source, number, policy, options, 1);
    ASSERT_LE(played.episodes.size(), plays.episodes.size() + 1);
    for (std::size_t i = 0; i < plays.episodes.size(); ++i) EXPECT_TRUE(same(played.episodes[i], plays.episodes[i]));
    if (played.episodes.size() == plays.episodes.size()) continue;
    const TrainingProblem problem = source.problem(number);
    const pipeline::Problem prepared = problem.parts.problem();
    models::OneShotOptions shot;
    shot.space.stages = problem.stages;
    shot.space.schedule = problem.schedule;
    shot.search.beam = options.expert_beam;
    const auto found = models::plan_in_one_shot(prepared, &policy, shot);
    ASSERT_TRUE(found);
    const double expert_ms = root_ms(problem) * std::exp(static_cast<double>(played.episodes.back().y));
    EXPECT_GE(expert_ms, found->found.length_ms * (1 - 1e-5));
    EXPECT_LE(expert_ms, found->searched_ms * (1 + 1e-5));
    float best = INFINITY;
    for (const models::Episode& episode : plays.episodes) best = std::min(best, episode.y);
    EXPECT_LE(played.episodes.back().y, best + 1e-5f);
    shorter += played.episodes.back().y < best - 1e-5f;
  }
  EXPECT_GT(shorter, 3);
}

TEST(Actors, WholeEpisodesHaveEveryDecisionWithAllItsChildren) {
  const SmallProblems source(5);
  const SimpleLearner learner;
  models::PlayOptions options;
  options.whole_episodes = true;
  options.best_return = false;
  const models::Played played = play_problem(source, 3, learner.policy("{}"), options, 1);
  ASSERT_EQ(played.episodes.size(), 4u);
  for (const models::Episode& episode : played.episodes) {
    EXPECT_EQ(episode.decisions.size(), 3u);
    for (const models::Decision& d : episode.decisions) EXPECT_GT(d.actions, 1);
  }
}

TEST(Actors, TwoStagesLeaveNothingToDecide) {
  const SmallProblems source(2);
  const SimpleLearner learner;
  const models::Played played = play_problem(source, 1, learner.policy("{}"), {}, 1);
  EXPECT_TRUE(played.episodes.empty());
  EXPECT_EQ(played.plays, 4u);
  EXPECT_EQ(played.infeasible, 0u);
  const TrainingProblem problem = source.problem(1);
  EXPECT_NEAR(played.y / 4, std::log(exact_ms(problem) / root_ms(problem)), 1e-5);
}

TEST(Actors, SimulatedReturnsAreSimulations) {
  const SmallProblems source(3);
  const SimpleLearner learner;
  models::PlayOptions options;
  options.objective = pipeline::Objective::kSimulated;
  options.label_fraction = 1;
  for (std::uint64_t number = 0; number < 10; ++number) {
    const TrainingProblem problem = source.problem(number);
    const pipeline::Problem prepared = problem.parts.problem();
    // The shortest simulation of any plan, by trying them all.
    double best = INFINITY;
    pipeline::Plan plan;
    for (int a = 1; a < 24; ++a) {
      for (int b = a + 1; b < 24; ++b) {
        for (int d = 1; d < 8; ++d) {
          for (int e = d + 1; e < 8; ++e) {
            plan.cuts = {a, b};
            plan.device_cuts = {d, e};
            if (pipeline::feasible(prepared, plan)) best = std::min(best, pipeline::simulate_step_ms(prepared, plan));
          }
        }
      }
    }
    const models::Played played = play_problem(source, number, learner.policy("{}"), options, 1);
    const double root = root_ms(problem);
    for (const models::Episode& episode : played.episodes) {
      EXPECT_TRUE(episode.decisions.front().exact_y.empty());
      if (!episode.feasible) continue;
      EXPECT_GE(static_cast<double>(episode.y), std::log(best / root) - 1e-5);
    }
    EXPECT_EQ(played.labelled, 0u);
  }
}

TEST(Sources, AModelKeepsItsValueOnTheGrid) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = options.max_instructions = 300;
  const pipeline::RandomProblem random = pipeline::random_problem(5, options);
  const pipeline::Profile coarse = grid_profile(random.profile);
  const std::vector<int> pivots = pipeline::grid_pivots(300, 128);
  ASSERT_EQ(coarse.c_ms.size(), pivots.size() + 1);
  const pipeline::Problem fine = random.problem(), small(coarse, random.cluster, random.options);
  for (int i = 10; i < 100; i += 7) {
    const pipeline::Plan plan_small{{i, i + 20}, {8, 16}, pipeline::Schedule::k1f1b};
    const pipeline::Plan plan_fine{{pivots[static_cast<std::size_t>(i - 1)], pivots[static_cast<std::size_t>(i + 19)]},
                                   {8, 16},
                                   pipeline::Schedule::k1f1b};
    EXPECT_NEAR(pipeline::value_ms(small, plan_small) / pipeline::value_ms(fine, plan_fine), 1, 1e-12);
  }
}

TEST(Sources, AWholeModelKeepsItsValueOnTheGrid) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = options.max_instructions = 300;
  options.with_memory_limit = 0.5;
  options.heterogeneous = 0.5;
  options.whole = 1;
  options.with_recompute = 0;  // layers begin at pivots then
  int feasible_plans = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const pipeline::RandomProblem random = pipeline::random_problem(seed, options);
    const std::vector<int> pivots = pipeline::grid_pivots(300, 128);
    const pipeline::Problem fine = random.problem(),
                            small(grid_profile(random.profile), random.cluster, random.options);
    pipeline::CounterRandom draw(seed, 7);
    for (int i = 0; i < 2000; ++i) {
      pipeline::Plan plan = random_plan(small, 3, pipeline::Schedule::kAdaptive, draw);
      plan.variants.assign(3, static_cast<std::uint8_t>(draw.integer(0, small.num_variants() - 1)));
      pipeline::Plan original = plan;
      for (int& cut : original.cuts) cut = pivots[static_cast<std::size_t>(cut - 1)];
      ASSERT_EQ(pipeline::feasible(small, plan), pipeline::feasible(fine, original)) << seed;
      if (!pipeline::feasible(small, plan)) {
        ++refused;
        continue;
      }
      ++feasible_plans;
      EXPECT_NEAR(pipeline::value_ms(small, plan) / pipeline::value_ms(fine, original), 1, 1e-9);
    }
  }
  EXPECT_GT(feasible_plans, 30);
  EXPECT_GT(refused, 30);
}

// The source asks the default questions of automap-infer, for every stage count that can share the devices.
TEST(Sources, AModelIsAskedAboutAsInferAsks) {
  pipeline::RandomProblemOptions kinds;
  kinds.whole = kinds.with_recompute = 1;
  pipeline::RandomProblem random = pipeline::random_problem(5, kinds);
  random.profile.micro_batch_size = 4;
  for (pipeline::DeviceTimes& times : random.profile.times) times.samples.back() = 1024;
  const pipeline::ProblemOptions asked = options_of_model(random.profile, 16);
  EXPECT_EQ(asked.variants.size(), 4u);
  const auto exactly = model_source(random.profile, random.cluster, asked, 3, true);
  const auto varied = model_source(random.profile, random.cluster, asked, 3, false);
  std::set<double> samples;
  for (std::uint64_t i = 0; i < exactly->size(); ++i) {
    const TrainingProblem problem = exactly->problem(i);
    const pipeline::ProblemOptions& options = problem.parts.options;
    EXPECT_EQ(problem.schedule, pipeline::Schedule::kAdaptive);
    EXPECT_TRUE(pipeline::groups_exist(random.cluster.num_devices(), problem.stages,
                                       static_cast<int>(options.micro_batch_samples)));
    EXPECT_EQ(options.micro_batch_samples * options.micro_batches, 64);
    samples.insert(options.micro_batch_samples);
  }
  EXPECT_GT(samples.size(), 1u);
  for (std::uint64_t i = 0; i < 30; ++i) EXPECT_NO_THROW(varied->problem(i).parts.problem());
}

TEST(Sources, VariationsOfAModelAreProblemsAndTheQuestionItselfComesExactly) {
  const pipeline::RandomProblem random = pipeline::random_problem(5, {});
  const auto varied = model_source(random.profile, random.cluster, random.options, 3, false);
  const auto exactly = model_source(random.profile, random.cluster, random.options, 3, true);
  std::set<int> micro_batches;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const TrainingProblem problem = varied->problem(i);
    EXPECT_GE(problem.stages, 2);
    EXPECT_LE(problem.stages, problem.parts.problem().num_devices());
    micro_batches.insert(problem.parts.options.micro_batches);
  }
  EXPECT_GT(micro_batches.size(), 5u);
  ASSERT_EQ(exactly->size(), 15u);
  for (std::uint64_t i = 0; i < exactly->size(); ++i) {
    EXPECT_EQ(exactly->problem(i).stages, static_cast<int>(i) + 2);
    EXPECT_EQ(exactly->problem(i).parts.options.micro_batches, random.options.micro_batches);
  }
}

TEST(Sources, AnotherModelHasAnotherFingerprint) {
  pipeline::RandomProblem random = pipeline::random_problem(5, {});
  const auto fingerprint = [&] {
    return model_source(random.profile, random.cluster, random.options, 3, true)->fingerprint();
  };
  const std::string before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  random.profile.c_ms.back() *= 2;
  const std::string other_costs = fingerprint();
  EXPECT_NE(other_costs, before);
  ++random.options.micro_batches;
  EXPECT_NE(fingerprint(), other_costs);
}

TEST(Sources, AModelOfOneInstructionHasNothingToCut) {
  pipeline::RandomProblem random = pipeline::random_problem(5, {});
  pipeline::Profile& p = random.profile;
  for (std::vector<double>* values : {&p.c_ms, &p.a_bytes, &p.w_bytes, &p.stash_bytes}) values->resize(1);
  try {
    model_source(p, random.cluster, random.options, 3, true);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
  }
}

TEST(Sources, FamiliesOfADatasetCannotBeChosen) {
  try {
    open_source("/nowhere", 1, {"cnn"}, {});
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
  }
  EXPECT_THROW(open_source("/nowhere", 1, {}, {}), Error);
  EXPECT_THROW(open_source("synth:nothing-like-that", 1, {}, {}), Error);
}

}  // namespace
}  // namespace automap::train
