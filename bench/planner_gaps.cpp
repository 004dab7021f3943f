// How far every planner's plans are from the best: models x clusters x stage counts, forced and chosen by the planner.
//   bench-planner_gaps [--clusters A,B] [--stages 2-8] [--micro-batches 16] [--effort normal]
//                      [--threads 2] INPUT...
// INPUT is what automap-infer takes: HLO or a profile. Plans of stages "auto" by the planner `auto` are made one after
// the other with nothing beside them, as automap-infer makes them, and timed; all others run on all threads, untimed.
//
// Two lengths are compared. V over the lower bound: of the same stage count, over all cuts, computed apart from the
// planners ("exact" when it is the proven least V, else a relaxation). Simulated step over the shortest simulated step
// any planner found for the same model, cluster and stage count (auto: for any of the stage counts, too).
// The policy is the one compiled in; without one its column is empty.
// Every planner is asked as `automap-infer --planner X` asks it: all but `auto` judge their plans by V.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/pipeline/exact.h"
#include "infer/input.h"
#include "infer/planner.h"
#include "infer/shipped_policy.h"
#include "profile/profile_hlo.h"

namespace automap::infer {
namespace {

using machine::Cluster;
using pipeline::Problem;
using pipeline::Schedule;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr PlannerKind kPlanners[] = {PlannerKind::kUniform,  PlannerKind::kBalanced, PlannerKind::kLocalSearch,
                                     PlannerKind::kRollouts, PlannerKind::kPolicy,   PlannerKind::kExact,
                                     PlannerKind::kAuto};
constexpr std::size_t kNumPlanners = std::size(kPlanners);
constexpr std::size_t kAutoIndex = kNumPlanners - 1;
constexpr double kLargeGap = 0.15;  // gaps above are listed
constexpr double kRounding = 1e-9;
constexpr std::size_t kMostListed = 12;
constexpr int kNameWidth = 24;
const int kDefaultMicroBatches = pipeline::ProblemOptions().micro_batches;

struct Options {
  std::vector<std::string> clusters = {"config-a", "config-b", "config-c"};
  int first_stages = 2, last_stages = 8;
  int micro_batches = 16;
  Effort effort = Effort::kNormal;  // of auto stages; forced ones have the quick one
  int threads = 2;
  std::vector<std::string> inputs;
};

struct Model {
  std::string path, name;
  pipeline::Profile profile;
};

struct Run {
  bool found = false;
  bool cut = false;  // by the effort
  int stages = 0;
  double value_ms = 0, simulated_ms = 0;
};

// One model on one cluster with one stage count (0: the planner chooses).
struct Case {
  std::size_t model = 0, cluster = 0;
  int stages = 0;
  Run runs[kNumPlanners];
  double lower_bound_ms = 0;
  std::string method;
  std::string winner;
  double planning_ms = 0;  // of auto; only measured when the planner chooses the stages
  double least_memory_bytes = 0, available_memory_bytes = 0;
  std::string error;

  double best_simulated_ms() const {
    double best = kInfinity;
    for (const Run& run : runs) {
      if (run.found) best = std::min(best, run.simulated_ms);
    }
    return best;
  }
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "usage: bench-planner_gaps [--clusters A,B] [--stages 2-8] [--micro-batches 16] "
               "[--effort normal] [--threads 2] INPUT...\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag.compare(0, 2, "--") != 0) {
      options.inputs.push_back(flag);
      continue;
    }
    if (i + 1 == argc) usage();
    const std::string value = argv[++i];
    if (flag == "--clusters") {
      options.clusters.clear();
      for (std::size_t at = 0; at <= value.size();) {
        const std::size_t comma = std::min(value.find(',', at), value.size());
        options.clusters.push_back(value.substr(at, comma - at));
        at = comma + 1;
      }
    } else if (flag == "--stages") {
      if (std::sscanf(value.c_str(), "%d-%d", &options.first_stages, &options.last_stages) != 2 ||
          options.first_stages < 1 || options.last_stages < options.first_stages) {
        usage();
      }
    } else if (flag == "--micro-batches") {
      options.micro_batches = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--effort") {
      const auto effort = parse_effort(value);
      if (!effort) usage();
      options.effort = *effort;
    } else if (flag == "--threads") {
      options.threads = std::max(1, std::atoi(value.c_str()));
    } else {
      usage();
    }
  }
  if (options.inputs.empty()) usage();
  return options;
}

void print_load(const char* when) {
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) std::printf("load average %s %.2f\n", when, load[0]);
}

// Small ratios need decimals, large ones do not.
std::string percent(double ratio) {
  char text[32];
  const double value = 100 * ratio;
  std::snprintf(text, sizeof text, value < 99.95 ? "%.1f" : "%.0f", std::max(value, 0.0));
  return text;
}

