#include "plan/planners/learned/online.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/cost.h"
#include "models/learner/online_learner.h"
#include "models/learner_options.h"
#include "models/plan_space.h"
#include "models/plays.h"
#include "models/policy_search.h"
#include "plan/planners/learned/online_state.h"
#include "plan/planners/planner.h"

namespace automap::planners {
namespace {

using models::PlanSpace;
using models::Played;
using pipeline::Objective;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;

constexpr std::uint32_t kSpaceStream = 0x6f6e6c6e;
constexpr double kSaveEveryS = 30;
// A space whose best plan is longer than the best of all by this is played 1/e times as often.
constexpr double kWorse = 0.03;
constexpr double kLeastShare = 0.02;  // of a space that may still win, before normalization
// Prices, units of work: a decision with its children, and an update.
constexpr std::int64_t kPerDecision = 150'000;
constexpr std::int64_t kPerUpdate = 4'000'000;

models::PlayOptions play_options(const OnlineRequest& request) {
  models::PlayOptions o;
  o.objective = request.objective;
  o.best_return = false;
  o.whole_episodes = true;
  o.keep_best = true;
  o.epsilon_start = request.policy ? 0.3 : 0.6;
  o.epsilon_end = 0.05;
  o.epsilon_episodes = request.policy ? 1000 : 2000;
  return o;
}

models::LearnerOptions learner_options(const OnlineRequest& request) {
  models::LearnerOptions o;
  models::use_rainbow(o);
  // One problem, thousands of plays: what takes long there is short here.
  o.replay_episodes = 2000;
  o.target_every = 100;
  o.beta_updates = o.learning_rate_updates = 5000;
  o.ema = 0.99;
  o.seed = request.options.seed;
  o.objective = request.objective == Objective::kSimulated ? 1 : 0;
  if (request.policy) {
    models::check_policy(*request.policy);
    const models::Architecture& a = request.policy->architecture();
    if (a.head != models::Head::kResidual) {
      throw Error(ErrorKind::kData, "the policy cannot be learned on from: its head is another than Rainbow's",
                  "start from scratch, or from a policy of automap-train --preset fast, nightly or rainbow");
    }
    o.hidden = a.hidden;
  }
  return o;
}

models::OnlineOptions online_options(const models::LearnerOptions& learner) {
  models::OnlineOptions o;
  o.decisions_per_update = learner.batch / models::kRainbowReplayRatio;
  o.units_per_update = kPerUpdate;
  return o;
}

std::string exactly(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// The plans of one stage count and schedule.
struct Space {
  Space(const Problem& problem, const models::PlanSpaceOptions& options) : plans(problem, options) {}
  PlanSpace plans;
  std::int64_t units = 0;  // paid for
  std::uint64_t plays = 0;
  std::optional<Plan> best;
  double best_ms = kInfinity;
};

class OnlinePlanner {
 public:
  OnlinePlanner(const Problem& problem, const OnlineRequest& request, const models::LearnerOptions& learner, Work& work)
      : request_(request),
        work_(work),
        play_(play_options(request)),
        learner_(learner, online_options(learner), start(request), work) {
    for (const Schedule schedule : request.schedules) {
      for (int stages = request.first_stages; stages <= request.last_stages; ++stages) {
        models::PlanSpaceOptions options;
        options.stages = stages;
        options.schedule = schedule;
        options.server_radius = request.options.server_radius;
        options.pivots = request.pivots;
        auto space = std::make_unique<Space>(problem, options);
        const double bound_ms = space->plans.possible() ? space->plans.root().bound_ms : kInfinity;
        if (bound_ms > 0 && bound_ms < kInfinity) spaces_.push_back(std::move(space));
      }
    }
    asked_ = {{"the problem", fingerprint(problem)},
              {"the objective", to_string(request.objective)},
              {"stages", std::to_string(request.first_stages) + ".." + std::to_string(request.last_stages)},
              {"the radius", std::to_string(request.options.server_radius)},
              {"the seed", std::to_string(request.options.seed)},
              {"the policy", request.policy ? sha256_hex(request.policy->serialize()) : "none"}};
  }

  OnlineAnswer run() {
    const std::string& file = request_.options.state_file;
    if (!file.empty() && std::filesystem::exists(file)) resume(load_online_state(file, asked_), file);
    earlier_plays_ = plays_;
    double saved_s = seconds();
    // One play of every space is an answer whatever the limits.
    const std::uint64_t most = request_.options.max_plays;
    while (!spaces_.empty() && (rounds_ < spaces_.size() || !work_.over()) && (most == 0 || plays_ < most)) {
      if (!play_round()) break;
      if (!file.empty() && seconds() >= saved_s + kSaveEveryS) {
        save(file);
        saved_s = seconds();
      }
    }
    if (!file.empty()) save(file);
    return answer();
  }

 private:
  static std::optional<models::Policy> start(const OnlineRequest& request) {
    if (!request.policy) return models::untrained_policy(request.options.seed);
    return *request.policy;
  }

  // A hash of the figures that determine the lengths of plans: V of uniform plans of every stage count.
  static std::string fingerprint(const Problem& problem) {
    std::string text = std::to_string(problem.num_instructions()) + " " + std::to_string(problem.num_devices());
    for (int stages = 2; stages <= std::min({16, problem.num_devices(), problem.num_instructions()}); ++stages) {
      const auto plan = pipeline::uniform_plan(problem, stages, Schedule::kAdaptive);
      text += " " + (plan ? exactly(pipeline::value_ms(problem, *plan)) : std::string("-"));
    }
    return sha256_hex(text).substr(0, 16);
  }

  double seconds() const {
    return earlier_s_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  double best_ms() const { return steps_.empty() ? kInfinity : steps_.back().length_ms; }

  // Each once, then at random: those with short plans often, never those whose bound is above the best plan, nor those
  // of two stages: their one boundary is placed exactly. Null: there is none left to play.
  Space* next_space() {
    if (rounds_ < spaces_.size()) return spaces_[rounds_].get();
    std::vector<double> share;
    double all = 0;
    for (const auto& space : spaces_) {
      const double most = request_.objective == Objective::kValue ? best_ms() : kAboveSimulation * best_ms();
      const bool out = space->plans.stages() == 2 || space->plans.root().bound_ms > most;
      const double worse = space->best_ms / best_ms() - 1;
      share.push_back(out ? 0 : std::max(kLeastShare, std::exp(-worse / kWorse)));
      all += share.back();
    }
    double at = Rng(request_.options.seed, kSpaceStream, rounds_).uniform() * all;
    Space* last = nullptr;  // by rounding `at` may end a little above 0
    for (std::size_t i = 0; i < spaces_.size(); ++i) {
      if (share[i] <= 0) continue;
      last = spaces_[i].get();
      at -= share[i];
      if (at < 0) break;
    }
    return last;
  }

  // False when the work was over first, or nothing is left to play.
  bool play_round() {
    Space* const next = next_space();
    if (next == nullptr) return false;
    Space& space = *next;
    Played played = models::play_space(space.plans, rounds_, *learner_.policy(), play_, request_.options.seed);
    ++rounds_;
    plays_ += played.plays;
    space.plays += played.plays;
    work_.spend(space.plans.units() - space.units + static_cast<std::int64_t>(played.decisions) * kPerDecision);
    space.units = space.plans.units();
    if (played.best && played.best_ms < space.best_ms) {
      space.best = std::move(played.best);
      space.best_ms = played.best_ms;
      if (space.best_ms < best_ms()) steps_.push_back({plays_, seconds(), space.best_ms});
    }
    return learner_.learn(std::move(played.episodes));
  }

  void save(const std::string& file) const {
    OnlineState state;
    state.asked = asked_;
    state.rounds = rounds_;
    state.plays = plays_;
    state.seconds = seconds();
    state.steps = steps_;
    for (const auto& space : spaces_) {
      state.best.push_back(space->best);
      state.best_ms.push_back(space->best_ms);
    }
    state.learner = learner_.save_state();
    save_online_state(file, state);
  }

  // As if it had never stopped: what an earlier session still owed is learned first.
  void resume(OnlineState state, const std::string& file) {
    if (state.best.size() != spaces_.size()) {
      throw Error(ErrorKind::kData, file + ": the state of another search: it has other spaces",
                  "name another file to begin anew");
    }
    // A right checksum says that nothing was damaged on the way, not that a plan can be.
    for (std::size_t i = 0; i < spaces_.size(); ++i) {
      if (!state.best[i] || pipeline::valid_structure(spaces_[i]->plans.problem(), *state.best[i])) continue;
      throw Error(ErrorKind::kData, file + ": the state of another search: a plan in it is none of this model",
                  "name another file to begin anew");
    }
    learner_.load_state(state.learner, file);
    rounds_ = state.rounds;
    plays_ = state.plays;
    earlier_s_ = state.seconds;
    steps_ = std::move(state.steps);
    for (std::size_t i = 0; i < spaces_.size(); ++i) {
      spaces_[i]->best = std::move(state.best[i]);
      spaces_[i]->best_ms = state.best_ms[i];
    }
    learner_.learn({});
  }

  OnlineAnswer answer() const {
    OnlineAnswer answer;
    std::vector<const Space*> order;
    for (const auto& space : spaces_) {
      if (space->best) order.push_back(space.get());
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Space* a, const Space* b) { return a->best_ms < b->best_ms; });
    for (const Space* space : order) answer.plans.push_back(*space->best);
    answer.learning = {plays_, earlier_plays_, learner_.updates(), seconds(), steps_};
    return answer;
  }

  const OnlineRequest& request_;
  Work& work_;
  const models::PlayOptions play_;
  models::OnlineLearner learner_;
  std::vector<std::unique_ptr<Space>> spaces_;
  Asked asked_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double earlier_s_ = 0;  // of searching, in sessions before this one
  std::uint64_t rounds_ = 0, plays_ = 0, earlier_plays_ = 0;
  std::vector<pipeline::PlanLearning::Step> steps_;
};

}  // namespace

OnlineAnswer search_online(const Problem& problem, const OnlineRequest& request, Work& work) {
  return OnlinePlanner(problem, request, learner_options(request), work).run();
}

}  // namespace automap::planners
