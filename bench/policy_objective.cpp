// Planning for the simulated step instead of V: plans of a policy trained on the simulation beside what V's optimum and
// the exact solver's 100 best plans under V, re-ranked by simulation, come to. Paired over random problems.
//
// Every planner is measured as it is, after polishing under the simulation, and at equal time: each gets the processor
// time of the slower one of policy and exact solver, polished (and twice that). Searches first widen their beams with
// it; the rest goes into restarted moves under the simulation from a planner's own polished plan. Also the other way
// round: the exact solver stopped after the policy's time. Figures are the simulated step over the shortest one that
// anybody found - 1.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/policy/measure.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/options.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "datagen/distributions.h"
#include "models/policy_search.h"

namespace automap::bench {
namespace {

using datagen::Generator;
using pipeline::Objective;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::ProblemParts;
using pipeline::RowProblem;

constexpr int kBest = 100;
constexpr int kBeam = 16, kWidest = 4096;
// Share of the time that goes into wider beams; the rest into moves.
constexpr double kWidening = 0.7;
constexpr double kNoPlan = 1;  // what "no plan found" counts as
constexpr std::uint64_t kMostScanned = 2'000'000;

struct Options {
  std::vector<std::string> policies, value_policies;
  std::string config = "mixed", families, output;
  int problems = 600, threads = 1, min_devices = 2, max_devices = 64, min_stages = 3, max_stages = 8;
  std::uint64_t seed = 0x706f6c696f626a65;  // training seeds are small numbers or dates
  double limit_s = 10;
};

struct Found {
  double simulated_ms = kInfinity;
  double cpu_ms = 0;
  Plan plan;
};

// The starting point of one planner.
struct Planner {
  std::string name;
  int policy = -1;  // index of the seed, for averages
};

struct Measured {
  enum class Fate { kMeasured, kInfeasible, kUnproven };
  Fate fate = Fate::kMeasured;
  std::vector<double> simulated_ms, cpu_ms;  // [column]
  Json json;
};

class Comparison {
 public:
  explicit Comparison(Options options)
      : options_(std::move(options)),
        simulated_(load_policies(options_.policies)),
        value_(load_policies(options_.value_policies)) {
    for (std::size_t i = 0; i < simulated_.size(); ++i) add("policy for simulation", static_cast<int>(i));
    for (std::size_t i = 0; i < value_.size(); ++i) add("policy for V", static_cast<int>(i));
    add("rollouts", -1);
    add("V-optimal", -1);
    add("exact, 100 best", -1);
    add("exact, 100 best, policy's time", -1);
    add("local search", -1);
  }

  int run() {
    const StopToken stop;
    Generator generator = Generator::load(options_.config);
    if (!options_.families.empty()) generator = generator.only(split(options_.families));
    refuse_seed(simulated_, options_.seed);
    refuse_seed(value_, options_.seed);
    Json head = describe(simulated_, {});
    head.erase("methods");
    head["value_policies"] = describe(value_, {})["policies"];
    head["schema"] = "automap.bench.policy-objective/1";
    head["seed"] = options_.seed;
    head["config_name"] = options_.config;
    head["threads"] = options_.threads;
    head["limit_s"] = options_.limit_s;
    head["sizes"] = "D " + std::to_string(options_.min_devices) + "-" + std::to_string(options_.max_devices) + ", S " +
                    std::to_string(options_.min_stages) + "-" + std::to_string(options_.max_stages);
    head["columns"] = Json::array();
    for (const Planner& planner : planners_) {
      for (const char* variant : kVariants) {
        head["columns"].push_back({{"planner", planner.name},
                                   {"variant", variant},
                                   {"policy", planner.policy < 0 ? Json() : Json(planner.policy)}});
      }
    }
    std::vector<Measured> measured;
    int infeasible = 0, unproven = 0;
    const std::vector<std::string> names = families_in(generator);
    std::vector<Generator> families;
    for (const std::string& name : names) families.push_back(generator.only({name}));
    std::vector<std::uint64_t> next(families.size());
    std::vector<int> kept(families.size());
    const std::size_t wanted = static_cast<std::size_t>(options_.problems);
    Progress progress("simulated step", wanted, "problems");
    std::size_t done = 0;
    for (;;) {
      std::vector<std::pair<std::size_t, RowProblem>> rows;
      for (std::size_t f = 0; f < families.size(); ++f) {
        const int quota = static_cast<int>((wanted + families.size() - 1 - f) / families.size());
        for (int missing = quota - kept[f]; missing > 0 && next[f] < kMostScanned;) {
          const RowProblem row = families[f].row(options_.seed, next[f]++);
          const int devices = pipeline::devices_of_row(row);
          if (devices < options_.min_devices || devices > options_.max_devices || row.stages < options_.min_stages ||
              row.stages > options_.max_stages) {
            continue;
          }
          rows.emplace_back(f, row);
          --missing;
        }
      }
      if (rows.empty() || StopToken::stop_requested()) break;
      std::vector<Measured> found(rows.size());
      std::mutex mutex;
      parallel_for(rows.size(), options_.threads, [&](std::size_t i) {
        found[i] = measure(names[rows[i].first], rows[i].second);
        const std::lock_guard<std::mutex> lock(mutex);
        if (found[i].fate == Measured::Fate::kMeasured) progress.update(++done);
      });
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (found[i].fate == Measured::Fate::kInfeasible) ++infeasible;
        if (found[i].fate == Measured::Fate::kUnproven) ++unproven;
        if (found[i].fate != Measured::Fate::kMeasured) continue;
        ++kept[rows[i].first];
        measured.push_back(std::move(found[i]));
      }
    }
    progress.finish();
    if (StopToken::stop_requested()) throw Error(ErrorKind::kStopped, "stopped before all problems were measured");
    head["measured"] = measured.size();
    head["infeasible"] = infeasible;
    head["unproven"] = unproven;
    head["load_average_after"] = load_average();
    print_table(measured, infeasible, unproven);
    std::vector<Json> problems;
    for (Measured& one : measured) problems.push_back(std::move(one.json));
    if (!options_.output.empty()) write_document(options_.output, head, problems);
    return 0;
  }

