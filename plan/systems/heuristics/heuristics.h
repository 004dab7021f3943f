// The heuristics, a row each, and their shared parts. Every one divides all units of a graph; afterwards its division
// is made legal and refined (refinement.h), the same for all. Ties go by place in the topological order, then by
// device.
#pragma once

#include <string>
#include <vector>

#include "plan/systems/heuristics/division.h"

namespace automap::heuristics {

// A device, chunk or cluster may exceed its share of the work by this while it is made.
constexpr double kSlack = 0.05;

struct Question {
  const WorkGraph& work;    // the tasks
  const Hypergraph& graph;  // their units: hypergraph_of(work)
  const Machine& machine;
  bool acyclic = false;
  // The work that device d should get: in proportion to its speed.
  double share_ms(DeviceId d) const { return graph.total_ms() * machine.speed(d) / machine.total_speed(); }
  // The work that a device of mean speed should get.
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