std::string ms_text(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, ms < 10 ? "%.3f" : ms < 1000 ? "%.1f" : "%.0f", ms);
  return text;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  // The smallest value that at least this share of the values does not exceed.
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

std::string spread(const std::vector<double>& gaps) {
  if (gaps.empty()) return "-";
  return percent(quantile(gaps, 0.5)) + "/" + percent(quantile(gaps, 0.9)) + "/" + percent(quantile(gaps, 1));
}

const char* short_method(const std::string& method) {
  if (method == "exact over all cuts") return "exact";
  if (method == "bucket relaxation") return "relaxed";
  return method.empty() ? "-" : "balance";
}

Run run_of(const PlanResult& result) {
  Run run;
  run.found = result.plan.has_value();
  run.cut = result.cut_by_effort;
  if (run.found) {
    run.stages = result.plan->num_stages();
    run.value_ms = result.step_ms;
    run.simulated_ms = result.simulated_step_ms;
  }
  return run;
}

class Gaps {
 public:
  explicit Gaps(Options options) : options_(std::move(options)) {
    for (const std::string& name : options_.clusters) clusters_.push_back(machine::load_cluster(name));
    for (const std::string& path : options_.inputs) {
      try {
        InputOptions input;
        input.path = path;
        models_.push_back({path, shorten(profile::model_name(path, "model"), kNameWidth),
                           read_input(input, clusters_.front()).profile});
      } catch (const Error& error) {
        unread_.push_back(path + ": " + error.what());
      }
    }
    for (std::size_t c = 0; c < clusters_.size(); ++c) {
      for (std::size_t m = 0; m < models_.size(); ++m) {
        add_case(m, c, 0);
        const int most = std::min(
            {options_.last_stages, clusters_[c].num_devices(), static_cast<int>(models_[m].profile.c_ms.size())});
        for (int stages = options_.first_stages; stages <= most; ++stages) add_case(m, c, stages);
      }
    }
  }

  int run() {
    const auto start = std::chrono::steady_clock::now();
    std::printf("%zu models, %zu clusters, %d micro-batches; effort: auto stages %s, forced stages quick\n",
                models_.size(), clusters_.size(), options_.micro_batches, to_string(options_.effort));
    print_load("at the start");
    for (Case& one : cases_) {
      if (one.stages == 0) guarded(one, [&] { run_timed(one); });
    }
    print_load("after the timed part");
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < options_.threads; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < cases_.size(); i = next++) {
          guarded(cases_[i], [&] { run_untimed(cases_[i]); });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t c = 0; c < clusters_.size(); ++c) {
      std::printf("\n== %s: %d servers, %d devices ==\n", clusters_[c].name.c_str(), clusters_[c].num_servers(),
                  clusters_[c].num_devices());
      summary(c);
      chosen(c);
      infeasible(c);
    }
    remarkable();
    std::printf("\n%zu cases in %.0f s\n", cases_.size(),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return unread_.empty() ? 0 : 1;
  }

 private:
  void add_case(std::size_t model, std::size_t cluster, int stages) {
    Case one;
    one.model = model;
    one.cluster = cluster;
    one.stages = stages;
    cases_.push_back(std::move(one));
  }

  static void guarded(Case& one, const std::function<void()>& body) {
    try {
      body();
    } catch (const std::exception& error) {
      one.error = error.what();
    }
  }

  Problem problem_of(const Case& one) const {
    pipeline::ProblemOptions options;
    options.micro_batches = options_.micro_batches;
    return Problem(models_[one.model].profile, clusters_[one.cluster], options);
  }

  // `auto` with stages "auto", as automap-infer runs it.
  void run_timed(Case& one) const {
    const Problem problem = problem_of(one);
    PlanRequest request;
    request.effort = plan_effort(options_.effort);
    const PlanResult result = make_plan(problem, request);
    one.runs[kAutoIndex] = run_of(result);
    one.planning_ms = result.planning_ms;
    one.winner = result.planner;
    one.lower_bound_ms = result.lower_bound_ms;
    one.method = result.lower_bound_method;
    one.least_memory_bytes = result.least_memory_bytes;
    one.available_memory_bytes = result.available_memory_bytes;
  }

