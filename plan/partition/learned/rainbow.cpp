#include "plan/partition/learned/rainbow.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/rng.h"
#include "models/learner/online_learner.h"
#include "plan/partition/search_internal.h"

namespace automap::partition {
namespace {

using models::Decision;
using models::Episode;
using models::LearnerOptions;
using models::PartitionEnv;
using models::PartitionProblem;
using models::Policy;

constexpr std::uint32_t kEpisodeStream = 0x52420001;
// Decisions kept, of all episodes: 200 bytes each when both after-states are.
constexpr int kReplayDecisions = 200000;
constexpr int kMostReplayEpisodes = 2000;
// Longer episodes are not learned from: the first episodes' answer is returned.
constexpr int kMostDecisions = 50000;
constexpr int kStepsBetweenLooks = 64;
constexpr int kLeastSteps = 4, kStepsPerEpisode = 6;  // of n-step returns
constexpr double kWithoutExploring = 0.25;            // share of episodes

// Prices, units of work: a decision with its features and the network's answer, and an update of the network.
constexpr std::int64_t kPerDecision = 2'000;
constexpr std::int64_t kPerUpdate = 400'000;

WorkLimits work_limits(const SearchLimits& limits, const RainbowOptions& options) {
  WorkLimits work;
  work.units = limits.units;
  work.seconds = std::min(limits.budget_s, limits.ends_s - steady_seconds());
  work.cancelled = options.stop_requested;
  return work;
}

LearnerOptions learner_options(const RainbowOptions& options, const SearchLimits& limits, int most_decisions,
                               models::PartitionObjective objective, const Policy* start) {
  LearnerOptions o = options.learner;
  o.family = models::Family::kAfterState;
  o.inputs = PartitionEnv::kFeatures;
  o.feature_version = PartitionEnv::kFeatureVersion;
  o.objective = objective == models::PartitionObjective::kTime ? 1 : 0;
  o.max_decisions = std::max(1, most_decisions);
  o.replay_episodes = std::clamp(kReplayDecisions / o.max_decisions, 4, kMostReplayEpisodes);
  // Longer steps carry an episode's return further back, but with its random decisions; short episodes need none.
  o.n_step = std::min(o.n_step, std::max(kLeastSteps, o.max_decisions / kStepsPerEpisode));
  o.seed = limits.seed;
  if (start) {
    const models::Architecture& a = start->architecture();
    o.hidden = a.hidden;
    if (a.head == models::Head::kCategorical) {
      if (o.distribution == models::Distribution::kNone) o.distribution = models::Distribution::kHlGauss;
      o.atoms = a.atoms;
      o.low = a.low;
      o.high = a.high;
    } else {
      o.distribution = models::Distribution::kNone;
    }
  }
  return o;
}

Policy load_policy(const std::string& path) {
  Policy policy = Policy::load(path);
  const models::Architecture& a = policy.architecture();
  const bool ours = a.family == models::Family::kAfterState && a.feature_version == PartitionEnv::kFeatureVersion &&
                    a.features == PartitionEnv::kFeatures;
  if (!ours || (a.head != models::Head::kPlain && a.head != models::Head::kCategorical)) {
    throw Error(ErrorKind::kData,
                path + ": not a policy for partitionings: it takes " + std::to_string(a.features) +
                    " features of version " + std::to_string(a.feature_version) + ", expected " +
                    std::to_string(PartitionEnv::kFeatures) + " of version " +
                    std::to_string(PartitionEnv::kFeatureVersion),
                "leave out --policy to train from scratch");
  }
  return policy;
}

// The way an episode decides.
enum class Mode { kWorthwhile, kEverything, kPolicy };

// One learner, and the episodes that it plays.
class Rainbow {
 public:
  Rainbow(const RainbowOptions& options, const LearnerOptions& learner, std::optional<Policy> start, Work& work)
      : options_(options),
        seed_(learner.seed),
        work_(work),
        started_(start.has_value()),
        learner_(learner, {options.decisions_per_update, options.policy_every, kPerUpdate}, std::move(start), work) {
    exploring_ = std::max<std::uint64_t>(1, started_ ? options.exploring_episodes / 4 : options.exploring_episodes);
  }

  // The decisions that a policy makes at random in episode `number` of an environment with this many.
  double random_share(std::uint64_t number, int decisions, Rng& rng) const {
    if (rng.uniform() < kWithoutExploring || (started_ && !explored_)) return 0;
    const double done = std::min(1.0, static_cast<double>(number) / static_cast<double>(exploring_));
    const double last = std::min(1.0, options_.random_decisions_end / std::max(1, decisions));
    const double first = started_ ? std::sqrt(last) : 1.0;
    // From `first` to `last` by equal factors; each episode somewhat more or less.
    return std::min(1.0, std::pow(last / first, done) * first * rng.uniform(0.25, 1.5));
  }

