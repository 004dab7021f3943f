// Measures how far every planner's plans are from the proven optimum on real models: inputs x clusters x micro-batches,
// with the stage count given (2..8) and chosen by the planner (1..16, data parallelism included). The question is
// automap-infer's: a step of 16 times the model's batch in so many micro-batches, whole samples, the adaptive schedule.
//
// Plans are cut on the grid of 128 pivots that the policy sees, and so is the optimum that they are measured against.
// For the chosen stage count the best plan is also refined at instruction granularity and compared with a lower bound
// over all instruction cuts. Stage counts that do not fit are left out and counted, so are those whose optimum is not
// proven within the limit. A planner that finds no plan where there is one counts as 100 %. Times are processor time of
// one thread and begin with the prepared problem; a planner that chooses the stage count skips those that a simple
// bound rules out.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/policy/measure.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/progress.h"
#include "common/base/rng.h"
#include "common/base/text_table.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/row.h"
#include "infer/input.h"
#include "infer/options.h"
#include "profile/profile_hlo.h"
#include "train/paired.h"

namespace automap::bench {
namespace {

using machine::Cluster;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;

constexpr Schedule kSchedule = Schedule::kAdaptive;
constexpr int kMostStages = models::kMaxStages;
constexpr std::uint32_t kSampleStream = 0x70726f66;

struct Options {
  std::vector<std::string> inputs, policies, methods;
  std::string clusters = "config-a,config-b,config-c,8x8", micro_batches = "2,4,8,16", stages = "2-8", cache, output;
  int sample = 0, threads = 1;
  double limit_s = 60, bound_limit_s = 2;
};

// A preset or file; "8x8": eight servers of eight devices with the links and devices of config-c.
Cluster cluster_of(const std::string& name) {
  if (name != "8x8") return machine::load_cluster(name);
  Cluster cluster = machine::load_cluster("config-c");
  cluster.name = name;
  cluster.servers.resize(1);
  cluster.servers.front().count = 8;
  cluster.servers.front().devices = 8;
  return cluster;
}

struct Model {
  std::string name;
  pipeline::Profile profile;
};

struct Case {
  std::size_t model = 0, cluster = 0;
  int micro_batches = 0;
};

// A contender at one stage count, or with the stage count it chose.
struct Entry {
  double gap = train::kMostGap, cpu_ms = 0;
  bool found = false;
  int stages = 0;
};
struct Row {
  bool chosen = false;
  int stages = 0;
  bool proven = false;
  double reference_ms = 0;
  std::vector<Entry> entries;
};
// Results for the chosen stage count, at instruction granularity.
struct Fine {
  double bound_ms = 0;
  std::string method;
  double best_ms = kInfinity;      // the shortest plan anybody found
  std::vector<double> refined_ms;  // [contender]; infinity: no plan
  double exact_refined_ms = kInfinity;
};
struct Measured {
  std::vector<Row> rows;
  Fine fine;
  int infeasible = 0, unproven = 0;
  double exact_ms = 0;
  Json json;
};

class Profiles {
 public:
  explicit Profiles(Options options)
      : options_(std::move(options)),
        cache_(options_.cache),
        candidates_(load_policies(options_.policies)),
        contenders_(contenders(candidates_, options_.methods)) {
    if (std::sscanf(options_.stages.c_str(), "%d-%d", &first_stages_, &last_stages_) != 2 || first_stages_ < 2 ||
        last_stages_ < first_stages_ || last_stages_ > kMostStages) {
      throw Error(ErrorKind::kUsage, "stages is '" + options_.stages + "', expected a range within 2-16 such as 2-8");
    }
    for (const std::string& name : split(options_.clusters)) clusters_.push_back(cluster_of(name));
    if (clusters_.empty()) throw Error(ErrorKind::kUsage, "no cluster to plan for");
    for (const std::string& path : options_.inputs) {
      infer::InputOptions input;
      input.path = path;
      models_.push_back({profile::model_name(path, "model"), infer::read_input(input, clusters_.front()).profile});
    }
    for (std::size_t m = 0; m < models_.size(); ++m) {
      for (std::size_t c = 0; c < clusters_.size(); ++c) {
        for (const std::string& text : split(options_.micro_batches)) {
          const int micro_batches = std::atoi(text.c_str());
          if (micro_batches < 1) throw Error(ErrorKind::kUsage, "'" + text + "' is no number of micro-batches");
          cases_.push_back({m, c, micro_batches});
        }
      }
    }
    all_cases_ = cases_.size();
    if (options_.sample > 0 && static_cast<std::size_t>(options_.sample) < cases_.size()) {
      // The same ones every time; spread over models and clusters by chance alone.
      Rng rng(1, kSampleStream, 0);
      for (std::size_t i = cases_.size(); i > 1; --i) std::swap(cases_[i - 1], cases_[rng.below(i)]);
      cases_.resize(static_cast<std::size_t>(options_.sample));
    }
  }