  void run_untimed(Case& one) const {
    if (!one.error.empty()) return;
    const Problem problem = problem_of(one);
    const bool forced = one.stages > 0;
    double smallest = one.runs[kAutoIndex].found ? one.runs[kAutoIndex].value_ms : kInfinity;
    for (std::size_t k = 0; k < kNumPlanners; ++k) {
      if (k == kAutoIndex && !forced) continue;  // done already
      // A build without a policy has none to ask.
      if (kPlanners[k] == PlannerKind::kPolicy && shipped_policy_names().empty()) continue;
      PlanRequest request;
      request.planner = kPlanners[k];
      request.stages = one.stages;
      request.effort = plan_effort(forced ? Effort::kQuick : options_.effort);
      request.lower_bound = false;
      const PlanResult result = make_plan(problem, request);
      one.runs[k] = run_of(result);
      if (one.runs[k].found) smallest = std::min(smallest, one.runs[k].value_ms);
      if (k == kAutoIndex) {
        one.winner = result.planner;
        one.least_memory_bytes = result.least_memory_bytes;
        one.available_memory_bytes = result.available_memory_bytes;
      }
    }
    if (!forced || smallest == kInfinity) return;
    Work work(WorkLimits::of_units(plan_effort(Effort::kQuick).units));
    const pipeline::LowerBound bound =
        pipeline::lower_bound_all_cuts(problem, {Schedule::k1f1b}, one.stages, one.stages, smallest, work);
    one.lower_bound_ms = std::min(bound.ms, smallest);
    one.method = bound.method;
  }

  // The shortest simulation known for a case: for the planner's own choice of stages, of all stage counts.
  double best_simulated_ms(const Case& one) const {
    double best = one.best_simulated_ms();
    if (one.stages > 0) return best;
    for (const Case& other : cases_) {
      if (other.model == one.model && other.cluster == one.cluster) best = std::min(best, other.best_simulated_ms());
    }
    return best;
  }

  void summary(std::size_t cluster) const {
    for (const bool simulated : {false, true}) {
      std::printf("\n%s, %%: median/90th percentile/largest over the models\n\n",
                  simulated ? "Simulated step over the shortest simulated step known" : "V over the lower bound");
      std::vector<TextTable::Column> columns = {{"S"}, {"plans"}};
      if (!simulated) columns.push_back({"exact"});
      for (PlannerKind planner : kPlanners) columns.push_back({to_string(planner)});
      TextTable table(columns);
      std::map<std::size_t, int> missing;
      for (int stages = options_.first_stages; stages <= options_.last_stages + 1; ++stages) {
        const bool chosen_stages = stages > options_.last_stages;
        std::vector<double> gaps[kNumPlanners];
        int plans = 0, exact = 0;
        for (const Case& one : cases_) {
          if (one.cluster != cluster || one.stages != (chosen_stages ? 0 : stages)) continue;
          const double best = best_simulated_ms(one);
          if (best == kInfinity || !(one.lower_bound_ms > 0)) continue;
          ++plans;
          if (one.method == std::string("exact over all cuts")) ++exact;
          for (std::size_t k = 0; k < kNumPlanners; ++k) {
            const Run& run = one.runs[k];
            if (run.found) {
              gaps[k].push_back((simulated ? run.simulated_ms / best : run.value_ms / one.lower_bound_ms) - 1);
            } else {
              ++missing[k];
            }
          }
        }
        std::vector<std::string> row = {chosen_stages ? "auto" : std::to_string(stages), std::to_string(plans)};
        if (!simulated) row.push_back(std::to_string(exact));
        for (const std::vector<double>& of_planner : gaps) row.push_back(spread(of_planner));
        table.add_row(std::move(row));
      }
      std::printf("%s", table.render().c_str());
      if (simulated && !missing.empty()) {
        std::printf("\nNo plan where another planner has one (left out above):");
        const char* separator = " ";
        for (const auto& [k, count] : missing) {
          std::printf("%s%s %d", separator, to_string(kPlanners[k]), count);
          separator = ", ";
        }
        std::printf("\n");
      }
    }
  }

  void chosen(std::size_t cluster) const {
    std::printf("\nPlanner auto, stages auto. gap: V over the bound; over best: simulated over the shortest known\n\n");
    using Align = TextTable::Align;
    TextTable table({{"model", Align::kLeft},
                     {"S"},
                     {"V ms"},
                     {"simulated"},
                     {"bound"},
                     {"gap %"},
                     {"bound by", Align::kLeft},
                     {"over best %"},
                     {"took ms"},
                     {"found by", Align::kLeft}});
    for (const Case& one : cases_) {
      if (one.cluster != cluster || one.stages != 0) continue;
      const Run& run = one.runs[kAutoIndex];
      const std::string& name = models_[one.model].name;
      if (!run.found) {
        table.add_row({name, "-", "-", "-", "-", "-", "-", "-", ms_text(one.planning_ms), "no plan"});
        continue;
      }
      table.add_row({name, std::to_string(run.stages), ms_text(run.value_ms), ms_text(run.simulated_ms),
                     ms_text(one.lower_bound_ms), percent(run.value_ms / one.lower_bound_ms - 1),
                     short_method(one.method), percent(run.simulated_ms / best_simulated_ms(one) - 1),
                     ms_text(one.planning_ms), one.winner + (run.cut ? " *" : "")});
    }
    std::printf("%s\n* the effort ended a search or the polishing before its end\n", table.render().c_str());
  }

