// automap-train: trains policies, tells how good they are, compares two. Parses, calls, prints.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/io/profile_file.h"
#include "common/pipeline/device_match.h"
#include "train/comparison.h"
#include "train/learned_library.h"
#include "train/options.h"
#include "train/promotion.h"
#include "train/rank_place.h"
#include "train/rank_players.h"
#include "train/report.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace {

using namespace automap;
using namespace automap::train;

// Held-out problems never meet training problems, whatever the seeds, and --evaluate and --compare never those that a
// run has chosen its best policy by.
std::uint64_t held_out_seed(const TrainOptions& o) {
  return o.evaluate_seed * 0x9e3779b97f4a7c15u + (o.evaluate || o.compare ? 0x6a756467u : 0x68656c64u);
}

std::unique_ptr<ProblemSource> one_model(const TrainOptions& o, bool exactly) {
  pipeline::Profile profile = io::load_profile(o.data);
  const machine::Cluster cluster = machine::load_cluster(o.cluster);
  pipeline::match_devices(profile, cluster, o.data);
  return model_source(profile, cluster, options_of_model(profile, o.micro_batches), o.seed, exactly);
}

std::unique_ptr<ProblemSource> training_source(const TrainOptions& o) {
  if (!o.finetune) {
    return open_source(o.data, o.seed, o.only, o.without, o.trust_data,
                       o.evaluate_data.empty() ? Rows::kLearned : Rows::kAll);
  }
  return one_model(o, false);
}

std::shared_ptr<const ProblemSource> held_out_source(const TrainOptions& o) {
  const bool judged = o.evaluate || o.compare;
  if (!o.evaluate_data.empty()) {
    return open_source(o.evaluate_data, held_out_seed(o), {}, {}, o.trust_data,
                       judged ? Rows::kAllJudgedBy : Rows::kAllChosenBy);
  }
  if (o.finetune) return one_model(o, true);
  return open_source(o.data, held_out_seed(o), o.only, o.without, o.trust_data,
                     judged ? Rows::kJudgedBy : Rows::kChosenBy);
}

EvaluationOptions evaluation_options(const TrainOptions& o) {
  EvaluationOptions out;
  out.problems = {o.evaluate_small, o.evaluate_middle, o.evaluate_deep, 0};
  if (o.finetune) out.problems = {16, 16, 16, 16};
  out.exact_s = o.evaluate_exact_s;
  // The best policy is chosen by gaps to these optima, so they must not depend on how busy the machine is.
  constexpr double kLooksPerSecond = 20000;
  if (o.deterministic)
    out.exact_looks = std::max(1LL, std::llround(std::min(o.evaluate_exact_s, 1e9) * kLooksPerSecond));
  out.beam = o.beam;
  out.objective = o.simulated() ? pipeline::Objective::kSimulated : pipeline::Objective::kValue;
  out.flat = o.flat();
  out.flat_input = o.learner.flat_input;
  return out;
}

// --evaluate: tables of gaps.
int evaluate(const TrainOptions& o, WorkerPool& pool) {
  std::vector<models::Policy> policies;
  for (const std::string& path : o.policies) {
    policies.push_back(models::Policy::load(path));
    check_searchable(policies.back(), path);
  }
  const Evaluation evaluation(held_out_source(o), evaluation_options(o), pool, "");
  Json document = Json::object();
  document["schema"] = "automap.evaluation/2";
  document["problems"] = evaluation.problems().size();
  document["data"] = evaluation.source().fingerprint();
  std::vector<PlannerLengths> all;
  std::vector<Difference> differences;
  Json& scores = document["policies"] = Json::array();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::vector<PlannerLengths> planned = evaluation.plan(policies[i], pool);
    scores.push_back({{"policy", o.policies[i]}, {"mean_gap", evaluation.score(planned)}});
    const std::string name = policies.size() > 1 ? o.policies[i] + ", " : "policy, ";
    for (Difference difference : differences_of(evaluation, planned)) {
      difference.planner = name + difference.planner;
      differences.push_back(std::move(difference));
    }
    for (PlannerLengths planner : planned) {
      planner.planner = name + planner.planner;
      all.push_back(std::move(planner));
    }
  }
  for (const PlannerLengths& baseline : evaluation.baselines()) all.push_back(baseline);
  document["quality"] = quality_json(evaluation, all);
  document["differences"] = differences_json(differences);
  if (o.json) {
    print_exact(json_text(document));
  } else {
    print("Gap to the exact optimum, no plan counting as " + format_percent(kMostGap) +
          ": mean / 95th percentile / share optimal\n\n" + quality_table(evaluation, all, false) +
          "\nPaired differences on the same problems, below 0 where the policy is better, ± standard error\n\n" +
          difference_table(differences, false));
  }
  return 0;
}

