// The options of automap-train, its presets, and the values that the trainer derives from them. docs/training.md
// explains the choices; `automap-train --help-all` lists them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/options.h"
#include "models/learner_options.h"

namespace automap::train {

struct TrainOptions {
  // The action: training, or one of these with policies as arguments.
  bool evaluate = false, compare = false;
  std::vector<std::string> policies;

  // Data.
  std::string data = "synth:mixed";  // a dataset folder, synth:CONFIG, or with --finetune a profile
  bool trust_data = false;           // the bytes of datasets' rows are not compared with their checksums
  std::vector<std::string> only, without;
  bool finetune = false;
  std::string cluster;
  int micro_batches = 16;

  // The run.
  std::string out, preset = "fast", init, device = "cpu";
  bool init_or_fresh = false;
  int threads = 0;  // 0: all cores
  double time_s = 600;
  std::uint64_t episodes = 0;  // 0: no limit
  std::uint64_t seed = 1;
  bool resume = false, deterministic = false;
  double checkpoint_every_s = 120;
  double rank_timeout_s = 120;  // the longest silence of one process of several

  // Actors.
  std::string objective = "value";
  int round_episodes = 0, plays_per_problem = 8, children = 48;  // round_episodes 0: chosen by the run's length
  double epsilon_start = 0.6, epsilon_end = 0.05;
  std::uint64_t epsilon_episodes = 0;  // 0: the whole run
  double near_bound = 0.5;             // share of the random choices drawn from the better half by bound
  bool best_return = true;             // targets are the best returns met below a decision
  double replay_ratio = 16;            // decisions learned from per decision played, at most
  std::string epsilon_schedule = "linear";

  // Exact labels.
  double expert_fraction = 0;
  int expert_beam = 64;
  double label_fraction = 0.3, label_limit = 1.08;
  int label_devices = 64, label_stages = 16;
  std::int64_t label_work = 100000;

  // Network and learning; the strings are resolved into `learner` by resolve().
  std::string network = "after-state", flat_input = "raw", hidden = "64,64", returns = "monte-carlo";
  std::string distributional = "none";
  models::LearnerOptions learner;
  double value_min = 0, value_max = 1;

  // Evaluation.
  std::string evaluate_data;  // empty: the generator of --data, or held-out rows of its dataset
  std::uint64_t evaluate_seed = 20070404;
  int evaluate_small = 128, evaluate_middle = 48, evaluate_deep = 16;
  std::uint64_t evaluate_every = 0;  // episodes; 0: kEvaluations in a run
  double evaluate_exact_s = 5;       // for the exact optimum of one held-out problem
  int patience = 0;                  // evaluations without a better one; 0: never stop early
  int beam = 16;
  double margin = 0, standard_error = 0.0003;                     // --compare
  double time_limit_s = std::numeric_limits<double>::infinity();  // --compare

  bool json = false;

  bool flat() const { return network == "flat"; }
  bool simulated() const { return objective == "simulated"; }
};

// The options of a preset: "fast", "nightly", "faithful". Error(kUsage) on another name.
TrainOptions preset_options(const std::string& preset);

void declare_options(OptionTable& table, TrainOptions& options);

// The number of threads that `options.threads` asks for: 0 means one for each usable processor. A number above four
// times those (and above 16) is reduced to that, with a warning.
int threads_of(const TrainOptions& options);

// Parses twice: the preset (and with --resume the run's own config.ini) gives the defaults of everything else. Returns
// false when the answer has been printed. `table` must be new; it ends up holding `options`.
bool parse_options(int argc, const char* const* argv, OptionTable& table, TrainOptions& options);

// Checks that options agree with each other and fills options.learner. Throws Error(kUsage) naming the flags.
void resolve_options(TrainOptions& options);

// Sets --hidden for a network with these layers.
void set_hidden(TrainOptions& options, const std::vector<int>& widths);

// The options whose value changes what is learned, as name and text; a checkpoint is compared by them.
std::vector<std::pair<std::string, std::string>> learning_options(const OptionTable& table);

}  // namespace automap::train
