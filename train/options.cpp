#include "train/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/processors.h"
#include "common/base/text_table.h"
#include "models/features.h"
#include "models/flat_env.h"
#include "train/trainer.h"

namespace automap::train {
namespace {

// It may change from one session of a run to the next.
constexpr OptionTraits kOfSession = kFirstOwnTrait;

std::vector<int> parse_hidden(const std::string& text) {
  std::vector<int> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int width = 0;
    const auto [next, status] = std::from_chars(at, end, width);
    if (status != std::errc() || width < 1 || width > 4096 || (next < end && *next != ',') || next + 1 == end) {
      throw Error(ErrorKind::kUsage, "--hidden: found '" + text + "', expected widths from 1 to 4096, as in 64,64");
    }
    out.push_back(width);
    at = next < end ? next + 1 : next;
  }
  if (out.empty() || out.size() > 8) {
    throw Error(ErrorKind::kUsage, "--hidden: found '" + text + "', expected 1 to 8 widths, as in 64,64");
  }
  return out;
}

// A default preset stays far below.
constexpr double kLargeReplayBytes = 1.5e9;

// The memory of full replays, bytes (docs/learner.md, "Memory").
double replay_bytes_of(const TrainOptions& o) {
  constexpr double kPerEpisode = 250, kDecisions = 4, kFlatDecisions = 8;
  const double inputs = o.learner.inputs;
  double decisions = 1, decision = 4 * (inputs + 1);
  if (o.flat()) {
    decisions = kFlatDecisions;
    decision = 4 * inputs + o.learner.actions;
  } else if (o.learner.returns == models::Returns::kNStep) {
    decisions = kDecisions;
    decision *= o.children;
  }
  const double labels = o.learner.label_weight > 0 ? 4.0 * o.children * (inputs + 2) * o.learner.replay_labels : 0;
  return o.learner.replay_episodes * (kPerEpisode + decisions * decision) + labels;
}

bool asks_for_text(const std::string& argument) {
  return argument == "--help" || argument == "-h" || argument == "--help-all" || argument == "--version" ||
         argument == "--help-as" || argument == "--dump-config";
}

}  // namespace

int threads_of(const TrainOptions& options) {
  const int cores = usable_processors();
  if (options.threads == 0) return cores;
  if (options.threads > std::max(16, 4 * cores)) {
    log_warning("--threads " + std::to_string(options.threads) + " on " + std::to_string(cores) + " cores: using " +
                std::to_string(cores));
    return cores;
  }
  return options.threads;
}

TrainOptions preset_options(const std::string& preset) {
  TrainOptions o;
  o.preset = preset;
  o.learner.replay_episodes = 100000;
  // Schedules last as long as the run.
  o.learner.learning_rate_updates = 0;
  o.learner.beta_updates = 0;
  o.learner.replay_labels = 16384;
  o.learner.batch = 64;
  o.learner.label_batch = 64;
  // Labels are exact, returns are bounds.
  o.learner.label_weight = 10;
  if (preset == "fast") return o;
  if (preset == "nightly") {
    // In short trials 64,64 ended some 0.2 points higher.
    o.hidden = "128,128";
    o.time_s = 3600;
    o.evaluate_small = 512;
    o.evaluate_middle = 160;
    o.evaluate_deep = 48;
    o.evaluate_exact_s = 20;
    o.learner.replay_labels = 32768;
    o.learner.replay_episodes = 400000;
    return o;
  }
  if (preset == "rainbow") {
    // --distributional is a switch.
    models::use_rainbow(o.learner);
    // One for every 500 updates of the 70 000 that the recipe was tuned with.
    o.learner.target_copies = 140;
    o.learner.beta_updates = 0;
    o.returns = "n-step";
    o.label_fraction = 0;
    o.best_return = false;
    o.replay_ratio = models::kRainbowReplayRatio;
    return o;
  }
  if (preset == "faithful") {
    // Paper 5.1. Its state is the raw arrays, its reward needs no exact solver.
    o.network = "flat";
    o.hidden = "512,512";
    o.returns = "n-step";
    o.learner.residual = false;
    o.learner.dueling = true;
    o.learner.double_q = true;
    o.learner.n_step = 1;
    o.learner.gamma = 0.6;
    o.learner.target_every = 100;
    o.learner.prioritized = true;
    o.learner.priority_alpha = 0.2;
    o.learner.priority_beta = 0.6;
    o.learner.priority_beta_end = 0.6;
    // 2000 transitions in the paper; episodes here, of about 8 decisions.
    o.learner.replay_episodes = 2000;
    o.learner.batch = 64;
    o.learner.learning_rate = o.learner.learning_rate_end = 1e-3;
    o.learner.ema = 0;
    o.learner.label_weight = 0;
    o.label_fraction = 0;
    o.best_return = false;
    o.plays_per_problem = 50;
    o.round_episodes = 500;
    o.epsilon_start = 1;
    o.epsilon_end = 0.1;
    o.epsilon_episodes = 10000;
    o.near_bound = 0;
    o.replay_ratio = 8;
    return o;
  }
  throw Error(ErrorKind::kUsage, "--preset: found '" + preset + "', expected fast, nightly, rainbow or faithful");
}

