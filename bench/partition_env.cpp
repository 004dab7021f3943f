// Measures a step of the partitioning environment on one core.
//   bench-partition_env [MODULE...]     (default: some of fixtures/hlo)
// Processor time, half a second per figure, episodes that split a tenth of the positions at random; "with features":
// both after-states' features computed before every step.
#include "models/partition_env.h"

#include <sys/sysinfo.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "bench/partition_problems.h"
#include "common/base/error.h"
#include "common/base/rng.h"
#include "common/base/text_table.h"

namespace {

using automap::models::PartitionEnv;

constexpr double kSeconds = 0.5;

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double sum = 0;  // of what is computed, so that it is

struct Speed {
  double steps_per_s = 0, decisions = 0;  // of an episode
};

Speed measure(const automap::models::PartitionProblem& problem, bool features) {
  PartitionEnv env(problem);
  float rows[PartitionEnv::kActions * PartitionEnv::kFeatures];
  automap::Rng rng(1, 1, 0);
  long long steps = 0, episodes = 0;
  const double begin = cpu_s();
  double passed = 0;
  while (passed < kSeconds && env.most_decisions() > 0) {
    for (int i = 0; i < 20; ++i, ++episodes) {
      for (env.reset(); !env.done(); ++steps) {
        if (features) {
          env.features(rows);
          sum += rows[7];
        }
        env.step(rng.uniform() < 0.1 ? 1 : 0);
      }
    }
    passed = cpu_s() - begin;
  }
  if (steps == 0) return {};
  return {static_cast<double>(steps) / passed, static_cast<double>(steps) / static_cast<double>(episodes)};
}

}  // namespace

int main(int argc, char** argv) {
  using automap::format_count;
  std::vector<std::string> paths(argv + 1, argv + argc);
  if (paths.empty()) paths = automap::bench::default_modules();
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  std::printf("load of the machine %.1f on %d processors\n\n", load, get_nprocs());
  automap::TextTable table({{"module", automap::TextTable::Align::kLeft},
                            {"variables"},
                            {"dimensions"},
                            {"groups"},
                            {"decisions"},
                            {"steps/s"},
                            {"with features"}});
  try {
    for (const std::string& path : paths) {
      for (const auto& [name, problem] : automap::bench::partition_problems(path)) {
        const Speed plain = measure(problem, false), features = measure(problem, true);
        table.add_row({name, std::to_string(problem.variables.size()), std::to_string(problem.num_dims()),
                       std::to_string(problem.groups.size()), automap::format_number(plain.decisions),
                       format_count(static_cast<long long>(plain.steps_per_s)),
                       format_count(static_cast<long long>(features.steps_per_s))});
      }
    }
  } catch (const automap::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return automap::exit_code(error.kind());
  }
  std::cout << table.render();
  if (sum == 0.5) std::printf("\n");
  return 0;
}
