// Measures how far V is from the event simulation, where it matters most: at the plans that minimize V. The suite is
// the one of common/pipeline/random_problem.h on 4 servers of 8 devices; docs/cost-model.md explains the columns.
//
//   bench-value_accuracy [--value full|paper] [--problems N] [--seed N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "common/pipeline/baselines.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

struct Sample {
  std::vector<double> values;
  void add(double value) { values.push_back(value); }
  double quantile(double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
  }
  double mean() const {
    double sum = 0;
    for (double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  // "mean (p5, p95)" in percent.
  std::string text() {
    if (values.empty()) return "-";
    char line[64];
    std::snprintf(line, sizeof line, "%+5.1f (%+6.1f, %+5.1f)", 100 * mean(), 100 * quantile(0.05),
                  100 * quantile(0.95));
    return line;
  }
};

struct Row {
  Sample optimal, balanced, random, regret, above;
};

Row measure(int stages, Schedule schedule, ValueForm form, double with_allreduce, int problems, std::uint64_t seed) {
  RandomProblemOptions options;
  options.with_allreduce = with_allreduce;
  Row row;
  for (int i = 0; i < problems; ++i) {
    RandomProblem made = random_problem(seed + static_cast<std::uint64_t>(i), options);
    made.options.value = form;
    const Problem problem = made.problem();
    const auto error = [&](const Plan& plan) { return value_ms(problem, plan) / simulate_step_ms(problem, plan) - 1; };
    CounterRandom random(seed + static_cast<std::uint64_t>(i), 100);
    for (int k = 0; k < 20; ++k) row.random.add(error(random_plan(problem, stages, schedule, random)));
    double best_ms = 1e300;
    const auto simulated = [&](const Plan& plan) {
      Work without_end;
      const Plan polished = polish_simulated(problem, plan, without_end);
      best_ms = std::min(best_ms, simulate_step_ms(problem, polished));
    };
    if (const auto plan = balanced_plan(problem, stages, schedule)) {
      row.balanced.add(error(*plan));
      simulated(*plan);
    }
    LocalSearchOptions search;
    search.stages = stages;
    search.schedule = schedule;
    search.objective = Objective::kSimulated;
    if (const auto plan = local_search_plan(problem, search)) simulated(*plan);
    ExactOptions exact;
    exact.min_stages = exact.max_stages = stages;
    exact.schedule = schedule;
    exact.pivots = grid_pivots(problem.num_instructions(), 128);
    Work work(WorkLimits::of_seconds(10));
    exact.work = &work;
    const ExactResult solved = solve_exact(problem, exact);
    if (const ExactStageResult* best = solved.best()) {
      const Plan plan = refine_in_corridor(problem, best->plans.front());
      row.optimal.add(error(plan));
      simulated(plan);
      row.regret.add(simulate_step_ms(problem, plan) / best_ms - 1);
    }
  }
  return row;
}

int run(int argc, char** argv) {
  ValueForm form = ValueForm::kFull;
  int problems = 100;
  std::uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 < argc && flag == "--value") {
      const std::string value = argv[++i];
      if (value != "full" && value != "paper") return std::fprintf(stderr, "--value full|paper\n"), 2;
      form = value == "paper" ? ValueForm::kPaper : ValueForm::kFull;
    } else if (i + 1 < argc && flag == "--problems") {
      problems = std::max(1, std::atoi(argv[++i]));
    } else if (i + 1 < argc && flag == "--seed") {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      return std::fprintf(stderr, "usage: %s [--value full|paper] [--problems N] [--seed N]\n", argv[0]), 2;
    }
  }
  std::string load;
  std::getline(std::ifstream("/proc/loadavg"), load);
  std::printf("V (%s form) / simulation - 1 in %%, mean (p5, p95), %d problems each, seed %llu; load %s\n",
              form == ValueForm::kFull ? "full" : "paper", problems, static_cast<unsigned long long>(seed),
              load.c_str());
  std::printf("regret: simulated length of the V-optimal plan over the best simulated plan known - 1\n\n");
  std::printf("%-10s %-13s %2s  %-22s %-22s %-22s %-22s\n", "all-reduce", "schedule", "S", "V-optimal plan",
              "balanced plan", "random plans", "regret");
  for (double with_allreduce : {0.0, 1.0}) {
    for (Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bOverlap}) {
      for (int stages : {2, 4, 8}) {
        Row row = measure(stages, schedule, form, with_allreduce, problems, seed);
        std::printf("%-10s %-13s %2d  %-22s %-22s %-22s %-22s\n", with_allreduce > 0 ? "yes" : "no",
                    to_string(schedule), stages, row.optimal.text().c_str(), row.balanced.text().c_str(),
                    row.random.text().c_str(), row.regret.text().c_str());
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace automap::pipeline

int main(int argc, char** argv) {
  return automap::pipeline::run(argc, argv);
}