namespace {

void add_examples(OptionTable& table) {
  table.example("automap-train --out runs/first", "a policy in ten minutes, from problems made on the fly");
  table.example("automap-train --data data/ --out runs/night1 --preset nightly", "an hour, from a dataset");
  table.example("automap-train --out runs/night1 --resume", "go on after a stop or a kill");
  table.example(
      "automap-train --finetune --data bert48.h5 --cluster config-c --init policy.bin --out runs/bert --time 20s",
      "adapt a policy to one model");
  table.example("automap-train --compare runs/night2/policy.bin runs/night1/policy.bin --json",
                "is the first policy better than the second?");
}

void declare_files(OptionTable& table, TrainOptions& o) {
  table.group("Input and output");
  table.positional(&o.policies, "POLICY", "policy files, with --evaluate and --compare").reads_file();
  table
      .add(&o.data, "data",
           "a dataset's folder; synth:CONFIG makes problems on the fly (CONFIG as for automap-datagen); with "
           "--finetune a "
           "profile")
      .reads_folder()
      .metavar("DATA")
      .traits(kOfSession);
  table
      .add_flag(&o.trust_data, "trust-data",
                "do not compare the rows of datasets with their checksums before they are used")
      .traits(kOfSession)
      .advanced();
  table.add(&o.only, "only", "only these families of synth: data").no_file().metavar("FAMILY").advanced();
  table.add(&o.without, "without", "leave these families of synth: data out").no_file().metavar("FAMILY").advanced();
  table.add(&o.out, "out", "folder of the run; everything is written here")
      .writes_folder()
      .shorthand('o')
      .metavar("DIR")
      .traits(kOfSession);
  table.add_flag(&o.resume, "resume", "go on with the run in --out, with its own options; begin it when there is none")
      .traits(kOfSession);
  table
      .add(&o.init, "init",
           "start from the weights of this policy, with hidden layers as it has them unless --hidden says otherwise")
      .reads_file()
      .metavar("POLICY")
      .traits(kOfSession);
  table
      .add_flag(&o.init_or_fresh, "init-or-fresh",
                "when the policy of --init is another network than the options ask for, start with fresh weights and "
                "a warning")
      .traits(kOfSession)
      .advanced();
  table.add_flag(&o.evaluate, "evaluate", "do not train: print how good the POLICY files are").traits(kOfSession);
  table
      .add_flag(&o.compare, "compare",
                "do not train: is the first POLICY better than the second, or than the same search without a network?")
      .traits(kOfSession);
}

void declare_run(OptionTable& table, TrainOptions& o) {
  table.group("Run");
  table.add(&o.preset, "preset", "what all other options start from")
      .choices({"fast", "nightly", "rainbow", "faithful"})
      .traits(kOfSession);
  table.add(&o.threads, "threads", "threads, the learner's included; 0: as many as there are cores")
      .range(0, 1 << 20)
      .traits(kOfSession);
  table
      .add_seconds(
          &o.time_s, "time",
          "train this long, over all sessions; looks at held-out problems do not count; with --deterministic 300 "
          "plays stand for a second")
      .range(0.001, 1e9)
      .traits(kOfSession);
  table.add(&o.episodes, "episodes", "train for so many plays, over all sessions; 0: as many as --time allows")
      .traits(kOfSession)
      .advanced();
  table.add(&o.seed, "seed", "of everything random");
  table
      .add_flag(&o.deterministic, "deterministic",
                "the same policy, byte for byte, for any number of threads and however often the run is stopped")
      .advanced();
  table.add_seconds(&o.checkpoint_every_s, "checkpoint-every", "a checkpoint this often")
      .range(0.001, 1e9)
      .traits(kOfSession);
  table.add(&o.device, "device", "where the learner computes").choices({"cpu", "cuda"}).traits(kOfSession);
  table
      .add_seconds(
          &o.rank_timeout_s, "rank-timeout",
          "with several processes (torchrun, srun, mpirun): wait for each this long to come, and to give a sign "
          "of life")
      .range(1, 1e6)
      .advanced()
      .traits(kOfSession);
}

void declare_finetune(OptionTable& table, TrainOptions& o) {
  table.group("One model (--finetune)");
  table.add_flag(&o.finetune, "finetune", "train on variations of one model: --data is its profile").traits(kOfSession);
  table.add(&o.cluster, "cluster", "the model's cluster: a preset or a JSON file").reads_file().metavar("CLUSTER");
  table.add(&o.micro_batches, "micro-batches", "its micro-batches per step").range(1, 65536).metavar("M");
}

void declare_playing(OptionTable& table, TrainOptions& o) {
  table.group("Playing");
  table.add(&o.objective, "objective", "what a plan is judged by: the closed form V, or the event simulation")
      .choices({"value", "simulated"})
      .advanced();
  table
      .add(&o.round_episodes, "round-episodes",
           "plays between two publications of the weights; 0: at most 1024, and fewer in short runs")
      .range(0, 1000000)
      .advanced();
  table.add(&o.plays_per_problem, "plays-per-problem", "plays of each problem, one after the other")
      .range(1, 1000)
      .advanced();
  table.add(&o.children, "children", "after-states looked at per decision, the best by bound")
      .range(1, 1024)
      .advanced();
  table.add(&o.epsilon_start, "epsilon-start", "share of random decisions at the start").range(0, 1).advanced();
  table.add(&o.epsilon_end, "epsilon-end", "share of random decisions at the end").range(0, 1).advanced();
  table.add(&o.epsilon_episodes, "epsilon-episodes", "plays from the start value to the end value; 0: the whole run")
      .advanced();
  table.add(&o.epsilon_schedule, "epsilon-schedule", "how it falls").choices({"linear", "exponential"}).advanced();
  table.add(&o.near_bound, "near-bound", "share of the random decisions among the better half by bound")
      .range(0, 1)
      .advanced();
  table
      .add_on_off(&o.best_return, "best-return",
                  "learn the best return met below a decision instead of the play's own (Monte-Carlo returns only)")
      .advanced();
  table.add(&o.replay_ratio, "replay-ratio", "decisions learned from per decision played, at most")
      .range(0.001, 1000)
      .advanced();
}

void declare_labels(OptionTable& table, TrainOptions& o) {
  table.group("Exact labels");
  table
      .add(
          &o.expert_fraction, "expert-fraction",
          "share of the other problems in which the plan of a wide beam with the policy, and its corridor, is followed")
      .range(0, 1)
      .advanced();
  table.add(&o.expert_beam, "expert-beam", "width of that beam").range(1, 1024).advanced();
  table.add(&o.label_fraction, "label-fraction", "share of the problems whose exact values are learned")
      .range(0, 1)
      .advanced();
  table.add(&o.label_devices, "label-devices", "most devices of such a problem").range(2, 64).advanced();
  table.add(&o.label_stages, "label-stages", "most stages of such a problem").range(2, 16).advanced();
  table.add(&o.label_work, "label-work", "labels of the exact program, at most").range(1000, 1e9).advanced();
  table.add(&o.label_limit, "label-limit", "values up to this multiple of the optimum are told apart")
      .range(1, 100)
      .advanced();
  table.add(&o.learner.label_batch, "label-batch", "labelled decisions per update").range(0, 4096).advanced();
  table.add(&o.learner.replay_labels, "label-replay", "labelled decisions kept").range(1, 1e7).advanced();
  table.add(&o.learner.label_weight, "label-weight", "weight of their loss; 0: off").range(0, 1000).advanced();
  table.add(&o.learner.label_temperature, "label-temperature", "of the softmax over labels").range(1e-6, 10).advanced();
}

void declare_network(OptionTable& table, TrainOptions& o) {
  table.group("Network");
  table.add(&o.network, "network", "after-state: one network for all after-states; flat: the paper's")
      .choices({"after-state", "flat"})
      .advanced();
  table.add(&o.flat_input, "flat-input", "what the flat network sees").choices({"raw", "features"}).advanced();
  table.add(&o.hidden, "hidden", "widths of the hidden layers").no_file().metavar("N,N,...").advanced();
  table.add_on_off(&o.learner.bounded, "bounded", "with --residual: between the bound and the best rollout").advanced();
  table.add_on_off(&o.learner.residual, "residual", "predict what comes on top of the admissible bound").advanced();
  table.add_on_off(&o.learner.dueling, "dueling", "value and advantage streams (flat network)").advanced();
  table.add(&o.distributional, "distributional", "a distribution over returns instead of their mean")
      .choices({"none", "c51", "hl-gauss"})
      .advanced();
  table.add(&o.learner.atoms, "atoms", "of the distribution").range(2, 1001).advanced();
  table.add(&o.value_min, "value-min", "lower end of the distribution, in y").range(-10, 10).advanced();
  table.add(&o.value_max, "value-max", "upper end of the distribution, in y").range(-10, 10).advanced();
}

void declare_learning(OptionTable& table, TrainOptions& o) {
  table.group("Learning");
  table.add(&o.learner.batch, "batch-size", "decisions per update").range(1, 65536).advanced();
  table
      .add(&o.learner.replay_episodes, "replay-size",
           "episodes kept; with --best-return a decision is an episode of its own")
      .range(1, 1e7)
      .advanced();
  table.add(&o.learner.learning_rate, "learning-rate", "of Adam, at the start").range(1e-9, 1).advanced();
  table.add(&o.learner.learning_rate_end, "learning-rate-end", "at the end").range(0, 1).advanced();
  table
      .add(&o.learner.learning_rate_updates, "learning-rate-updates",
           "updates from start to end, along a cosine; 0: the whole run")
      .advanced();
  table.add(&o.learner.adam_epsilon, "adam-epsilon", "of Adam").range(1e-12, 1).advanced();
  table.add(&o.learner.clip_norm, "clip-norm", "gradients are cut to this norm; 0: never").range(0, 1e9).advanced();
  table.add(&o.learner.huber_delta, "huber-delta", "where the loss becomes linear").range(1e-6, 1e6).advanced();
  table.add(&o.learner.ema, "ema", "average of the weights that is played and kept; 0: the weights themselves")
      .range(0, 0.999999)
      .advanced();
  table.add(&o.returns, "returns", "what a decision learns: the whole return, or n steps and the network's value")
      .choices({"monte-carlo", "n-step"})
      .advanced();
  table.add(&o.learner.n_step, "n-step", "steps of n-step returns").range(1, 32).advanced();
  table.add(&o.learner.gamma, "gamma", "discount").range(0, 1).advanced();
  table.add_on_off(&o.learner.double_q, "double", "double Q-learning (n-step returns)").advanced();
  table.add(&o.learner.target_every, "target-update", "updates between copies to the target network; 0: none")
      .range(0, 1e9)
      .advanced();
  table
      .add(&o.learner.target_copies, "target-copies",
           "copies in the whole run, at most, so that longer runs copy less often; 0: as many as --target-update gives")
      .range(0, 1e9)
      .advanced();
  table.add_on_off(&o.learner.prioritized, "prioritized", "prioritized replay").advanced();
  table.add(&o.learner.priority_alpha, "priority-alpha", "how strong").range(0, 1).advanced();
  table.add(&o.learner.priority_beta, "priority-beta", "importance weights at the start").range(0, 1).advanced();
  table.add(&o.learner.priority_beta_end, "priority-beta-end", "and at the end").range(0, 1).advanced();
  table.add(&o.learner.beta_updates, "priority-beta-updates", "updates from start to end; 0: the whole run").advanced();
}

void declare_evaluation(OptionTable& table, TrainOptions& o) {
  table.group("Evaluation");
  table
      .add(&o.evaluate_data, "evaluate-data",
           "held-out problems: synth:CONFIG or a dataset's folder; when not given the generator of --data with another "
           "seed, "
           "for a dataset one row in 16 of it, never learned from")
      .reads_folder()
      .metavar("DATA");
  table.add(&o.evaluate_seed, "evaluate-seed", "of the held-out problems").advanced();
  table
      .add(&o.evaluate_small, "evaluate-small",
           "problems of at most 16 devices and 8 stages; where not given fewer in short runs")
      .range(0, 1000000)
      .advanced();
  table.add(&o.evaluate_middle, "evaluate-middle", "problems of 17 to 64 devices and at most 8 stages, likewise")
      .range(0, 1000000)
      .advanced();
  table.add(&o.evaluate_deep, "evaluate-deep", "problems of 9 to 16 stages and at most 64 devices, likewise")
      .range(0, 1000000)
      .advanced();
  table
      .add(&o.evaluate_every, "evaluate-every",
           "plays between two evaluations; 0: 24 evaluations in a run, and the start's")
      .range(0, 1e12)
      .advanced();
  table
      .add_seconds(&o.evaluate_exact_s, "evaluate-exact-time",
                   "for the exact optimum of one held-out problem; with --deterministic that much counted work")
      .range(0.001, 1e6)
      .advanced();
  table.add(&o.patience, "patience", "stop after so many evaluations without a better policy; 0: never")
      .range(0, 1000000)
      .traits(kOfSession);
  table.add(&o.beam, "beam", "width of the beam search that is evaluated beside greedy").range(1, 4096).advanced();
  table.add(&o.margin, "margin", "--compare: a mean gap up to this much larger still counts as better")
      .range(0, 1)
      .advanced()
      .traits(kOfSession);
  table
      .add(&o.standard_error, "standard-error",
           "--compare: problems are asked until it is settled, or the difference is known this well")
      .range(1e-6, 1)
      .advanced()
      .traits(kOfSession);
  table
      .add_seconds(&o.time_limit_s, "time-limit",
                   "--compare: no more problems after this time; the verdict is by those that were asked")
      .range(0.001, 1e9)
      .traits(kOfSession)
      .advanced();
}

}  // namespace