  // Plays and remembers an episode. False when time or a stop came between.
  bool play(PartitionEnv& env, const PartitionProblem& problem, Mode mode, std::uint64_t number) {
    Rng rng(seed_, kEpisodeStream, number);
    const double random = mode == Mode::kPolicy ? random_share(number, env.most_decisions(), rng) : 0;
    episode_ = Episode();
    first_stage_.clear();
    if (mode == Mode::kPolicy) explored_ = true;
    env.reset();
    int since = 0;
    while (!env.done()) {
      if (++since >= kStepsBetweenLooks) {
        since = 0;
        // The first episode is an answer whatever the budget.
        if (mode != Mode::kWorthwhile && stopped()) return false;
      }
      Decision& decision = episode_.decisions.emplace_back();
      decision.actions = PartitionEnv::kActions;
      decision.inputs.resize(static_cast<std::size_t>(PartitionEnv::kActions * PartitionEnv::kFeatures));
      decision.log_bound.assign(PartitionEnv::kActions, 0.0f);
      env.features(decision.inputs.data());
      if (mode == Mode::kPolicy) {
        decision.chosen = rng.uniform() < random ? static_cast<int>(rng.below(2)) : best_action(decision, rng);
      } else {
        decision.chosen = worthwhile(env, problem, mode) ? 1 : 0;
      }
      const int stage = env.stage();
      const std::int32_t group = env.group();
      env.step(decision.chosen);
      if (decision.chosen == 1 && stage == 1 && group >= 0 && !env.conflict()) first_stage_.push_back(group);
      ++steps_;
      work_.spend(kPerDecision);
    }
    episode_.y = env.shortfall();
    episode_.feasible = !env.conflict() && env.fits();
    ++episodes_;
    return true;
  }

  // Learns from the episode just played; false when time or a stop came between.
  bool learn() {
    std::vector<Episode> played;
    played.push_back(std::exchange(episode_, Episode()));
    return learner_.learn(std::move(played));
  }

  bool stopped() { return work_.over(); }
  const std::vector<std::int32_t>& first_stage() const { return first_stage_; }
  std::uint64_t episodes() const { return episodes_; }
  std::uint64_t steps() const { return steps_; }
  const models::OnlineLearner& learner() const { return learner_; }

 private:
  bool worthwhile(const PartitionEnv& env, const PartitionProblem& problem, Mode mode) const {
    const std::int32_t group = env.group();
    if (group < 0) return false;
    // Without pruning excluded groups are asked for, too.
    if (!options_.env.prune) {
      for (const std::int32_t other : problem.groups[static_cast<std::size_t>(group)].excludes) {
        const auto& member = problem.groups[static_cast<std::size_t>(other)].members[0];
        if (env.state()[first_dim(problem, member)] == 1) return false;
      }
    }
    return problem.value(group) > 0 ||
           (mode == Mode::kEverything && problem.groups[static_cast<std::size_t>(group)].saved_bytes > 0);
  }

  static std::size_t first_dim(const PartitionProblem& problem, const std::pair<std::int32_t, std::int32_t>& member) {
    std::size_t at = static_cast<std::size_t>(member.second);
    for (std::int32_t v = 0; v < member.first; ++v) at += problem.variables[static_cast<std::size_t>(v)].dims.size();
    return at;
  }

  int best_action(const Decision& decision, Rng& rng) const {
    if (!learner_.policy()) return static_cast<int>(rng.below(2));
    float y[PartitionEnv::kActions];
    learner_.policy()->predict(decision.inputs.data(), decision.log_bound.data(), PartitionEnv::kActions, y);
    return y[1] < y[0] ? 1 : 0;
  }

