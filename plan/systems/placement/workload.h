// The problem of placement: a directed acyclic graph of operators or layers with their times on an accelerator and on a
// CPU core, and the machine that it is placed on (Tarnawski et al., "Efficient Algorithms for Device Placement of DNN
// Graph Operators", NeurIPS 2020, arXiv 2006.16423).
//
// Times in ms per sample, sizes in bytes, everything finite and not negative. k accelerators of `memory_bytes` each and
// l CPU cores without a limit. A node's output crosses between an accelerator and the memory of the host in
// `transfer_ms`, paid once per producer and device, however many consumers there are; between CPU cores it is free.
// Nodes of one colour are on one device. Backward nodes read results of forward nodes, never the other way.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace automap::placement {

constexpr int kMostNodes = 100000;
constexpr int kMostDevices = 1024;
constexpr int kNoColour = -1;
constexpr std::int64_t kLargestId = std::int64_t{1} << 53;  // of nodes in files, and -kLargestId the least

struct Node {
  std::string name;  // for people
  long long id = 0;  // as in the file
  double accelerator_ms = 0;
  double cpu_ms = 0;
  double bytes = 0;        // on the device that holds the node
  double transfer_ms = 0;  // of its output, one way
  int colour = kNoColour;  // 0 .. colours-1
  bool backward = false;
  bool on_accelerators = true;  // false: only CPU cores can run it
};

struct Workload {
  int accelerators = 1, cpus = 0;
  double memory_bytes = std::numeric_limits<double>::infinity();
  std::vector<Node> nodes;
  std::vector<std::pair<int, int>> edges;  // (producer, consumer), positions in `nodes`; each once

  int devices() const { return accelerators + cpus; }
  int size() const { return static_cast<int>(nodes.size()); }
  bool training() const;  // there is a backward node
  int colours() const;    // the largest colour + 1
  // "node 3 (conv1)".
  std::string describe(int node) const;
};

// Nodes in an order in which every edge goes forward, the smallest position first among those that may come next.
std::vector<int> topological_order(const Workload& workload);

// Throws Error(kData) starting with `source` where the graph is none: no nodes, a cycle (named), an edge from a
// backward to a forward node, a time or size that is negative or not finite. Throws Error(kInfeasible) where no device
// can take a node or a colour: one that no accelerator runs, or that is larger than one, when there is no CPU core.
void check_workload(const Workload& workload, const std::string& source);

}  // namespace automap::placement