// --compare: decides whether the first policy is better than the second, or than the same search without a network, by
// the last search (beam + corridor). A signal or --time-limit ends it; it then judges by what it has.
int compare(const TrainOptions& o, WorkerPool& pool) {
  std::vector<models::Policy> policies;
  for (const std::string& path : o.policies) {
    policies.push_back(models::Policy::load(path));
    check_searchable(policies.back(), path);
  }
  const StopToken stop;
  Comparison comparison(policies, held_out_source(o), evaluation_options(o), pool, o.time_limit_s);
  const Compared& compared = comparison.compared();
  PromotionTest test(o.margin, o.standard_error);
  PairedDifference judged;
  Asked asked = Asked::kAll;
  for (int times = 1;;) {
    asked = comparison.ask(times);
    judged = paired_difference(compared.first.back(), compared.second.back());
    if (!test.look(judged, compared.first_lost, compared.second_lost) || asked != Asked::kAll) break;
    // As many again as there are.
    if (test.looks() > 1) times *= 2;
  }
  const bool stopped = asked == Asked::kStopped && test.unsettled();
  Json document;
  document["schema"] = "automap.comparison/3";
  document["policies"] = o.policies;
  document["same_policy"] = policies.size() == 2 && policies[0].architecture() == policies[1].architecture() &&
                            policies[0].weights() == policies[1].weights();
  document["problems"] = judged.problems;
  document["looks"] = test.looks();
  document["margin"] = o.margin;
  document["sigmas"] = PromotionTest::kSigmas;
  Json& rows = document["differences"] = Json::array();
  TextTable table({{"search", TextTable::Align::kLeft}, {"first"}, {"second"}, {"difference"}, {"95 % interval"}});
  for (std::size_t p = 0; p < compared.searches.size(); ++p) {
    const PairedDifference d = paired_difference(compared.first[p], compared.second[p]);
    // That of the search that is judged holds for all looks together, as the verdict does.
    const bool is_judged = p + 1 == compared.searches.size();
    const Interval interval = is_judged ? Interval{test.lower_bound(), test.upper_bound()} : interval_95(d);
    const double first = mean_of(compared.first[p]), second = mean_of(compared.second[p]);
    rows.push_back({{"planner", compared.searches[p]},
                    {"first_mean", first},
                    {"second_mean", second},
                    {"mean", d.mean},
                    {"standard_error", d.standard_error},
                    {"low", interval.low},
                    {"high", interval.high}});
    table.add_row(
        {compared.searches[p], gap_text(first), gap_text(second), difference_text(d), interval_text(interval)});
  }
  document["difference"] = judged.mean;
  document["standard_error"] = judged.standard_error;
  document["lower_bound"] = test.lower_bound();
  document["upper_bound"] = test.upper_bound();
  document["first_lost"] = compared.first_lost;
  document["second_lost"] = compared.second_lost;
  document["ended_by"] = ended_by(test, asked);
  document["verdict"] = to_string(test.verdict());
  document["all_alike"] = test.all_alike();
  document["accepted"] = test.accepted();
  const std::string warning = why_unsettled(test, asked, judged.problems, o.standard_error);
  if (!warning.empty()) log_warning(warning);
  if (o.json) {
    print_exact(json_text(document));
  } else {
    print("Mean gaps (at most " + format_percent(kMostGap) + ", no plan as much) over the best plan known, " +
          std::to_string(judged.problems) + " held-out problems in " + std::to_string(test.looks()) +
          (test.looks() == 1 ? " look" : " looks") + "\n\n" + table.render() + "\n" +
          verdict_text(printable(o.policies[0]),
                       policies.size() == 1 ? "the same search without a network" : printable(o.policies[1]), o.margin,
                       test, compared, warning));
  }
  return stopped ? kExitStoppedEarly : 0;
}