void declare_options(OptionTable& table, TrainOptions& o) {
  add_examples(table);
  declare_files(table, o);
  declare_run(table, o);
  declare_finetune(table, o);
  declare_playing(table, o);
  declare_labels(table, o);
  declare_network(table, o);
  declare_learning(table, o);
  declare_evaluation(table, o);
  table.epilog(
      "Several processes train one policy when a launcher starts them (srun -N 4 automap-train --out DIR ..., "
      "torchrun, "
      "mpirun; RANK, WORLD_SIZE, MASTER_ADDR): docs/training.md, \"Many machines\".\n"
      "Exit codes: 0 done, 2 wrong usage, 3 bad input or output, 75 stopped by a signal, or since a process was lost: "
      "a training from its first round on with a checkpoint (--resume goes on), --compare with what it has.");
  table.add_common(&o.json);
}

bool parse_options(int argc, const char* const* argv, OptionTable& table, TrainOptions& options) {
  std::vector<const char*> arguments(argv, argv + argc), plain;
  bool config_given = false;
  for (const char* argument : arguments) {
    if (!asks_for_text(argument)) plain.push_back(argument);
    if (std::string(argument).rfind("--config", 0) == 0) config_given = true;
  }
  std::string own_config;
  std::string preset = "fast";
  // With --help nothing else has to be right.
  const bool help = std::any_of(arguments.begin(), arguments.end(),
                                [](const char* a) { return asks_for_text(a) && std::string(a) != "--dump-config"; });
  if (!help) {
    const auto first = [&] {
      TrainOptions looked;
      OptionTable table_of_first("train", "");
      declare_options(table_of_first, looked);
      table_of_first.parse(static_cast<int>(plain.size()), plain.data());
      return looked;
    };
    TrainOptions looked = first();
    if (looked.resume && !config_given && std::filesystem::exists(looked.out + "/config.ini")) {
      own_config = looked.out + "/config.ini";
      for (std::vector<const char*>* list : {&arguments, &plain}) {
        list->push_back("--config");
        list->push_back(own_config.c_str());
      }
      looked = first();
    }
    preset = looked.preset;
  }
  options = preset_options(preset);
  declare_options(table, options);
  if (!table.parse(static_cast<int>(arguments.size()), arguments.data())) return false;
  if (options.finetune) {
    // Seconds, from weights that are good already.
    const auto unless_given = [&](const char* name, auto& target, auto value) {
      if (table.source_of(name) == "default") target = value;
    };
    unless_given("time", options.time_s, 30.0);
    // The optima of the model's own questions should take no longer than learning.
    unless_given("evaluate-exact-time", options.evaluate_exact_s, 0.2);
    unless_given("epsilon-start", options.epsilon_start, 0.2);
    unless_given("learning-rate", options.learner.learning_rate, 3e-4);
  }
  // A short run gets fewer held-out problems, so that they take no larger part of it. A longer session keeps the
  // number, which stands in the run's config.ini.
  if (!options.finetune && !options.evaluate && !options.compare) {
    constexpr double kProblemsPerSecond = 1.28, kFewest = 16;
    double seconds = options.time_s;
    if (options.episodes > 0) {
      const double counted = static_cast<double>(options.episodes) / kPlaysPerSecond;
      seconds = table.source_of("time") == "default" ? counted : std::min(seconds, counted);
    }
    const double all = options.evaluate_small + options.evaluate_middle + options.evaluate_deep;
    const double share = std::min(1.0, std::max(kFewest, kProblemsPerSecond * seconds) / std::max(1.0, all));
    for (auto& [name, count] : {std::pair<const char*, int*>{"evaluate-small", &options.evaluate_small},
                                {"evaluate-middle", &options.evaluate_middle},
                                {"evaluate-deep", &options.evaluate_deep}}) {
      if (table.source_of(name) == "default") *count = static_cast<int>(std::lround(*count * share));
    }
  }
  // With --episodes the preset's time should not end the run.
  if (options.episodes > 0 && table.source_of("time") == "default") options.time_s = kNoTimeLimit;
  return true;
}

