// The learned searcher over partitionings beside greedy and enumeration: what they find, and the processor time they
// take.
//   bench-learner_partition [MODULE...]     (default: some of fixtures/hlo, and random problems, which are harder)
// Rainbow from scratch, three seeds: the worst and the best value; of the median seed by processor time the episodes
// and seconds to its best answer, and to its end (the bound reached, or 400 episodes without a better one).
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <map>

#include "bench/partition_problems.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "plan/partition/learned/rainbow.h"
#include "tests/models/random_partition_problem.h"

namespace {

using automap::format_ms;
using automap::format_number;
using automap::models::PartitionProblem;
using automap::partition::PartitionAnswer;
using automap::partition::SearchLimits;

constexpr double kBudget_s = 20;

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Run {
  PartitionAnswer answer;
  double ms = 0;
};

template <typename Search>
Run run(Search search) {
  const double begin = cpu_ms();
  Run out;
  out.answer = search();
  out.ms = cpu_ms() - begin;
  return out;
}

std::string proven(const PartitionAnswer& answer) {
  return format_number(answer.score.value, 5) + (answer.proven ? " proven" : "");
}

std::string whole(double count) {
  return std::to_string(static_cast<long long>(count));
}

void add_row(automap::TextTable* table, const std::string& name, const PartitionProblem& problem) {
  SearchLimits limits;
  limits.units = automap::WorkLimits::kNoEnd;
  limits.budget_s = kBudget_s;
  const Run greedy = run([&] { return automap::partition::search_greedy(problem, limits); });
  const Run exact = run([&] { return automap::partition::search_enumerate(problem, limits); });
  std::vector<Run> learned;
  for (limits.seed = 1; limits.seed <= 3; ++limits.seed) {
    learned.push_back(run([&] { return automap::partition::rainbow_search(problem, limits, ""); }));
  }
  std::sort(learned.begin(), learned.end(), [](const Run& a, const Run& b) { return a.ms < b.ms; });
  double worst = learned[0].answer.score.value, best = worst;
  for (const Run& one : learned) {
    worst = std::min(worst, one.answer.score.value);
    best = std::max(best, one.answer.score.value);
  }
  const Run& median = learned[1];
  std::map<std::string, double> s(median.answer.statistics.begin(), median.answer.statistics.end());
  table->add_row({name, std::to_string(problem.groups.size()), proven(greedy.answer), format_ms(greedy.ms),
                  proven(exact.answer), format_ms(exact.ms), format_number(worst, 5),
                  format_number(best, 5) + (median.answer.proven ? " proven" : ""), whole(s["best_episode"]),
                  format_ms(1e3 * s["best_seconds"]), whole(s["episodes"]), whole(s["updates"]), format_ms(median.ms)});
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  const bool random = paths.empty();
  if (random) paths = automap::bench::default_modules();
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  std::printf("%s; load of the machine %.1f on %d processors\n\n", automap::models::check_torch_speed().c_str(), load,
              get_nprocs());
  automap::TextTable table({{"module", automap::TextTable::Align::kLeft},
                            {"groups"},
                            {"greedy"},
                            {"time"},
                            {"enumerate"},
                            {"time"},
                            {"rainbow worst"},
                            {"best"},
                            {"at episode"},
                            {"after"},
                            {"episodes"},
                            {"updates"},
                            {"time"}});
  try {
    for (const std::string& path : paths) {
      for (const auto& [name, problem] : automap::bench::partition_problems(path)) add_row(&table, name, problem);
    }
    for (const int groups : {50, 100, 150}) {
      if (!random) break;
      for (const bool time : {false, true}) {
        automap::models::RandomProblemOptions options;
        options.variables = 3 * groups;
        options.groups = groups;
        if (time) options.objective = automap::models::PartitionObjective::kTime;
        add_row(&table, "random " + std::to_string(groups) + (time ? " time" : " count"),
                automap::models::random_partition_problem(options, static_cast<std::uint64_t>(groups)));
      }
    }
  } catch (const automap::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return automap::exit_code(error.kind());
  }
  std::cout << table.render();
  return 0;
}