TrainerSettings settings_of(const TrainOptions& o, const OptionTable& table) {
  TrainerSettings s;
  s.play.flat = o.flat();
  s.play.flat_input = o.learner.flat_input;
  s.play.objective = o.simulated() ? pipeline::Objective::kSimulated : pipeline::Objective::kValue;
  s.play.children = o.children;
  s.play.plays = o.plays_per_problem;
  s.play.near_bound = o.near_bound;
  s.play.best_return = o.best_return;
  s.play.whole_episodes = o.learner.returns == models::Returns::kNStep;
  s.play.expert_fraction = o.expert_fraction;
  s.play.expert_beam = o.expert_beam;
  s.play.label_fraction = o.label_fraction;
  s.play.label_limit = o.label_limit;
  s.play.label_devices = o.label_devices;
  s.play.label_stages = o.label_stages;
  s.play.label_work = o.label_work;
  s.play.epsilon_start = o.epsilon_start;
  s.play.epsilon_end = o.epsilon_end;
  s.play.epsilon_episodes = o.epsilon_episodes;
  s.play.exponential = o.epsilon_schedule == "exponential";
  s.seed = o.seed;
  s.round_problems = o.round_episodes == 0 ? 0 : std::max(1, o.round_episodes / o.plays_per_problem);
  s.batch = o.learner.batch;
  s.replay_ratio = o.replay_ratio;
  s.time_s = o.time_s;
  s.deterministic = o.deterministic;
  s.episodes = o.episodes;
  s.checkpoint_every_s = o.checkpoint_every_s;
  s.evaluate_every = o.evaluate_every;
  s.patience = o.patience;
  s.folder = o.out;
  s.options = learning_options(table);
  s.stop_requested = [] { return StopToken::stop_requested(); };
  s.provenance = [&o](const TrainCounters& c) {
    // Nothing that depends on the clock: the same run gives the same bytes.
    Json json;
    json["program"] = "automap-train " + version();
    json["git"] = git_revision();
    json["preset"] = o.preset;
    json["data"] = o.data;
    json["seed"] = o.seed;
    json["objective"] = o.objective;
    json["episodes"] = c.plays;
    json["labelled_decisions"] = c.labelled;
    json["held_out_mean_gap"] = c.best_score;
    return json.dump(-1, Json::BadUtf8::kReplace);
  };
  return s;
}

// The learner, with the weights of `init` when there is one. Resets `init` when it cannot be started from and the
// options say to start fresh then.
std::unique_ptr<LearnerPort> make_learner(TrainOptions& o, const OptionTable& table, const LearnedLibrary& library,
                                          std::optional<models::Policy>* init) {
  if (!*init) return library.make_learner(o.learner);
  const std::vector<int> asked = o.learner.hidden;
  if (table.source_of("hidden") == "default") set_hidden(o, (*init)->architecture().hidden);
  std::unique_ptr<LearnerPort> learner = library.make_learner(o.learner);
  try {
    learner->load_policy(**init);
    return learner;
  } catch (const Error& e) {
    if (!o.init_or_fresh || e.kind() != ErrorKind::kData) throw;
    log_warning(o.init + ": " + e.what() + "; starting with fresh weights");
  }
  init->reset();
  o.init.clear();
  set_hidden(o, asked);
  return library.make_learner(o.learner);
}

