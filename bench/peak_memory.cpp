// The memory that the plan says a device needs, and what saying so takes, for scripts/measure_memory.py:
//   bench-peak_memory FILE [PLAN]
// One line of JSON. PLAN: an `operator` or `data` plan of automap-search; without it nothing is split.
#include "plan/partition/peak_memory.h"

#include <cstdio>
#include <ctime>
#include <string>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "plan/partition/apply_plan.h"
#include "plan/partition/mesh_plan.h"

namespace {

constexpr int kRuns = 5;

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace automap;
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: bench-peak_memory FILE [PLAN]\n");
    return 2;
  }
  try {
    const hlo::HloModule module = hlo::load_hlo(argv[1]);
    sharding::ShardingModel model = sharding::ShardingModel::build(module.graph, {});
    sharding::Propagation decided(model.linkage());
    if (argc == 3) {
      const partition::PlanFile plan = partition::load_plan_file(argv[2]);
      if (!plan.one)
        throw Error(ErrorKind::kUsage, "a plan of one axis is needed", "automap-search apply prices meshes");
      decided = partition::apply_plan(&model, *plan.one);
    }
    const std::vector<double> parts = partition::parts_of_axis(decided);
    const auto copies = partition::copies_of_axis(model, decided);
    double best_ms = 0;
    partition::PeakMemory peak;
    for (int run = 0; run < kRuns; ++run) {
      const double begin = cpu_ms();
      peak = partition::peak_memory(model, parts, copies);
      const double ms = cpu_ms() - begin;
      best_ms = run == 0 || ms < best_ms ? ms : best_ms;
    }
    std::printf(
        "{\"instructions\": %d, \"argument\": %.0f, \"result\": %.0f, \"temporary\": %.0f, \"total\": %.0f, \"ms\": "
        "%.2f}\n",
        module.graph.num_instructions(), peak.arguments, peak.results, peak.temporaries, peak.total, best_ms);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_code(e.kind());
  }
}