  void infeasible(std::size_t cluster) const {
    std::map<std::string, std::string> lines;
    for (const Case& one : cases_) {
      if (one.cluster != cluster || one.runs[kAutoIndex].found) continue;
      std::string& line = lines[models_[one.model].name];
      const std::string stages = one.stages == 0 ? "auto" : std::to_string(one.stages);
      line += (line.empty() ? "" : ", ") + stages + ": ";
      if (!one.error.empty()) {
        line += one.error;
      } else if (one.least_memory_bytes > one.available_memory_bytes) {
        line += format_percent(one.least_memory_bytes / one.available_memory_bytes);
      } else {
        line += one.best_simulated_ms() < kInfinity ? "others have a plan" : "variables";
      }
    }
    if (lines.empty()) return;
    std::printf(
        "\nNo plan at S: memory needed at best on some device, of what it has (variables: they cannot be spread "
        "over the stages)\n");
    for (const auto& [name, line] : lines) std::printf("  %s  %s\n", name.c_str(), line.c_str());
  }

  std::string command(const Case& one) const {
    std::string text = "automap-infer " + models_[one.model].path + " --cluster " + options_.clusters[one.cluster];
    if (options_.micro_batches != kDefaultMicroBatches)
      text += " --micro-batches " + std::to_string(options_.micro_batches);
    if (one.stages > 0) text += " --stages " + std::to_string(one.stages);
    return text;
  }

  // The worst of `found` (what it is worth, what to say), the largest first.
  static void list(const char* title, std::vector<std::pair<double, std::string>> found) {
    std::printf("  %zu  %s\n", found.size(), title);
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (found.size() > kMostListed) found.resize(kMostListed);
    for (const auto& [worth, text] : found) std::printf("       %s\n", text.c_str());
  }

  // What somebody who looks for weak spots wants to see first, as commands.
  void remarkable() const {
    std::vector<std::pair<double, std::string>> longer, far, unproven, cut;
    for (const Case& one : cases_) {
      const Run& best = one.runs[kAutoIndex];
      for (std::size_t k = 0; k < kAutoIndex; ++k) {
        const Run& run = one.runs[k];
        if (!run.found || (best.found && best.simulated_ms <= run.simulated_ms * (1 + kRounding))) continue;
        const double worth = best.found ? best.simulated_ms / run.simulated_ms - 1 : kInfinity;
        longer.emplace_back(worth, (best.found ? percent(worth) + " %" : std::string("no plan")) + " vs " +
                                       to_string(kPlanners[k]) + (best.cut ? ", cut" : "") + ": " + command(one));
      }
      // What follows is about the effort that automap-infer makes by itself; forced stage counts had less here.
      if (one.stages > 0) continue;
      if (best.found && best.value_ms > (1 + kLargeGap) * one.lower_bound_ms) {
        const double worth = one.lower_bound_ms > 0 ? best.value_ms / one.lower_bound_ms - 1 : kInfinity;
        far.emplace_back(worth, percent(worth) + " % (" + short_method(one.method) + "): " + command(one));
      }
      if (one.runs[kAutoIndex - 1].cut) unproven.emplace_back(0, command(one) + " --planner exact");
      if (best.cut) cut.emplace_back(one.planning_ms, ms_text(one.planning_ms) + " ms: " + command(one));
    }
    std::printf("\nCases worth a look, of %zu (at most %zu of each kind shown):\n", cases_.size(), kMostListed);
    list("auto simulates longer than another planner", longer);
    list("V of auto's plan is more than 15 % above the bound (stages auto)", far);
    list("exact did not finish within its effort (stages auto)", unproven);
    list("auto ended with its effort (stages auto)", cut);
    for (const std::string& line : unread_) std::printf("  not read: %s\n", line.c_str());
  }

  Options options_;
  std::vector<Cluster> clusters_;
  std::vector<Model> models_;
  std::vector<std::string> unread_;
  std::vector<Case> cases_;
};

}  // namespace
}  // namespace automap::infer

int main(int argc, char** argv) {
  try {
    return automap::infer::Gaps(automap::infer::parse(argc, argv)).run();
  } catch (const automap::Error& error) {
    std::fprintf(stderr, "bench-planner_gaps: %s\n", error.what());
    return 1;
  }
}