// Prints the results of a run on standard output.
void print_result(const TrainOptions& o, const TrainResult& result, const Evaluation& evaluation, std::uint64_t updates,
                  const std::vector<PlannerLengths>& after, const std::vector<PlannerLengths>& before) {
  std::vector<Difference> differences =
      differences_of(evaluation, after, result.start_won() ? std::vector<PlannerLengths>{} : before);
  // As --evaluate names them, and the rows below.
  for (Difference& difference : differences) difference.planner = "policy, " + difference.planner;
  std::vector<PlannerLengths> rows;
  for (PlannerLengths planner : after) {
    planner.planner = "policy, " + planner.planner;
    rows.push_back(std::move(planner));
  }
  for (PlannerLengths planner : before) {
    planner.planner = "before, " + planner.planner;
    rows.push_back(std::move(planner));
  }
  for (const PlannerLengths& baseline : evaluation.baselines()) rows.push_back(baseline);
  const double seconds = std::max(1e-9, result.session_seconds);
  const double episodes_per_s = static_cast<double>(result.session_plays) / seconds;
  const double steps_per_s = static_cast<double>(result.session_steps) / seconds;
  if (o.json) {
    Json document;
    document["schema"] = "automap.training/2";
    document["run"] = o.out;
    document["ended_after"] = result.reason;
    document["stopped"] = result.stopped;
    document["episodes"] = result.counters.plays;
    document["seconds"] = result.counters.seconds;
    document["episodes_per_s"] = episodes_per_s;
    document["steps_per_s"] = steps_per_s;
    document["updates"] = updates;
    document["evaluations"] = result.counters.evaluations;
    document["evaluation_seconds"] = result.counters.evaluation_seconds;
    document["solving_seconds"] = evaluation.solved_s();
    document["start"] = o.init.empty() ? Json(nullptr) : Json(o.init);
    document["start_score"] = result.counters.start_score;
    document["start_won"] = result.start_won();
    document["score"] = result.counters.best_score;
    document["best_episodes"] = result.counters.best_episodes;
    document["quality"] = quality_json(evaluation, rows);
    document["differences"] = differences_json(differences);
    print_exact(json_text(document));
  } else {
    print("Ended after " + result.reason + ": " + format_count(static_cast<long long>(result.counters.plays)) +
          " episodes, " + format_count(std::llround(episodes_per_s)) + " episodes/s, " +
          format_count(std::llround(steps_per_s)) + " steps/s\n" + evaluation_cost(result.counters, evaluation) +
          "\n\nGaps: mean / 95th percentile / share optimal\n\n" + quality_table(evaluation, rows, false) + "\n" +
          difference_table(differences, false) + "\n" + kChosenByThese + "\n\nThe policy is " + best_text(result) +
          "\n" + printable(o.out + "/policy.bin, " + o.out + "/report.md") + "\n");
  }
}

std::string traffic_line(const RankPlayers::Traffic& traffic, int ranks) {
  const double messages = std::max(1.0, static_cast<double>(traffic.rounds) * (ranks - 1));
  return std::to_string(ranks) + " ranks, " + format_count(static_cast<long long>(traffic.rounds)) +
         " rounds: per round and other rank " + format_bytes(static_cast<double>(traffic.sent_bytes) / messages) +
         " of weights there and " + format_bytes(static_cast<double>(traffic.received_bytes) / messages) +
         " of plays back; waited " + format_ms(traffic.waited_s * 1e3) + " for the others";
}

// The facts that every rank of a run must share.
RankFacts facts_of(const OptionTable& table, const ProblemSource& source, int threads) {
  RankFacts facts = facts_of_this_process();
  facts.program = version() + " (git " + git_revision() + ")";
  facts.options = learning_options(table);
  facts.data = source.fingerprint();
  facts.threads = threads;
  return facts;
}

