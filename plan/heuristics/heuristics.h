// The heuristics, a row each, and what they share. Every one divides all units of a graph; what it leaves illegal or
// rough is made legal and refined afterwards (refinement.h), the same for all. Ties go by place in the topological
// order, then by device.
#pragma once

#include <string>
#include <vector>

#include "plan/heuristics/division.h"

namespace automap::heuristics {

// How far above its share of the work a device, chunk or cluster may go while it is made.
constexpr double kSlack = 0.05;

struct Question {
  const WorkGraph& work;    // the tasks
  const Hypergraph& graph;  // their units: hypergraph_of(work)
  const Machine& machine;
  bool acyclic = false;
  // What a unit's share of the work is on device d: its speed's share of all.
  double share_ms(DeviceId d) const { return graph.total_ms() * machine.speed(d) / machine.total_speed(); }
  // Of a device of mean speed.
  double mean_share_ms() const { return graph.total_ms() / machine.num_devices(); }
};

struct Heuristic {
  const char* name;
  const char* says;  // one line, for --help and the docs
  Devices (*divide)(const Question& question);
};

// "topo-chunk", "linear-clustering", "edge-zeroing", "list-scheduling", "multilevel", and "one-device", the baseline.
const std::vector<Heuristic>& heuristic_table();

Devices topo_chunk(const Question& question);         // H1
Devices linear_clustering(const Question& question);  // H2
Devices edge_zeroing(const Question& question);       // H3
Devices list_scheduling(const Question& question);    // H4
Devices multilevel(const Question& question);         // H5
// All on the device that takes the least time for it and has room; the fastest where none has.
Devices one_device(const Question& question);

// --- Shared ---

// Chunks along Hypergraph::place, which topo_chunk cuts, of any hypergraph.
Devices chunks_along_order(const Hypergraph& graph, const Machine& machine);
// Clusters by edge zeroing, which edge_zeroing maps, of any hypergraph: numbers 0 .. count-1 by unit.
std::vector<std::int32_t> zeroed_clusters(const Hypergraph& graph, const Machine& machine, std::int32_t* count);
// Clusters to devices, the one with most work first, each to the device where load and new messages are least (longest
// processing time first), among those with room if there are any. By unit.
Devices map_clusters(const Hypergraph& graph, const Machine& machine, const std::vector<std::int32_t>& cluster,
                     std::int32_t count);

}  // namespace automap::heuristics