  int run() {
    const StopToken stop;
    Json head = describe(candidates_, contenders_);
    head["schema"] = "automap.bench.policy-profiles/1";
    head["threads"] = options_.threads;
    head["limit_s"] = options_.limit_s;
    head["bound_limit_s"] = options_.bound_limit_s;
    head["stages"] = options_.stages;
    head["cases"] = cases_.size();
    head["all_cases"] = all_cases_;
    head["models"] = models_.size();
    head["clusters"] = split(options_.clusters);
    head["micro_batches"] = split(options_.micro_batches);
    std::vector<Measured> found(cases_.size());
    Progress progress("real models", cases_.size(), "cases");
    std::mutex mutex;
    std::size_t done = 0;
    parallel_for(cases_.size(), options_.threads, [&](std::size_t i) {
      found[i] = measure(cases_[i]);
      const std::lock_guard<std::mutex> lock(mutex);
      progress.update(++done);
    });
    progress.finish();
    cache_.save();
    if (StopToken::stop_requested()) {
      throw Error(ErrorKind::kStopped, "stopped before all cases were measured",
                  options_.cache.empty() ? "" : "run it again: the optima found so far are in " + options_.cache);
    }
    int infeasible = 0, unproven = 0;
    std::vector<Json> problems;
    for (Measured& one : found) {
      infeasible += one.infeasible;
      unproven += one.unproven;
      problems.push_back(std::move(one.json));
    }
    head["infeasible"] = infeasible;
    head["unproven"] = unproven;
    head["load_average_after"] = load_average();
    print("\n" + std::to_string(cases_.size()) + " of " + std::to_string(all_cases_) +
          " combinations of model, cluster and micro-batches; stage counts left out: " + std::to_string(infeasible) +
          " infeasible, " + std::to_string(unproven) + " not solved within the limit\n");
    print_table("Stages given, " + options_.stages, found, false);
    print_table("Stages chosen by the planner", found, true);
    if (!options_.output.empty()) write_document(options_.output, head, problems);
    return 0;
  }

 private:
  Measured measure(const Case& one) {
    const Model& model = models_[one.model];
    const Cluster& cluster = clusters_[one.cluster];
    pipeline::ProblemOptions problem_options =
        infer::make_question(infer::InferOptions(), model.profile, cluster).options;
    problem_options.micro_batches = one.micro_batches;
    constexpr double kBatches = 16;
    problem_options.micro_batch_samples =
        std::max(1.0, std::floor(kBatches * model.profile.micro_batch_size / one.micro_batches));
    const Problem problem(model.profile, cluster, problem_options);
    const Schedule schedule = kSchedule;
    const std::vector<int> pivots = pipeline::grid_pivots(problem.num_instructions(), pipeline::kGranularity);
    const int most = std::min({kMostStages, problem.num_devices(), static_cast<int>(pivots.size()) + 1});
    const auto key = [&](const std::string& what) {
      return fingerprint(problem, model.profile, cluster, pivots, what);
    };
    const Solved solved = solve(cache_, key("exact adaptive 1-" + std::to_string(most)), problem, pivots, schedule, 1,
                                most, options_.limit_s);
    const std::vector<double> simple_ms = pipeline::simple_lower_bounds_ms(problem, schedule, most);

    Measured measured;
    measured.exact_ms = solved.cpu_ms;
    // [contender]: the best so far over the stage counts, and what looking for it took.
    std::vector<Outcome> best(contenders_.size());
    std::vector<double> spent_ms(contenders_.size());
    double optimum_ms = kInfinity, bound_ms = kInfinity;
    int optimum_stages = 0;
    Plan optimal;
    for (const Optimum& optimum : solved.by_stages) {
      if (optimum.value_ms < optimum_ms) {
        optimum_ms = optimum.value_ms;
        optimum_stages = optimum.stages;
        optimal = optimum.plan;
      }
      bound_ms = std::min(bound_ms, optimum.bound_ms);
    }
    for (const Optimum& optimum : solved.by_stages) {
      if (StopToken::stop_requested()) return measured;
      const int stages = optimum.stages;
      std::vector<Outcome> outcomes(contenders_.size());
      if (stages == 1) {
        // Nothing to search.
        if (const auto plan = pipeline::data_parallel_plan(problem, schedule)) {
          for (Outcome& outcome : outcomes) {
            outcome.plan = *plan;
            outcome.value_ms = pipeline::value_ms(problem, *plan);
          }
        }
      } else if (!(optimum.proven && optimum.value_ms == kInfinity)) {
        Subject subject;
        subject.problem = &problem;
        subject.stages = stages;
        subject.schedule = schedule;
        subject.pivots = pivots;
        outcomes = run_all(subject, candidates_, contenders_);
      }
      for (std::size_t i = 0; i < outcomes.size(); ++i) {
        if (simple_ms[static_cast<std::size_t>(stages) - 1] >= best[i].value_ms) continue;
        spent_ms[i] += outcomes[i].cpu_ms;
        if (outcomes[i].value_ms < best[i].value_ms) best[i] = outcomes[i];
      }
      if (stages < first_stages_ || stages > last_stages_) continue;
      if (optimum.proven && optimum.value_ms == kInfinity) {
        ++measured.infeasible;
      } else if (!optimum.proven) {
        ++measured.unproven;
      } else {
        measured.rows.push_back(row_of(outcomes, optimum.value_ms, true, stages));
        for (std::size_t i = 0; i < outcomes.size(); ++i) measured.rows.back().entries[i].cpu_ms = outcomes[i].cpu_ms;
      }
    }
    if (optimum_ms < kInfinity) {
      const bool proven = bound_ms >= optimum_ms * (1 - kRounding);
      refine(measured.fine, problem, key("all cuts adaptive 1-" + std::to_string(most)), best, optimal, most);
      // A bound over all cuts holds on the grid, too.
      Row row = row_of(best, proven ? optimum_ms : std::max(bound_ms, measured.fine.bound_ms), proven, optimum_stages);
      row.chosen = true;
      for (std::size_t i = 0; i < best.size(); ++i) row.entries[i].cpu_ms = spent_ms[i];
      measured.rows.push_back(std::move(row));
    }
    measured.json = to_json(one, problem, measured);
    return measured;
  }

