// Assigns nodes to devices, and judges such a placement (arXiv 2006.16423, sections 3 and 4).
//
// Devices 0 .. k-1 are accelerators, k .. k+l-1 CPU cores. An accelerator that holds the set S works
//   load = sum of p over S + sum of c_u over distinct u outside S that an edge leads from into S
//        + sum of c_u over distinct u in S that an edge leads from out of S
// per sample, a CPU core the sum of p. Samples flow through as through a pipeline, so that the time per sample is the
// largest load (throughput). Latency is the time of one sample alone: CPU cores, of which there are always enough, run
// a node as soon as its inputs are there; an accelerator takes all inputs of a piece, runs it and gives all outputs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/systems/placement/workload.h"

namespace automap::placement {

struct Placement {
  std::vector<int> device;  // of every node
  // Latency only: which piece of its accelerator a node belongs to, 0 the first to run; empty: one piece each.
  std::vector<int> piece;
};

struct DeviceLoad {
  double compute_ms = 0, in_ms = 0, out_ms = 0;  // of transfers; 0 on a CPU core
  double bytes = 0;
  double total_ms() const { return compute_ms + in_ms + out_ms; }
};

// The load of every device, from the nodes and edges as they were given.
std::vector<DeviceLoad> device_loads(const Workload& workload, const Placement& placement);
double max_load_ms(const Workload& workload, const Placement& placement);

// The reason why the machine cannot hold it: a colour on several devices, a node on an accelerator that does not run
// it, an accelerator that is full. Empty: it can.
std::string why_not(const Workload& workload, const Placement& placement);

// True if the devices can be put in an order in which all forward edges lead from a device to itself or to a later one,
// so that each runs its forward nodes in one go (backward nodes mirror them). Backward nodes of colours without a
// forward node count as if their edges ran forward the other way (units.h).
//
// Departure: the paper calls a set contiguous when no path leaves it and comes back, for each set by itself. Two such
// sets may still need each other's results (a -> b, c -> d; {a, d} and {b, c}), and then neither can run in one go; the
// dynamic programme never makes them, its integer programme may.
bool contiguous(const Workload& workload, const Placement& placement);

// The time of one sample alone; nothing when pieces wait for each other in a circle. Pieces of one accelerator run one
// after the other.
std::optional<double> latency_ms(const Workload& workload, const Placement& placement);

// The placement with as many pieces as running it takes: a new one wherever a path comes back to a device.
Placement in_pieces(const Workload& workload, Placement placement);

}  // namespace automap::placement
