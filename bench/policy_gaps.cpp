// Measures how far every planner's plans are from the proven optimum, on random problems that no policy was trained on:
// the policy beside the same search without it, and beside planners that do not learn.
//
// Problems come from the row generator under a seed of their own, the same number of every family, in four classes by
// devices D and stages S. Infeasible ones are left out and counted, so are those whose optimum is not proven within the
// limit; in class L those stay, measured against the lower bound. Gaps are V over the optimum over the same pivots,
// stages and schedule - 1; a planner that finds no plan counts as 100 % and is counted. Times are processor time of one
// thread and begin with the prepared problem. With --proofs also the work that the exact solver has left to do when it
// is told of each planner's plan, of none, and of the optimum itself.
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
#include "datagen/distributions.h"
#include "train/paired.h"

namespace automap::bench {
namespace {

using datagen::Generator;
using pipeline::Problem;
using pipeline::ProblemParts;
using pipeline::RowProblem;

// Rows looked at per family before it is said that there are not enough of a class.
constexpr std::uint64_t kMostScanned = 2'000'000;

struct Options {
  std::vector<std::string> policies, methods;
  std::string config = "mixed", families, without, classes = "A,B,C", cache, output;
  int problems = 1000, threads = 1;
  bool proofs = false;
  std::uint64_t seed = 0x706f6c6967617073;  // training seeds are small numbers or dates
  double limit_s = 20, large_limit_s = 60;
};

struct SizeClass {
  const char* name;
  int min_devices, max_devices, min_stages, max_stages;
  bool large;  // unproven optima stay, measured against the bound
};
constexpr SizeClass kClasses[] = {
    {"A", 2, 16, 2, 8, false},
    {"B", 17, 64, 2, 8, false},
    {"C", 9, 64, 9, 16, false},
    {"L", 65, 512, 2, 16, true},
};

std::string title(const SizeClass& size) {
  return std::string(size.name) + ": D " + std::to_string(size.min_devices) + "-" + std::to_string(size.max_devices) +
         ", S " + std::to_string(size.min_stages) + "-" + std::to_string(size.max_stages);
}

// One measured problem.
struct Measured {
  enum class Fate { kMeasured, kInfeasible, kUnproven };
  Fate fate = Fate::kMeasured;
  bool proven = false;
  double exact_ms = 0;
  std::vector<double> gaps;
  std::vector<char> found;
  std::vector<double> cpu_ms;
  std::vector<double> proof_units;  // of every contender, then of no plan, then of the optimum; only with --proofs
  Json json;
};

struct Tally {
  int measured = 0, infeasible = 0, unproven = 0, against_bound = 0;
  std::vector<Measured> problems;
};

class Gaps {
 public:
  explicit Gaps(Options options)
      : options_(std::move(options)),
        cache_(options_.cache),
        candidates_(load_policies(options_.policies)),
        contenders_(contenders(candidates_, options_.methods)) {
    Generator generator = Generator::load(options_.config);
    if (!options_.families.empty()) generator = generator.only(split(options_.families));
    if (!options_.without.empty()) generator = generator.without(split(options_.without));
    config_json_ = generator.config_json();
    for (std::string& family : families_in(generator)) {
      Generator only = generator.only({family});
      families_.push_back({std::move(family), std::move(only), 0, {}});
    }
    for (const std::string& name : split(options_.classes)) {
      const auto found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                      [&](const SizeClass& size) { return name == size.name; });
      if (found == std::end(kClasses)) {
        throw Error(ErrorKind::kUsage, "no class is called '" + name + "'", "the classes: A, B, C, L");
      }
      classes_.push_back(found);
    }
  }

  int run() {
    const StopToken stop;
    refuse_seed(candidates_, options_.seed);
    Json head = describe(candidates_, contenders_);
    head["schema"] = "automap.bench.policy-gaps/1";
    head["seed"] = options_.seed;
    head["config"] = Json::parse_or_null(config_json_);
    if (head["config"].is_null()) head["config"] = config_json_;
    head["config_name"] = options_.config;
    head["threads"] = options_.threads;
    head["limit_s"] = options_.limit_s;
    head["large_limit_s"] = options_.large_limit_s;
    head["classes"] = Json::array();
    std::vector<Json> problems;
    for (const SizeClass* size : classes_) {
      const Tally tally = measure(*size);
      if (StopToken::stop_requested()) break;
      head["classes"].push_back({{"name", size->name},
                                 {"title", title(*size)},
                                 {"wanted", options_.problems},
                                 {"measured", tally.measured},
                                 {"infeasible", tally.infeasible},
                                 {"unproven", tally.unproven},
                                 {"against_bound", tally.against_bound}});
      for (const Measured& one : tally.problems) problems.push_back(one.json);
      print_table(*size, tally);
    }
    cache_.save();
    if (StopToken::stop_requested()) {
      throw Error(ErrorKind::kStopped, "stopped before all classes were measured",
                  options_.cache.empty() ? "" : "run it again: the optima found so far are in " + options_.cache);
    }
    head["load_average_after"] = load_average();
    if (!options_.output.empty()) write_document(options_.output, head, problems);
    return 0;
  }

