// The hypergraph that the heuristics divide: units with their work and memory, and nets, each a value with the units
// that make and read it. It is made of a work graph, or of another hypergraph some of whose units are taken together
// (multilevel heuristics, clusters); a division costs the same in each of them.
#pragma once

#include <vector>

#include "plan/systems/heuristics/work_graph.h"

namespace automap::heuristics {

struct Net {
  UnitId producer = 0;
  double bytes = 0;
  std::vector<UnitId> consumers;  // ascending, each once, without the producer; not empty
};

// A value that more units read (a step counter, a loss scale) says nothing about who belongs together.
constexpr std::size_t kManyReaders = 64;

struct Hypergraph {
  std::vector<double> ms, memory_bytes;  // by unit; on the reference device
  // By unit: the mean place of its tasks in the topological order, weighted by their time. Chunks are cut along this.
  std::vector<double> place;
  std::vector<Net> nets;
  std::vector<std::vector<std::int32_t>> made, read;  // by unit: nets
  // Units that a unit must come before in the forward pass, each once. If every device is to run one block, these must
  // have no cycles between devices (the backward pass mirrors it, as in plan/systems/placement/units.h).
  std::vector<std::vector<UnitId>> before;

  std::int32_t size() const { return static_cast<std::int32_t>(ms.size()); }
  double total_ms() const;
};

// Units in the order of their first tasks.
Hypergraph hypergraph_of(const WorkGraph& graph);

// Units of one number taken together; numbers 0 .. count-1, each used.
Hypergraph contract(const Hypergraph& fine, const std::vector<std::int32_t>& number, std::int32_t count);

}  // namespace automap::heuristics