 private:
  static constexpr const char* kVariants[] = {"as it is", "+ polish", "equal time", "twice that time"};
  static constexpr std::size_t kNumVariants = std::size(kVariants);
  static constexpr std::size_t kAsItIs = 0, kPolished = 1, kEqualTime = 2;

  void add(const char* name, int policy) { planners_.push_back({name, policy}); }

  static double simulated(const Problem& problem, const std::optional<Plan>& plan) {
    return plan ? pipeline::simulate_step_ms(problem, *plan) : kInfinity;
  }

  Measured measure(const std::string& family, const RowProblem& row) const {
    const ProblemParts parts = pipeline::problem_of_row(row);
    const Problem problem = parts.problem();
    Measured measured;

    pipeline::ExactOptions exact;
    exact.min_stages = exact.max_stages = row.stages;
    exact.schedule = row.schedule;
    WorkLimits limits = WorkLimits::until(StopToken::stop_requested);
    limits.seconds = options_.limit_s;
    Work work(std::move(limits));
    exact.work = &work;
    const auto solved = [&](pipeline::ExactOptions options, Found& found) {
      const double start = thread_cpu_ms();
      const pipeline::ExactResult result = pipeline::solve_exact(problem, options);
      for (const pipeline::ExactStageResult& stage : result.by_stages) {
        for (const Plan& plan : stage.plans) {
          const double ms = pipeline::simulate_step_ms(problem, plan);
          if (ms < found.simulated_ms) {
            found.simulated_ms = ms;
            found.plan = plan;
          }
        }
      }
      found.cpu_ms = thread_cpu_ms() - start;
      return result.proven();
    };
    Found optimal, best;
    exact.k_best = 1;
    if (!solved(exact, optimal)) {
      measured.fate = Measured::Fate::kUnproven;
      return measured;
    }
    if (optimal.simulated_ms == kInfinity) {
      measured.fate = Measured::Fate::kInfeasible;
      return measured;
    }
    exact.k_best = kBest;
    if (!solved(exact, best)) {
      measured.fate = Measured::Fate::kUnproven;
      return measured;
    }

    const double start = thread_cpu_ms();
    models::PlanSpaceOptions space_options;
    space_options.stages = row.stages;
    space_options.schedule = row.schedule;
    const models::PlanSpace space(problem, space_options);
    const double space_ms = thread_cpu_ms() - start;
    const auto searched = [&](const models::Policy* policy, int beam) {
      models::PolicySearchOptions search;
      search.beam = beam;
      search.objective = Objective::kSimulated;
      const double begin = thread_cpu_ms();
      Found found;
      if (const auto plan = models::search_plan(space, policy, search)) {
        found.plan = plan->plan;
        found.simulated_ms = pipeline::simulate_step_ms(problem, plan->plan);
      }
      found.cpu_ms = thread_cpu_ms() - begin + space_ms;
      return found;
    };
    std::vector<Found> starts;
    // [start]: the policy of those that search, to be widened when there is more time.
    std::vector<std::optional<const models::Policy*>> searcher;
    double policy_ms = 0;
    for (const Candidate& candidate : simulated_) {
      starts.push_back(searched(&candidate.policy, kBeam));
      searcher.emplace_back(&candidate.policy);
      policy_ms += starts.back().cpu_ms / static_cast<double>(simulated_.size());
    }
    for (const Candidate& candidate : value_) {
      starts.push_back(searched(&candidate.policy, kBeam));
      searcher.emplace_back(&candidate.policy);
    }
    starts.push_back(searched(nullptr, kBeam));
    searcher.emplace_back(nullptr);
    if (simulated_.empty()) policy_ms = starts.back().cpu_ms;
    starts.push_back(optimal);
    starts.push_back(best);
    // The exact solver with no more time than the policy had; a balanced plan when that is too little for any.
    Found stopped;
    Work no_more(cpu_limit(policy_ms));
    exact.work = &no_more;
    solved(exact, stopped);
    if (stopped.simulated_ms == kInfinity) {
      const double begin = thread_cpu_ms();
      const auto plan = pipeline::balanced_plan(problem, row.stages, row.schedule, Objective::kSimulated);
      stopped.simulated_ms = simulated(problem, plan);
      if (plan) stopped.plan = *plan;
      stopped.cpu_ms += thread_cpu_ms() - begin;
    }
    starts.push_back(stopped);
    // Restarted local search under V, its last pass under the simulation, for the policy's time.
    Found local;
    {
      const double begin = thread_cpu_ms();
      pipeline::LocalSearchOptions search;
      search.stages = row.stages;
      search.schedule = row.schedule;
      search.objective = Objective::kSimulated;
      search.max_evaluations = std::numeric_limits<int>::max();
      Work equal(cpu_limit(policy_ms));
      search.work = &equal;
      const auto plan = pipeline::local_search_plan(problem, search);
      local.simulated_ms = simulated(problem, plan);
      if (plan) local.plan = *plan;
      local.cpu_ms = thread_cpu_ms() - begin;
    }
    starts.push_back(local);

    std::vector<Found> polished;
    for (const Found& from : starts) polished.push_back(improved(problem, from, kPolished, 0));
    // Polishing takes next to nothing, so nobody goes without it.
    double budget_ms = improved(problem, best, kPolished, 0).cpu_ms;
    double learned_ms = 0;
    for (std::size_t i = 0; i < simulated_.size(); ++i) {
      learned_ms += polished[i].cpu_ms / static_cast<double>(simulated_.size());
    }
    budget_ms = std::max(budget_ms, learned_ms);
    searcher.resize(starts.size());
    // The polished plan of a search that doubles its beam while the next one fits into its share of the budget.
    const auto widened = [&](std::size_t start_index, double most_ms) {
      Found shortest = polished[start_index];
      if (!searcher[start_index]) return shortest;
      double spent_ms = shortest.cpu_ms, last_ms = starts[start_index].cpu_ms;
      for (int beam = 2 * kBeam; beam <= kWidest && spent_ms + 2 * last_ms <= kWidening * most_ms; beam *= 2) {
        const Found wider = searched(*searcher[start_index], beam);
        const Found better = improved(problem, wider, kPolished, 0);
        last_ms = better.cpu_ms;
        spent_ms += better.cpu_ms - space_ms;
        if (better.simulated_ms < shortest.simulated_ms) shortest = better;
      }
      shortest.cpu_ms = spent_ms;
      return shortest;
    };
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const auto explored = [&](std::size_t variant) {
        const double most_ms = (variant == kEqualTime ? 1 : 2) * budget_ms;
        return improved(problem, widened(i, most_ms), variant, most_ms);
      };
      for (std::size_t variant = 0; variant < kNumVariants; ++variant) {
        const Found to = variant == kAsItIs ? starts[i] : variant == kPolished ? polished[i] : explored(variant);
        measured.simulated_ms.push_back(to.simulated_ms);
        measured.cpu_ms.push_back(to.cpu_ms);
      }
    }
    const double shortest = *std::min_element(measured.simulated_ms.begin(), measured.simulated_ms.end());
    Json ratios = Json::array();
    for (double& ms : measured.simulated_ms) {
      ratios.push_back(ms < kInfinity ? Json(ms / shortest - 1) : Json());
      ms = ms < kInfinity ? ms / shortest - 1 : kNoPlan;
    }
    measured.json = {{"family", family},
                     {"devices", problem.num_devices()},
                     {"stages", row.stages},
                     {"micro_batches", row.micro_batches},
                     {"heterogeneous", row.server_seed != 0},
                     {"memory_limited", std::isfinite(row.memory_limit)},
                     {"shortest_ms", shortest},
                     {"over", std::move(ratios)},
                     {"cpu_ms", measured.cpu_ms}};
    return measured;
  }