  const RainbowOptions& options_;
  std::uint64_t seed_;
  Work& work_;
  bool started_ = false, explored_ = false;  // from a policy; an episode of its own was played
  models::OnlineLearner learner_;
  std::uint64_t exploring_ = 1;
  Episode episode_;
  std::vector<std::int32_t> first_stage_;
  std::uint64_t episodes_ = 0, steps_ = 0;
};

}  // namespace

models::LearnerOptions RainbowOptions::default_learner() {
  LearnerOptions o;
  o.hidden = {64, 64};
  o.residual = false;
  o.returns = models::Returns::kNStep;
  o.n_step = 30;
  o.double_q = true;
  o.target_every = 100;
  o.prioritized = true;
  o.beta_updates = 5000;
  o.batch = 64;
  o.label_batch = 0;
  o.replay_labels = 0;
  o.label_weight = 0;
  o.learning_rate = 1e-3;
  o.learning_rate_end = 2e-4;
  o.learning_rate_updates = 5000;
  o.ema = 0.98;
  return o;
}

PartitionAnswer rainbow_search(const PartitionProblem& problem, const SearchLimits& limits,
                               const std::string& policy_path, const RainbowOptions& options) {
  const internal::Stopwatch watch;
  Work work(work_limits(limits, options));
  std::optional<Policy> start;
  if (!policy_path.empty()) start = load_policy(policy_path);
  PartitionEnv env(problem, options.env);
  const bool learns = env.most_decisions() <= kMostDecisions;
  const LearnerOptions learner =
      learner_options(options, limits, learns ? env.most_decisions() : 1, problem.objective, start ? &*start : nullptr);
  Rainbow rainbow(options, learner, std::move(start), work);

  PartitionAnswer answer;
  const auto cut = [&] { (work.stopped() ? answer.cut_by_time : answer.cut_by_effort) = true; };
  answer.algorithm = "rainbow";
  answer.bound = env.bound();
  std::uint64_t best_episode = 0, first_stage_variables = 0;
  double best_seconds = 0;
  for (std::uint64_t number = 0;; ++number) {
    const bool memory_only = number == 1 && problem.capacity_bytes > 0;
    const Mode mode = number == 0 ? Mode::kWorthwhile : memory_only ? Mode::kEverything : Mode::kPolicy;
    if (number > 0) {
      const std::uint64_t patience = std::max(options.patience_episodes, 2 * best_episode);
      if (options.episodes > 0 && number >= options.episodes) break;
      if (options.patience_episodes > 0 && number >= best_episode + patience) break;
      if (!learns && mode == Mode::kPolicy) break;
      if (rainbow.stopped()) {
        cut();
        break;
      }
    }
    if (!rainbow.play(env, problem, mode, number)) {
      cut();
      break;
    }
    if (!env.conflict()) {
      std::vector<std::int32_t> groups = env.chosen();
      const models::PartitionScore score = models::score(problem, groups);
      if (best_episode == 0 || internal::better(score, answer.score)) {
        answer.groups = std::move(groups);
        answer.score = score;
        best_episode = number + 1;
        best_seconds = watch.seconds();
        first_stage_variables = 0;
        for (const std::int32_t g : rainbow.first_stage()) {
          first_stage_variables += problem.groups[static_cast<std::size_t>(g)].members.size();
        }
      }
    }
    const double slack = 1e-9 * std::abs(answer.bound);
    answer.proven = best_episode > 0 && answer.score.fits && answer.score.value >= answer.bound - slack;
    if (answer.proven || env.most_decisions() == 0) break;
    if (learns && !rainbow.learn()) {
      cut();
      break;
    }
  }
  answer.seconds = watch.seconds();
  const std::uint64_t first_episodes = problem.capacity_bytes > 0 ? 2 : 1;
  answer.statistics = {
      {"episodes", static_cast<double>(rainbow.episodes())},
      {"steps", static_cast<double>(rainbow.steps())},
      {"updates", static_cast<double>(rainbow.learner().updates())},
      {"first_stage_variables", static_cast<double>(first_stage_variables)},
      {"second_stage_variables", answer.score.variables - static_cast<double>(first_stage_variables)},
      {"best_episode", static_cast<double>(best_episode)},
      {"best_seconds", best_seconds},
      {"learned", best_episode > first_episodes ? 1.0 : 0.0},
  };
  return answer;
}

models::Policy train_partition_policy(const std::vector<PartitionProblem>& problems, const SearchLimits& limits,
                                      const RainbowOptions& options) {
  if (problems.empty()) throw Error(ErrorKind::kUsage, "no partitioning problems to train on");
  Work work(work_limits(limits, options));
  std::vector<PartitionEnv> envs;
  std::vector<std::size_t> usable;
  int most = 1;
  for (const PartitionProblem& problem : problems) {
    envs.emplace_back(problem, options.env);
    const int decisions = envs.back().most_decisions();
    if (decisions == 0 || decisions > kMostDecisions) continue;
    usable.push_back(envs.size() - 1);
    most = std::max(most, decisions);
  }
  if (usable.empty()) throw Error(ErrorKind::kUsage, "no partitioning problem has a decision to make");
  Rainbow rainbow(options, learner_options(options, limits, most, problems[usable[0]].objective, nullptr), std::nullopt,
                  work);
  for (std::uint64_t number = 0; options.episodes == 0 || number < options.episodes; ++number) {
    if (rainbow.stopped()) break;
    const std::size_t i = usable[number % usable.size()];
    const Mode mode = number < usable.size() ? Mode::kWorthwhile : Mode::kPolicy;
    if (!rainbow.play(envs[i], problems[i], mode, number) || !rainbow.learn()) break;
  }
  return rainbow.learner().learned("{\"environment\": \"partition\", \"problems\": " + std::to_string(usable.size()) +
                                   ", \"episodes\": " + std::to_string(rainbow.episodes()) + "}");
}

}  // namespace automap::partition
