#include "plan/systems/heuristics/heuristics.h"

#include <algorithm>
#include <numeric>

namespace automap::heuristics {

const std::vector<Heuristic>& heuristic_table() {
  static const std::vector<Heuristic> table = {
      {"topo-chunk", "a topological order cut into a chunk per device, cuts moved to where few bytes cross",
       topo_chunk},
      {"linear-clustering", "longest paths made clusters, the heaviest cluster to the lightest device",
       linear_clustering},
      {"edge-zeroing", "clusters joined along the largest values, then mapped as those of paths", edge_zeroing},
      {"list-scheduling", "tasks by the length of what follows, each to where it ends first (HEFT)", list_scheduling},
      {"multilevel", "units matched level by level, divided when few, refined on the way back", multilevel},
      {"one-device", "everything on one device: what dividing has to beat", one_device},
  };
  return table;
}

Devices one_device(const Question& question) {
  const double bytes = question.work.memory_bytes();
  const auto room = [&](DeviceId d) { return bytes <= question.machine.capacity_bytes(d); };
  DeviceId best = 0;
  for (DeviceId d = 1; d < question.machine.num_devices(); ++d) {
    const bool roomier = room(d) && !room(best), faster = question.machine.speed(d) > question.machine.speed(best);
    if (roomier || (faster && room(d) == room(best))) best = d;
  }
  return Devices(at(question.graph.size()), best);
}

Devices map_clusters(const Hypergraph& graph, const Machine& machine, const std::vector<std::int32_t>& cluster,
                     std::int32_t count) {
  const Hypergraph coarse = contract(graph, cluster, count);
  std::vector<UnitId> order(at(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](UnitId a, UnitId b) { return coarse.ms[at(a)] > coarse.ms[at(b)]; });
  Division division(coarse, machine, false);
  for (const UnitId c : order) {
    DeviceId best = kNone;
    double best_ms = 0;
    bool best_fits = false;
    for (DeviceId d = 0; d < machine.num_devices(); ++d) {
      const bool fits = division.fits(c, d);
      if (best != kNone && best_fits && !fits) continue;
      const double ms = division.after(c, d).own_ms;
      if (best != kNone && best_fits == fits && ms >= best_ms) continue;
      best = d;
      best_ms = ms;
      best_fits = fits;
    }
    division.move(c, best);
  }
  Devices out(cluster.size());
  for (std::size_t u = 0; u < out.size(); ++u) out[u] = division.device(cluster[u]);
  return out;
}

}  // namespace automap::heuristics