void set_hidden(TrainOptions& o, const std::vector<int>& widths) {
  o.hidden.clear();
  for (const int width : widths) o.hidden += (o.hidden.empty() ? "" : ",") + std::to_string(width);
  o.learner.hidden = widths;
}

void resolve_options(TrainOptions& o) {
  const auto usage = [](const std::string& message, const std::string& hint = "") {
    return Error(ErrorKind::kUsage, message, hint);
  };
  if (o.evaluate && o.compare) throw usage("--evaluate and --compare exclude each other");
  if (o.compare && o.policies.size() != 1 && o.policies.size() != 2) {
    throw usage("--compare needs two policies, or one to compare with the same search without a network; found " +
                    std::to_string(o.policies.size()),
                "automap-train --compare NEW.bin OLD.bin");
  }
  if (o.evaluate && o.policies.empty()) throw usage("--evaluate needs at least one policy");
  if (!o.evaluate && !o.compare) {
    if (!o.policies.empty()) {
      throw usage("unexpected argument '" + o.policies.front() + "'",
                  "policies are arguments of --evaluate and --compare; to start from one: --init");
    }
    if (o.out.empty()) throw usage("missing --out: folder of the run", "automap-train --out runs/first");
  }
  if (o.finetune && o.cluster.empty()) {
    throw usage("--finetune needs the model's cluster: --cluster", "for example --cluster config-c");
  }
  if (o.evaluate_small + o.evaluate_middle + o.evaluate_deep == 0) {
    throw usage("--evaluate-small, --evaluate-middle and --evaluate-deep are all 0: nothing would tell policies apart");
  }
  if (o.value_min >= o.value_max) throw usage("--value-min must be below --value-max");
  // The flat network learns from returns alone.
  if (o.flat()) o.label_fraction = 0;
  o.learner.family = o.flat() ? models::Family::kFlat : models::Family::kAfterState;
  o.learner.flat_input = o.flat_input == "raw" ? models::FlatInput::kRaw : models::FlatInput::kPerAction;
  o.learner.inputs = o.flat() ? models::FlatEnv::state_size(o.learner.flat_input) : models::kFeatures;
  o.learner.actions = models::FlatEnv::kActions;
  o.learner.objective = o.simulated() ? 1 : 0;
  // Rollouts enclose V, not the simulation.
  if (o.simulated()) o.learner.bounded = false;
  o.learner.hidden = parse_hidden(o.hidden);
  o.learner.returns = o.returns == "n-step" ? models::Returns::kNStep : models::Returns::kMonteCarlo;
  o.learner.distribution = o.distributional == "c51"        ? models::Distribution::kC51
                           : o.distributional == "hl-gauss" ? models::Distribution::kHlGauss
                                                            : models::Distribution::kNone;
  o.learner.low = static_cast<float>(o.value_min);
  o.learner.high = static_cast<float>(o.value_max);
  // Nothing exact is known of simulated lengths.
  if (o.simulated() || o.label_fraction <= 0) o.learner.label_weight = 0;
  const double replay_bytes = replay_bytes_of(o);
  if (!o.evaluate && !o.compare && replay_bytes > kLargeReplayBytes) {
    log_warning("--replay-size " + std::to_string(o.learner.replay_episodes) + " and --label-replay " +
                std::to_string(o.learner.replay_labels) + " come to about " + format_bytes(replay_bytes) +
                " of memory with these options, and to twice that while a checkpoint is written");
  }
  o.learner.seed = o.seed;
  o.learner.threads = 1;
  o.learner.device = o.device;
}

std::vector<std::pair<std::string, std::string>> learning_options(const OptionTable& table) {
  std::vector<std::pair<std::string, std::string>> out;
  const std::vector<std::string> others = table.names_with(kOfSession | kCommonOption);
  for (const std::string& name : table.names()) {
    if (std::find(others.begin(), others.end(), name) != others.end()) continue;
    out.emplace_back(name, table.value_of(name));
  }
  return out;
}

}  // namespace automap::train
