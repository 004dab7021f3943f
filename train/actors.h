// What an actor does: plays one training problem a few times with the policy it was given, and turns what it has seen
// into episodes for the learner. Everything depends on (seed, problem number, weights) only. No LibTorch.
//
// The prefixes met while a problem is played make up a tree: each is expanded once, however often it is played through.
// Every completion met below a decision (by rollout rules, or by finishing exactly) is a bound on the best one, so the
// target of a decision is the best of them ("best return"); without that it is the return of the play.
#pragma once

#include <cstdint>
#include <vector>

#include "common/pipeline/baselines.h"
#include "models/episode.h"
#include "models/flat_env.h"
#include "models/plan_space.h"
#include "models/policy.h"
#include "train/problem_source.h"

namespace automap::train {

struct PlayOptions {
  bool flat = false;
  models::FlatInput flat_input = models::FlatInput::kRaw;
  pipeline::Objective objective = pipeline::Objective::kValue;
  int children = models::kMostChildren;
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
  double epsilon_start = 0.6, epsilon_end = 0.05;
  std::uint64_t epsilon_episodes = 100000;
  bool exponential = false;  // the schedule from start to end; else linear
};

// Of play `play` (counted over the whole run): the schedule's value, spread over a ladder of eight actors as Ape-X does
// it, eps^(1/2) .. eps^2. The flat family plays the schedule itself, as the paper does.
double epsilon_of_play(const PlayOptions& options, std::uint64_t play);

struct Played {
  std::vector<models::Episode> episodes;
  std::uint64_t plays = 0, steps = 0;         // steps: boundaries decided (flat: actions taken)
  std::uint64_t after_states = 0;             // bounded, rolled out and turned into features
  std::uint64_t decisions = 0, labelled = 0;  // in `episodes`
  std::uint64_t infeasible = 0;               // plays
  double y = 0;                               // sum over feasible plays
};

// Plays problem `number` of `source`: plays number * options.plays and following.
Played play_problem(const ProblemSource& source, std::uint64_t number, const models::Policy& policy,
                    const PlayOptions& options, std::uint64_t seed);

}  // namespace automap::train
