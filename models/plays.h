// Plays one problem with a policy and turns the plays into episodes for the learner. The result depends on (seed,
// number, weights) only. No LibTorch.
//
// The prefixes met while a problem is played make up a tree: each is expanded once, however often it is played through.
// Every completion met below a decision (by rollout rules, or by finishing exactly) is a bound on the best one, so the
// target of a decision is the best of them ("best return"); without that it is the return of the play.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "common/pipeline/baselines.h"
#include "common/pipeline/plan.h"
#include "models/episode.h"
#include "models/flat_env.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::models {

struct PlayOptions {
  bool flat = false;
  FlatInput flat_input = FlatInput::kRaw;
  pipeline::Objective objective = pipeline::Objective::kValue;
  int children = kMostChildren;
  int plays = 4;
  double near_bound = 0.5;
  bool best_return = true;
  // Whole episodes with every child's features, as n-step returns need them; else single decisions with the chosen
  // child only, which is all that Monte-Carlo returns look at and takes a fiftieth of the memory.
  bool whole_episodes = false;
  // Exact labels (a demonstration instead when the objective is simulated): for this share of the problems among those
  // of at most so many devices and stages, and for every problem that comes with its optimum.
  double label_fraction = 0, label_limit = 1.1;
  int label_devices = 16, label_stages = 8;
  long long label_work = 300000;  // labels of the exact program, at most
  // Expert iteration: of this share of the problems that are not labelled the plan of a wide beam with the policy and
  // its corridor is followed, too, for what exact programs take too long for.
  double expert_fraction = 0;
  int expert_beam = 64;
  long long expert_work = 400'000'000;  // units, at most
  double epsilon_start = 0.6, epsilon_end = 0.05;
  std::uint64_t epsilon_episodes = 100000;  // plays from start to end; 0: the whole run, by `progress`
  double progress = 0;                      // the share of the run that is over, 0..1
  bool exponential = false;                 // the schedule from start to end; else linear
  bool keep_best = false;                   // whether the shortest plan met is wanted (after-state network)
};

// The epsilon of play `play` (counted over the whole run): the schedule's value, spread over a ladder of eight actors
// as Ape-X does it, eps^(1/2) .. eps^2. The flat family takes the schedule's own value, as the paper does.
double epsilon_of_play(const PlayOptions& options, std::uint64_t play);

struct Played {
  std::vector<Episode> episodes;
  std::uint64_t plays = 0, steps = 0;         // steps: boundaries decided (flat: actions taken)
  std::uint64_t after_states = 0;             // bounded, rolled out and turned into features
  std::uint64_t decisions = 0, labelled = 0;  // in `episodes`
  std::uint64_t infeasible = 0;               // plays
  double y = 0;                               // sum over feasible plays
  // With keep_best: the shortest plan met and its length under the objective, those of rollouts among them.
  std::optional<pipeline::Plan> best;
  double best_ms = std::numeric_limits<double>::infinity();
};

// The optimum of a problem, where it is known: plan and V.
struct KnownOptimum {
  pipeline::Plan plan;
  double ms = 0;
};

// Plays number * options.plays and following, in `space`. Where it has no plan there is nothing to learn, but the plays
// count. `known` (may be null) is labelled from whatever label_fraction and the sizes say.
Played play_space(const PlanSpace& space, std::uint64_t number, const Policy& policy, const PlayOptions& options,
                  std::uint64_t seed, const KnownOptimum* known = nullptr);

}  // namespace automap::models