 private:
  struct Family {
    std::string name;
    Generator generator;
    std::uint64_t next = 0;                                     // row to be looked at next
    std::map<const SizeClass*, std::vector<std::uint64_t>> of;  // rows of a class that nobody took yet
  };

  // Makes sure that so many rows of a class are known, as far as there are.
  void scan(Family& family, const SizeClass& size, std::size_t count) const {
    while (family.of[&size].size() < count && family.next < kMostScanned && !StopToken::stop_requested()) {
      const std::uint64_t index = family.next++;
      const RowProblem row = family.generator.row(options_.seed, index);
      const int devices = pipeline::devices_of_row(row);
      for (const SizeClass* one : classes_) {
        if (devices >= one->min_devices && devices <= one->max_devices && row.stages >= one->min_stages &&
            row.stages <= one->max_stages) {
          family.of[one].push_back(index);
        }
      }
    }
  }

  // Measures the same number of problems of every family, in the order of the rows; the choice of problems does not
  // depend on the threads.
  Tally measure(const SizeClass& size) {
    Tally tally;
    const std::size_t wanted = static_cast<std::size_t>(options_.problems);
    std::vector<std::size_t> quota(families_.size()), kept(families_.size());
    for (std::size_t f = 0; f < families_.size(); ++f) {
      quota[f] = (wanted + families_.size() - 1 - f) / families_.size();
    }
    Progress progress(std::string("class ") + size.name, wanted, "problems");
    std::size_t done = 0;
    for (;;) {
      std::vector<std::pair<std::size_t, std::uint64_t>> rows;
      for (std::size_t f = 0; f < families_.size(); ++f) {
        const std::size_t missing = quota[f] - kept[f];
        scan(families_[f], size, missing);
        std::vector<std::uint64_t>& known = families_[f].of[&size];
        const std::size_t taken = std::min(missing, known.size());
        for (std::size_t i = 0; i < taken; ++i) rows.emplace_back(f, known[i]);
        known.erase(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(taken));
      }
      if (rows.empty() || StopToken::stop_requested()) break;
      std::vector<Measured> found(rows.size());
      std::mutex mutex;
      parallel_for(rows.size(), options_.threads, [&](std::size_t i) {
        found[i] = measure(size, families_[rows[i].first], rows[i].second);
        const std::lock_guard<std::mutex> lock(mutex);
        if (found[i].fate == Measured::Fate::kMeasured) progress.update(++done);
      });
      if (StopToken::stop_requested()) break;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        switch (found[i].fate) {
          case Measured::Fate::kInfeasible: ++tally.infeasible; break;
          case Measured::Fate::kUnproven: ++tally.unproven; break;
          case Measured::Fate::kMeasured:
            ++tally.measured;
            ++kept[rows[i].first];
            if (!found[i].proven) ++tally.against_bound;
            tally.problems.push_back(std::move(found[i]));
        }
      }
    }
    progress.finish();
    return tally;
  }