  Found improved(const Problem& problem, const Found& from, std::size_t variant, double budget_ms) const {
    if (from.simulated_ms == kInfinity) return from;
    Found to = from;
    const double begin = thread_cpu_ms();
    if (variant == kPolished) {
      Work without_end;
      to.plan = pipeline::polish_simulated(problem, from.plan, without_end);
    } else {
      const double left = budget_ms - from.cpu_ms;
      if (left <= 0) return from;
      Work rest(cpu_limit(left));
      to.plan = pipeline::explore(problem, from.plan, Objective::kSimulated, rest, std::numeric_limits<int>::max());
    }
    to.simulated_ms = pipeline::simulate_step_ms(problem, to.plan);
    to.cpu_ms += thread_cpu_ms() - begin;
    return to;
  }

  void print_table(const std::vector<Measured>& measured, int infeasible, int unproven) const {
    TextTable table({{"planner", TextTable::Align::kLeft},
                     {"", TextTable::Align::kLeft},
                     {"mean %"},
                     {"median"},
                     {"p95"},
                     {"largest"},
                     {"CPU ms"}});
    const auto percent = [](double ratio) {
      char cell[32];
      std::snprintf(cell, sizeof cell, "%.2f", 100 * ratio);
      return std::string(cell);
    };
    for (std::size_t p = 0; p < planners_.size(); ++p) {
      for (std::size_t v = 0; v < kNumVariants; ++v) {
        const std::size_t column = p * kNumVariants + v;
        std::vector<double> ratios, times;
        for (const Measured& one : measured) {
          ratios.push_back(one.simulated_ms[column]);
          times.push_back(one.cpu_ms[column]);
        }
        const Summary summary = summarize(std::move(ratios));
        std::string name = planners_[p].name;
        if (planners_[p].policy > 0 || simulated_.size() > 1 || value_.size() > 1) {
          if (planners_[p].policy >= 0) name += " [" + std::to_string(planners_[p].policy + 1) + "]";
        }
        table.add_row({v == 0 ? name : "", kVariants[v], percent(summary.mean), percent(summary.median),
                       percent(summary.p95), percent(summary.largest),
                       format_number(summarize(std::move(times)).mean)});
      }
    }
    print("\nSimulated step over the shortest found, " + std::to_string(measured.size()) +
          " problems; left out: " + std::to_string(infeasible) + " infeasible, " + std::to_string(unproven) +
          " not solved within the limit\n\n" + table.render());
  }