  // Gaps to `reference_ms`; times are left to the caller.
  Row row_of(const std::vector<Outcome>& outcomes, double reference_ms, bool proven, int stages) const {
    Row row;
    row.stages = stages;
    row.proven = proven;
    row.reference_ms = reference_ms;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      Entry entry;
      entry.found = outcomes[i].value_ms < kInfinity;
      if (entry.found) {
        entry.gap = std::max(outcomes[i].value_ms / reference_ms - 1, 0.0);
        entry.stages = outcomes[i].plan.num_stages();
      }
      row.entries.push_back(entry);
    }
    return row;
  }

  void refine(Fine& fine, const Problem& problem, const std::string& key, const std::vector<Outcome>& best,
              const Plan& optimal, int most) {
    const auto refined = [&](const Plan& plan) {
      return pipeline::value_ms(problem, pipeline::refine_in_corridor(problem, plan));
    };
    fine.exact_refined_ms = refined(optimal);
    fine.best_ms = fine.exact_refined_ms;
    for (const Outcome& outcome : best) {
      fine.refined_ms.push_back(outcome.value_ms < kInfinity ? refined(outcome.plan) : kInfinity);
      fine.best_ms = std::min(fine.best_ms, fine.refined_ms.back());
    }
    const auto known = cache_.find(key);
    // A bound never exceeds the plan it was made with.
    if (known && known->at("limit_s").get<double>() >= options_.bound_limit_s) {
      fine.bound_ms = std::min(known->at("bound_ms").get<double>(), fine.best_ms);
      fine.method = known->at("method").get<std::string>();
      return;
    }
    WorkLimits limits = WorkLimits::until(StopToken::stop_requested);
    limits.seconds = options_.bound_limit_s;
    Work work(std::move(limits));
    const pipeline::LowerBound bound =
        pipeline::lower_bound_all_cuts(problem, {kSchedule}, 1, most, fine.best_ms, work);
    fine.bound_ms = bound.ms;
    fine.method = bound.method;
    if (StopToken::stop_requested()) return;
    cache_.put(key, {{"bound_ms", bound.ms}, {"method", bound.method}, {"limit_s", options_.bound_limit_s}});
  }

  Json to_json(const Case& one, const Problem& problem, const Measured& measured) const {
    Json rows = Json::array();
    for (const Row& row : measured.rows) {
      Json gaps = Json::array(), times = Json::array(), stages = Json::array();
      for (const Entry& entry : row.entries) {
        gaps.push_back(entry.found ? Json(entry.gap) : Json());
        times.push_back(entry.cpu_ms);
        stages.push_back(entry.stages);
      }
      Json line = {{"stages", row.stages},
                   {"proven", row.proven},
                   {"reference_ms", row.reference_ms},
                   {"gaps", std::move(gaps)},
                   {"cpu_ms", std::move(times)}};
      if (row.chosen) {
        line["chosen"] = std::move(stages);
        Json refined = Json::array();
        for (double ms : measured.fine.refined_ms) refined.push_back(number(ms));
        line["all_cuts"] = {{"bound_ms", measured.fine.bound_ms},
                            {"method", measured.fine.method},
                            {"refined_ms", std::move(refined)},
                            {"exact_refined_ms", measured.fine.exact_refined_ms}};
      }
      rows.push_back(std::move(line));
    }
    return {{"model", models_[one.model].name},
            {"cluster", clusters_[one.cluster].name},
            {"micro_batches", one.micro_batches},
            {"devices", problem.num_devices()},
            {"instructions", problem.num_instructions()},
            {"infeasible", measured.infeasible},
            {"unproven", measured.unproven},
            {"exact_cpu_ms", measured.exact_ms},
            {"rows", std::move(rows)}};
  }