  Measured measure(const SizeClass& size, const Family& family, std::uint64_t index) {
    const RowProblem row = family.generator.row(options_.seed, index);
    const ProblemParts parts = pipeline::problem_of_row(row);
    const Problem problem = parts.problem();
    Subject subject;
    subject.problem = &problem;
    subject.stages = row.stages;
    subject.schedule = row.schedule;
    subject.pivots = pipeline::grid_pivots(problem.num_instructions(), pipeline::kGranularity);
    const std::string key =
        fingerprint(problem, parts.profile, parts.cluster, subject.pivots,
                    std::string("exact ") + pipeline::to_string(row.schedule) + " " + std::to_string(row.stages));
    const Solved solved = solve(cache_, key, problem, subject.pivots, subject.schedule, subject.stages, subject.stages,
                                size.large ? options_.large_limit_s : options_.limit_s);
    Measured measured;
    Optimum none;
    none.proven = true;
    const Optimum optimum = solved.by_stages.empty() ? none : solved.by_stages.front();
    measured.proven = optimum.proven;
    measured.exact_ms = solved.cpu_ms;
    if (optimum.proven && optimum.value_ms == kInfinity) {
      measured.fate = Measured::Fate::kInfeasible;
      return measured;
    }
    if (!optimum.proven && (!size.large || optimum.value_ms == kInfinity)) {
      measured.fate = Measured::Fate::kUnproven;
      return measured;
    }
    const std::vector<Outcome> outcomes = run_all(subject, candidates_, contenders_);
    const double reference = optimum.proven ? optimum.value_ms : optimum.bound_ms;
    Json gaps = Json::array(), times = Json::array();
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome& outcome = outcomes[i];
      const bool found = outcome.value_ms < kInfinity;
      const double gap = found ? outcome.value_ms / reference - 1 : train::kMostGap;
      if (gap < -kRounding) {
        throw Error(ErrorKind::kInternal, std::string(contenders_[i].method->name) + " is " + format_percent(-gap) +
                                              " below the " + (optimum.proven ? "optimum" : "bound") + " of " +
                                              family.name + " row " + std::to_string(index));
      }
      measured.found.push_back(found ? 1 : 0);
      measured.gaps.push_back(std::max(gap, 0.0));
      measured.cpu_ms.push_back(outcome.cpu_ms);
      gaps.push_back(found ? Json(std::max(gap, 0.0)) : Json());
      times.push_back(outcome.cpu_ms);
    }
    if (options_.proofs && optimum.proven) {
      const double limit_s = size.large ? options_.large_limit_s : options_.limit_s;
      for (const Outcome& outcome : outcomes) {
        measured.proof_units.push_back(proof_units(subject, outcome.value_ms, limit_s));
      }
      measured.proof_units.push_back(proof_units(subject, kInfinity, limit_s));
      measured.proof_units.push_back(proof_units(subject, optimum.value_ms, limit_s));
      // All of a problem's proofs count, or none.
      if (*std::min_element(measured.proof_units.begin(), measured.proof_units.end()) < 0) measured.proof_units.clear();
    }
    measured.json = {{"class", size.name},
                     {"family", family.name},
                     {"row", index},
                     {"devices", problem.num_devices()},
                     {"servers", problem.num_servers()},
                     {"stages", row.stages},
                     {"micro_batches", row.micro_batches},
                     {"instructions", problem.num_instructions()},
                     {"schedule", pipeline::to_string(row.schedule)},
                     {"heterogeneous", row.server_seed != 0},
                     {"memory_limited", std::isfinite(row.memory_limit)},
                     {"proven", optimum.proven},
                     {"reference_ms", reference},
                     {"exact_cpu_ms", solved.cpu_ms},
                     {"gaps", std::move(gaps)},
                     {"cpu_ms", std::move(times)}};
    if (options_.proofs) measured.json["proof_units"] = measured.proof_units;
    return measured;
  }

  // Units of work until the exact solver has shown that nothing is below `value_ms`, or found the optimum; negative:
  // the time was over first.
  double proof_units(const Subject& subject, double value_ms, double limit_s) const {
    Work work(WorkLimits::of_seconds(limit_s));
    pipeline::ExactOptions exact;
    exact.min_stages = exact.max_stages = subject.stages;
    exact.schedule = subject.schedule;
    exact.pivots = subject.pivots;
    exact.upper_bound_ms = value_ms;
    exact.work = &work;
    pipeline::solve_exact(*subject.problem, exact);
    return work.stopped() ? -1 : static_cast<double>(work.spent());
  }

  void print_table(const SizeClass& size, const Tally& tally) const {
    std::string text = "\n" + title(size) + ": " + std::to_string(tally.measured) +
                       " problems; left out: " + std::to_string(tally.infeasible) + " infeasible, " +
                       std::to_string(tally.unproven) +
                       (size.large ? " without a plan within the limit; " : " not solved within the limit");
    if (size.large) text += std::to_string(tally.against_bound) + " measured against the bound, not the optimum";
    std::vector<TextTable::Column> columns = {{"planner", TextTable::Align::kLeft},
                                              {"mean %"},
                                              {"median"},
                                              {"p95"},
                                              {"largest"},
                                              {"optimal %"},
                                              {"no plan"},
                                              {"CPU ms"}};
    if (options_.proofs) columns.push_back({"proof, units"});
    TextTable table(columns);
    // Mean over the problems whose optimum is proven; `which` counts in Measured::proof_units.
    const auto add_row = [&](std::vector<std::string> cells, std::size_t which) {
      if (options_.proofs) {
        std::vector<double> units;
        for (const Measured& one : tally.problems) {
          if (!one.proof_units.empty()) units.push_back(one.proof_units[which]);
        }
        cells.push_back(format_number(summarize(std::move(units)).mean));
      }
      table.add_row(std::move(cells));
    };
    const auto percent = [](double ratio) {
      char cell[32];
      std::snprintf(cell, sizeof cell, "%.2f", 100 * ratio);
      return std::string(cell);
    };
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      std::vector<double> gaps, times;
      std::size_t missing = 0;
      for (const Measured& one : tally.problems) {
        gaps.push_back(one.gaps[i]);
        times.push_back(one.cpu_ms[i]);
        if (!one.found[i]) ++missing;
      }
      const Summary summary = summarize(std::move(gaps));
      std::string name = contenders_[i].method->name;
      if (candidates_.size() > 1 && contenders_[i].candidate >= 0) {
        name += " [" + std::to_string(contenders_[i].candidate + 1) + "]";
      }
      add_row({std::move(name), percent(summary.mean), percent(summary.median), percent(summary.p95),
               percent(summary.largest), percent(summary.optimal), std::to_string(missing),
               format_number(summarize(std::move(times)).mean)},
              i);
    }
    std::vector<double> times;
    for (const Measured& one : tally.problems) times.push_back(one.exact_ms);
    add_row({"exact", "-", "-", "-", "-", "-", "-", format_number(summarize(std::move(times)).mean)},
            contenders_.size());
    if (options_.proofs)
      add_row({"exact, told of its optimum", "-", "-", "-", "-", "-", "-", "-"}, contenders_.size() + 1);
    print(text + "\n\n" + table.render());
  }

  Options options_;
  AnswerCache cache_;
  std::vector<Candidate> candidates_;
  std::vector<Contender> contenders_;
  std::string config_json_;
  std::vector<Family> families_;
  std::vector<const SizeClass*> classes_;
};