  Options options_;
  std::vector<Candidate> simulated_, value_;
  std::vector<Planner> planners_;
};

int bench_main(int argc, char** argv) {
  Options options;
  OptionTable table("bench-policy_objective", "plans for the simulated step: policies beside the exact solver's best");
  table.example("bench-policy_objective --policy simulated.policy --value-policy value.policy -o objective.json",
                "600 problems, each planner as it is, polished, and at equal time");
  table.group("What is measured");
  table.add(&options.policies, "policy", "trained with --objective simulated (repeatable)")
      .reads_file()
      .metavar("FILE");
  table.add(&options.value_policies, "value-policy", "trained on V, for comparison (repeatable)")
      .reads_file()
      .metavar("FILE");
  table.group("Problems");
  table.add(&options.config, "generator", "configuration of the row generator: a file or the name of a built-in one")
      .reads_file();
  table.add(&options.families, "families", "only these families").no_file().metavar("A,B");
  table.add(&options.problems, "problems", "spread evenly over the families").range(1, 1e6);
  table.add(&options.min_devices, "min-devices", "smallest cluster").range(2, 1024);
  table.add(&options.max_devices, "max-devices", "largest cluster").range(2, 1024);
  table.add(&options.min_stages, "min-stages", "fewest stages; V and simulation agree at 2").range(2, 16);
  table.add(&options.max_stages, "max-stages", "most stages").range(2, 16);
  table.add(&options.seed, "seed", "of the problems; never one that a policy was trained with");
  table.group("Effort");
  table.add_seconds(&options.limit_s, "exact-limit", "per problem for the exact solver").range(0.001, 1e6);
  table.add(&options.threads, "threads", "problems solved at once").range(1, 1024);
  table.group("Output");
  table.add(&options.output, "output", "everything measured as JSON").writes_file().shorthand('o').metavar("FILE");
  table.add_common(nullptr);
  if (!table.parse(argc, argv)) return 0;
  if (options.min_devices > options.max_devices || options.min_stages > options.max_stages) {
    throw Error(ErrorKind::kUsage, "no problem has that many devices and stages: a smallest is above its largest");
  }
  return Comparison(std::move(options)).run();
}

}  // namespace
}  // namespace automap::bench

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, automap::bench::bench_main);
}
