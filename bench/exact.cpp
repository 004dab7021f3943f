// Time of the exact solver on the documented random problems (common/pipeline/random_problem.h): median and longest
// over the seeds in processor time of the one thread it uses, for one stage count alone and for all in one pass: the
// papers' form under 1f1b, then whole samples with tables, gradients in buckets, an optimizer, four variants of a stage
// (ZeRO 0 and 1, with and without recomputation), no idle stages, adaptive.
//   bench-exact [problems per row, default 20] [most devices, default 32]
#include "common/pipeline/exact.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "common/pipeline/random_problem.h"

namespace {

using namespace automap::pipeline;

RandomProblem problem_for(std::uint64_t seed, int devices, int instructions, bool whole) {
  RandomProblemOptions options;
  options.min_instructions = options.max_instructions = instructions;
  options.min_devices = options.max_devices = std::min(8, devices);
  options.min_servers = options.max_servers = std::max(1, devices / 8);
  options.min_micro_batches = options.max_micro_batches = 16;
  if (!whole) return random_problem(seed, options);
  options.whole = options.with_overlap = options.with_optimizer = options.without_idle = 1;
  RandomProblem made = random_problem(seed, options);
  made.options.micro_batch_samples = 32;
  made.options.variants = {{0, false}, {1, false}, {0, true}, {1, true}};
  return made;
}

void row(int devices, int first, int last, int instructions, int grid, int problems, double time_limit_s, bool whole) {
  std::vector<double> ms;
  int proven = 0;
  for (int k = 0; k < problems; ++k) {
    const RandomProblem made = problem_for(static_cast<std::uint64_t>(k), devices, instructions, whole);
    const Problem problem = made.problem();
    ExactOptions options;
    options.min_stages = first;
    options.max_stages = last;
    if (whole) options.schedule = Schedule::kAdaptive;
    if (grid > 0) options.pivots = grid_pivots(instructions, grid);
    automap::Work work(automap::WorkLimits::of_seconds(time_limit_s));
    options.work = &work;
    const std::clock_t start = std::clock();
    const ExactResult result = solve_exact(problem, options);
    ms.push_back(1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    if (result.proven()) ++proven;
  }
  std::sort(ms.begin(), ms.end());
  char stages[16];
  std::snprintf(stages, sizeof stages, first == last ? "%d" : "%d..%d", first, last);
  std::printf("%10s  %8d  %7s  %6d  %10.2f  %10.2f  %4d of %d\n", whole ? "whole" : "fractional", devices, stages,
              grid > 0 ? grid : instructions, ms[ms.size() / 2], ms.back(), proven, problems);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int problems = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
  const int most_devices = argc > 2 ? std::atoi(argv[2]) : 32;
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) std::printf("load average %.2f\n", load[0]);
  std::printf("%10s  %8s  %7s  %6s  %10s  %10s  %s\n", "samples", "devices", "stages", "pivots", "median ms", "max ms",
              "proven");
  for (const bool whole : {false, true}) {
    for (int devices : {8, 16, 32, 64}) {
      if (devices > most_devices) continue;
      for (int stages : {2, 4, 8, 16}) {
        if (stages <= devices) row(devices, stages, stages, 2000, 128, problems, 60, whole);
      }
      row(devices, 2, std::min(devices, 16), 2000, 128, problems, 60, whole);
    }
    row(std::min(32, most_devices), 2, 2, 2000, 0, problems, 60, whole);
    row(std::min(32, most_devices), 4, 4, 2000, 0, problems, 60, whole);
  }
  if (getloadavg(load, 1) == 1) std::printf("load average %.2f\n", load[0]);
  return 0;
}