int bench_main(int argc, char** argv) {
  Options options;
  OptionTable table("bench-policy_gaps", "gaps of policies and of planners without learning to the proven optimum");
  table.example("bench-policy_gaps --policy a.policy --policy b.policy --threads 2 --cache optima.jsonl -o gaps.json",
                "1000 problems of each of the classes A, B, C for two policies");
  table.group("What is measured");
  table.add(&options.policies, "policy", "a policy file; several are measured beside each other")
      .reads_file()
      .metavar("FILE");
  table.add(&options.methods, "method", "only this planner (repeatable); default: all").no_file().metavar("NAME");
  table.group("Problems");
  table.add(&options.config, "generator", "configuration of the row generator: a file or the name of a built-in one")
      .reads_file();
  table.add(&options.families, "families", "only these families").no_file().metavar("A,B");
  table.add(&options.without, "without", "all families but these").no_file().metavar("A,B");
  table.add(&options.classes, "classes", "A: D <= 16, S <= 8; B: D 17-64, S <= 8; C: S 9-16, D <= 64; L: D 65-512")
      .no_file();
  table.add(&options.problems, "problems", "problems per class, spread evenly over the families").range(1, 1e6);
  table.add(&options.seed, "seed", "of the problems; never one that a policy was trained with");
  table.add_flag(&options.proofs, "proofs", "also the exact solver's work once it is told of a planner's plan");
  table.group("Effort");
  table.add_seconds(&options.limit_s, "exact-limit", "per problem for its optimum").range(0.001, 1e6);
  table.add_seconds(&options.large_limit_s, "large-exact-limit", "the same in class L").range(0.001, 1e6);
  table.add(&options.threads, "threads", "problems solved at once").range(1, 1024);
  table.add(&options.cache, "cache", "file that keeps the optima for the next run").writes_file().metavar("FILE");
  table.group("Output");
  table.add(&options.output, "output", "every problem's gaps and times as JSON")
      .writes_file()
      .shorthand('o')
      .metavar("FILE");
  table.add_common(nullptr);
  if (!table.parse(argc, argv)) return 0;
  return Gaps(std::move(options)).run();
}

}  // namespace
}  // namespace automap::bench

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, automap::bench::bench_main);
}
