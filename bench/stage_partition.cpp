// Checks whether a stage would hold its tensors otherwise than the whole module's partition says: for every model and
// width, stages of about equal work, each with the module's partition and with one found for its own positions alone.
//   bench-stage_partition CLUSTER MODEL...
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/base/cli.h"
#include "common/machine/cluster.h"
#include "common/pipeline/problem.h"
#include "infer/input.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/planner.h"
#include "plan/partition/stage_counts.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"

namespace automap::bench {
namespace {

constexpr int kStages = 4;
constexpr std::int64_t kUnits = 1'000'000'000;  // a moment: what is quickly proven

// Ends of stages of about equal compute.
std::vector<int> equal_cuts(const pipeline::Profile& profile) {
  double all = 0, until = 0;
  for (const double ms : profile.c_ms) all += ms;
  std::vector<int> cuts = {0};
  for (std::size_t i = 0; i < profile.c_ms.size() && cuts.size() < std::size_t{kStages}; ++i) {
    until += profile.c_ms[i];
    if (until >= all * static_cast<double>(cuts.size()) / kStages) cuts.push_back(static_cast<int>(i) + 1);
  }
  cuts.push_back(static_cast<int>(profile.size()));
  return cuts;
}

void measure(const std::string& path, const machine::Cluster& cluster, int width) {
  search::ModelOptions options;
  options.path = path;
  const machine::DeviceModel device = profile::reference_device("", cluster);
  infer::InputOptions input;
  input.path = path;
  input.max_width = 1;
  input.whole_loops = true;
  const std::vector<int> cuts = equal_cuts(infer::read_input(input, cluster).profile);
  partition::PlanningRequest request;
  request.reshard = true;
  request.compare = false;
  request.search.limits.units = kUnits;
  search::LoadedModel whole = search::load_sharding_model(options, width);
  const partition::Planned of_module = partition::make_plan(whole.model.get(), device, cluster, request);
  std::printf("| %s | %d", path.substr(path.rfind('/') + 1).c_str(), width);
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    const std::vector<bool> counts = partition::stage_counts(*whole.model, cuts[s], cuts[s + 1]);
    const double shared_ms = partition::PartitionCost(*whole.model, device, cluster, nullptr, 1, &counts)
                                 .estimate(of_module.decided)
                                 .step_ms;
    search::LoadedModel alone = search::load_sharding_model(options, width);
    request.in_stage = &counts;
    const double own_ms = partition::make_plan(alone.model.get(), device, cluster, request).estimate.step_ms;
    request.in_stage = nullptr;
    std::printf(" | %.3f -> %.3f (%+.2f %%)", shared_ms, own_ms, (own_ms / shared_ms - 1) * 100);
  }
  std::printf(" |\n");
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "bench-stage_partition CLUSTER MODEL...\n");
    return 2;
  }
  const machine::Cluster cluster = machine::load_cluster(argv[1]);
  std::printf("ms of a step at the module's own samples, of the module's partition -> of the stage's own\n\n");
  std::printf("| model | width | stage 1 | stage 2 | stage 3 | stage 4 |\n|---|---|---|---|---|---|\n");
  for (int i = 2; i < argc; ++i) {
    for (const int width : {2, 4, 8}) measure(argv[i], cluster, width);
  }
  return 0;
}

}  // namespace
}  // namespace automap::bench

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, automap::bench::run);
}