  void print_table(const std::string& title, const std::vector<Measured>& found, bool chosen) const {
    TextTable table({{"planner", TextTable::Align::kLeft},
                     {"mean %"},
                     {"median"},
                     {"p95"},
                     {"largest"},
                     {"optimal %"},
                     {"no plan"},
                     {"CPU ms"}});
    const auto percent = [](double ratio) {
      char cell[32];
      std::snprintf(cell, sizeof cell, "%.2f", 100 * ratio);
      return std::string(cell);
    };
    std::size_t rows = 0, against_bound = 0;
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      std::vector<double> gaps, times;
      std::size_t missing = 0;
      rows = against_bound = 0;
      for (const Measured& one : found) {
        for (const Row& row : one.rows) {
          if (row.chosen != chosen) continue;
          ++rows;
          if (!row.proven) ++against_bound;
          gaps.push_back(row.entries[i].gap);
          times.push_back(row.entries[i].cpu_ms);
          if (!row.entries[i].found) ++missing;
        }
      }
      const Summary summary = summarize(std::move(gaps));
      std::string name = contenders_[i].method->name;
      if (candidates_.size() > 1 && contenders_[i].candidate >= 0) {
        name += " [" + std::to_string(contenders_[i].candidate + 1) + "]";
      }
      table.add_row({std::move(name), percent(summary.mean), percent(summary.median), percent(summary.p95),
                     percent(summary.largest), percent(summary.optimal), std::to_string(missing),
                     format_number(summarize(std::move(times)).mean)});
    }
    std::string text = "\n" + title + ": " + std::to_string(rows) + " problems";
    if (against_bound > 0) text += ", " + std::to_string(against_bound) + " of them against the bound, not the optimum";
    print(text + "\n\n" + table.render());
  }

  Options options_;
  AnswerCache cache_;
  std::vector<Candidate> candidates_;
  std::vector<Contender> contenders_;
  int first_stages_ = 2, last_stages_ = 8;
  std::vector<Cluster> clusters_;
  std::vector<Model> models_;
  std::vector<Case> cases_;
  std::size_t all_cases_ = 0;
};

int bench_main(int argc, char** argv) {
  Options options;
  OptionTable table("bench-policy_profiles", "gaps of policies and of other planners to the optimum on real models");
  table.example("bench-policy_profiles fixtures/hlo/bert48.hlo.gz --policy a.policy -o profiles.json",
                "one model on the paper's clusters and on 8 servers of 8 devices");
  table.positional(&options.inputs, "INPUT", "models: HLO or profiles").reads_file().required();
  table.group("What is measured");
  table.add(&options.policies, "policy", "a policy file; several are measured beside each other")
      .reads_file()
      .metavar("FILE");
  table.add(&options.methods, "method", "only this planner (repeatable); default: all").no_file().metavar("NAME");
  table.add(&options.clusters, "clusters", "presets or files; 8x8: eight servers of eight as in config-c").reads_file();
  table.add(&options.micro_batches, "micro-batches", "micro-batches per step").no_file().metavar("M,M");
  table.add(&options.stages, "stages", "stage counts to force").no_file().metavar("FROM-TO");
  table.add(&options.sample, "sample", "only so many of the combinations, drawn by chance; 0: all").range(0, 1e9);
  table.group("Effort");
  table.add_seconds(&options.limit_s, "exact-limit", "per combination for the optima of all stage counts")
      .range(0.001, 1e6);
  table.add_seconds(&options.bound_limit_s, "bound-limit", "per combination for the bound over all instruction cuts")
      .range(0.001, 1e6);
  table.add(&options.threads, "threads", "combinations solved at once").range(1, 1024);
  table.add(&options.cache, "cache", "file that keeps optima and bounds for the next run")
      .writes_file()
      .metavar("FILE");
  table.group("Output");
  table.add(&options.output, "output", "everything measured as JSON").writes_file().shorthand('o').metavar("FILE");
  table.add_common(nullptr);
  if (!table.parse(argc, argv)) return 0;
  return Profiles(std::move(options)).run();
}

}  // namespace
}  // namespace automap::bench

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, automap::bench::bench_main);
}