// `link` leads to the other ranks, null: there are none. `lost` receives the failure, if any.
int run_training(int argc, char** argv, TrainOptions& o, const OptionTable& table, const LearnedLibrary& library,
                 WorkerPool& pool, models::RankLink* link, std::string* lost) {
  RunFolder folder(o.out, o.resume);
  const bool resuming = folder.resuming();
  if (o.resume && !resuming) log_info(o.out + " holds no checkpoint: the run begins");
  const std::unique_ptr<ProblemSource> source = training_source(o);
  const std::shared_ptr<const ProblemSource> held_out = held_out_source(o);
  if (!o.finetune && o.evaluate_data.empty() && source->size() > 0) {
    log_info(o.data + ": " + format_count(static_cast<long long>(source->size())) + " rows are learned from, " +
             format_count(static_cast<long long>(held_out->size())) +
             " others choose the best policy, and as many are kept for --evaluate and --compare (--evaluate-data takes "
             "the held-out problems from elsewhere)");
  }
  const RankFacts facts = facts_of(table, *source, pool.threads());
  TrainerSettings settings = settings_of(o, table);
  settings.before_writing = [&folder] { folder.check(); };
  std::optional<Checkpoint> checkpoint;
  if (resuming) {
    checkpoint = load_checkpoint(o.out + "/checkpoint");
    check_same_run(*checkpoint, settings.options, source->fingerprint(), o.out + "/checkpoint");
  }
  std::optional<models::Policy> init;
  if (!o.init.empty() && !resuming) init = models::Policy::load(o.init);
  std::unique_ptr<LearnerPort> learner = make_learner(o, table, library, &init);
  settings.options = learning_options(table);
  // The file's own bytes say where it comes from; one for another objective becomes one for this.
  if (init && init->architecture().objective == o.learner.objective) settings.start_policy = init->serialize();
  LocalPlayers own_players(*source, settings.play, settings.seed, pool);
  std::optional<RankPlayers> rank_players;
  if (link) settings.players = &rank_players.emplace(*link, own_players, facts);

  folder.prepare();
  const StopToken stop;
  write_file_atomic(o.out + "/config.ini", table.config_text());
  Json about = run_json(argc, argv, o, *source, pool.threads(), library.check_torch_speed());
  if (link) about["ranks"] = link->size();
  write_file_atomic(o.out + "/run.json", json_text(about));
  const Evaluation evaluation(held_out, evaluation_options(o), pool, o.out + "/heldout.json");
  const TrainResult result =
      train::train(*learner, *source, evaluation, pool, settings, checkpoint ? &*checkpoint : nullptr);
  const std::vector<PlannerLengths> after = evaluation.plan(result.best, pool);
  const std::vector<PlannerLengths> before = result.start_won() ? after : evaluation.plan(result.start, pool);
  folder.check();
  write_file_atomic(o.out + "/report.md",
                    report_markdown(o, *source, evaluation, result, after, before, pool.threads()));

  print_result(o, result, evaluation, learner->updates(), after, before);
  if (rank_players) log_info(traffic_line(rank_players->traffic(), link->size()));
  if (result.stopped) log_info("stopped with a checkpoint: --out " + o.out + " --resume goes on");
  *lost = rank_players ? rank_players->lost() : "";
  if (!lost->empty()) log_warning(*lost + ": the run ended after the last whole round");
  return result.stopped ? kExitStoppedEarly : 0;
}

// One of several processes: rank 0 trains, the others play for it.
int run_ranks(int argc, char** argv, TrainOptions& o, const OptionTable& table, const LearnedLibrary& library,
              WorkerPool& pool, const models::RankPlace& place) {
  // Before anything is written: by now each has read its options, those of a run that is resumed from its folder.
  const std::unique_ptr<models::RankLink> link = library.join_ranks(place, o.rank_timeout_s);
  if (place.rank > 0) {
    const StopToken stop;
    std::unique_ptr<ProblemSource> source;
    const auto open = [&] {
      source = training_source(o);
      const TrainerSettings settings = settings_of(o, table);
      return RankWork{facts_of(table, *source, pool.threads()),
                      std::make_unique<LocalPlayers>(*source, settings.play, settings.seed, pool)};
    };
    return serve_ranks(*link, open, [] { return StopToken::stop_requested(); });
  }
  std::string lost;
  int code = 0;
  try {
    code = run_training(argc, argv, o, table, library, pool, link.get(), &lost);
  } catch (const Error& e) {
    end_ranks(*link, exit_code(e.kind()), e.what());
    throw;
  }
  end_ranks(*link, code, lost);
  return code;
}

int train_main(int argc, char** argv) {
  TrainOptions options;
  OptionTable table("train", "train a policy that plans pipelines in one shot");
  if (!parse_options(argc, argv, table, options)) return 0;
  resolve_options(options);
  WorkerPool pool(threads_of(options) - 1);
  const models::RankPlace place = place_of_ranks([](const char* name) { return std::getenv(name); });
  if (options.evaluate || options.compare) {
    if (place.rank > 0) return 0;
    return options.evaluate ? evaluate(options, pool) : compare(options, pool);
  }
  const LearnedLibrary library;
  if (place.size > 1) return run_ranks(argc, argv, options, table, library, pool, place);
  std::string none;
  return run_training(argc, argv, options, table, library, pool, nullptr, &none);
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, train_main);
}
