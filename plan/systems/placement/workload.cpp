#include "plan/systems/placement/workload.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"

namespace automap::placement {
namespace {

// The most nodes of a cycle that an error names, enough to find it.
constexpr std::size_t kShownOfCycle = 8;

std::vector<std::vector<int>> successors(const Workload& workload) {
  std::vector<std::vector<int>> out(workload.nodes.size());
  for (const auto& [from, to] : workload.edges) out[static_cast<std::size_t>(from)].push_back(to);
  return out;
}

// Some cycle among the nodes that no order reached: each of them has a predecessor that was not reached either.
std::string describe_cycle(const Workload& workload, const std::vector<char>& reached) {
  std::vector<int> before(workload.nodes.size(), -1);
  for (const auto& [from, to] : workload.edges) {
    if (!reached[static_cast<std::size_t>(from)] && !reached[static_cast<std::size_t>(to)]) {
      before[static_cast<std::size_t>(to)] = from;
    }
  }
  int at = static_cast<int>(std::find(reached.begin(), reached.end(), 0) - reached.begin());
  for (int steps = 0; steps < workload.size(); ++steps) at = before[static_cast<std::size_t>(at)];
  std::vector<int> cycle = {at};
  for (int node = before[static_cast<std::size_t>(at)]; node != at; node = before[static_cast<std::size_t>(node)]) {
    cycle.push_back(node);
  }
  std::reverse(cycle.begin(), cycle.end());
  std::string out;
  for (std::size_t i = 0; i < std::min(cycle.size(), kShownOfCycle); ++i) {
    out += workload.describe(cycle[i]) + " -> ";
  }
  if (cycle.size() > kShownOfCycle) out += "... -> ";
  return out + workload.describe(cycle.front());
}

// Milliseconds and bytes whose sums are finite, and told apart.
constexpr double kMostOfNode = 1e18;

void check_number(const Workload& workload, int node, double value, const char* what, const std::string& source) {
  if (value >= 0 && value <= kMostOfNode) return;
  throw Error(ErrorKind::kData, source + ": " + workload.describe(node) + ": " + what + " is " + format_number(value) +
                                    ", expected a number from 0 to " + format_number(kMostOfNode));
}

void check_graph(const Workload& workload, const std::string& source) {
  if (workload.nodes.empty()) throw Error(ErrorKind::kData, source + ": there are no nodes to place");
  for (int v = 0; v < workload.size(); ++v) {
    const Node& node = workload.nodes[static_cast<std::size_t>(v)];
    check_number(workload, v, node.accelerator_ms, "its time on an accelerator", source);
    check_number(workload, v, node.cpu_ms, "its time on a CPU core", source);
    check_number(workload, v, node.bytes, "its size", source);
    check_number(workload, v, node.transfer_ms, "the transfer of its output", source);
  }
  for (const auto& [from, to] : workload.edges) {
    if (workload.nodes[static_cast<std::size_t>(from)].backward &&
        !workload.nodes[static_cast<std::size_t>(to)].backward) {
      throw Error(ErrorKind::kData,
                  source + ": an edge goes from the backward " + workload.describe(from) + " to the forward " +
                      workload.describe(to),
                  "a forward node can only read forward nodes; is one of the two marked wrongly?");
    }
  }
  const std::vector<int> order = topological_order(workload);
  if (order.size() == workload.nodes.size()) return;
  std::vector<char> reached(workload.nodes.size(), 0);
  for (const int v : order) reached[static_cast<std::size_t>(v)] = 1;
  throw Error(ErrorKind::kData, source + ": the edges form a cycle: " + describe_cycle(workload, reached),
              "a placement needs a graph without cycles; unroll the loop or make it one node");
}

// With a CPU core there is always somewhere to go.
void check_places(const Workload& workload, const std::string& source) {
  if (workload.cpus > 0) return;
  const std::string hint = "give it a CPU core (--cpus 1)";
  if (workload.accelerators == 0) throw Error(ErrorKind::kInfeasible, source + ": there are no devices", hint);
  std::vector<double> bytes(static_cast<std::size_t>(workload.colours()), 0);
  for (int v = 0; v < workload.size(); ++v) {
    const Node& node = workload.nodes[static_cast<std::size_t>(v)];
    if (!node.on_accelerators) {
      throw Error(ErrorKind::kInfeasible,
                  source + ": " + workload.describe(v) + " runs on no accelerator, and there is no CPU core", hint);
    }
    double of_class = node.bytes;
    if (node.colour != kNoColour) of_class = bytes[static_cast<std::size_t>(node.colour)] += node.bytes;
    if (of_class > workload.memory_bytes) {
      throw Error(ErrorKind::kInfeasible,
                  source + ": " + workload.describe(v) + (node.colour == kNoColour ? "" : " and what has its colour") +
                      " takes at least " + format_bytes(of_class) + ", an accelerator has " +
                      format_bytes(workload.memory_bytes) + ", and there is no CPU core",
                  "give accelerators more --memory, or " + hint);
    }
  }
}

}  // namespace

bool Workload::training() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.backward; });
}

int Workload::colours() const {
  int out = 0;
  for (const Node& node : nodes) out = std::max(out, node.colour + 1);
  return out;
}

std::string Workload::describe(int node) const {
  const Node& n = nodes[static_cast<std::size_t>(node)];
  return "node " + std::to_string(n.id) + (n.name.empty() ? "" : " (" + excerpt(n.name, 40) + ")");
}

std::vector<int> topological_order(const Workload& workload) {
  const auto next = successors(workload);
  std::vector<int> waiting(workload.nodes.size(), 0), order;
  for (const auto& edge : workload.edges) ++waiting[static_cast<std::size_t>(edge.second)];
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (int v = 0; v < workload.size(); ++v) {
    if (waiting[static_cast<std::size_t>(v)] == 0) ready.push(v);
  }
  while (!ready.empty()) {
    const int v = ready.top();
    ready.pop();
    order.push_back(v);
    for (const int w : next[static_cast<std::size_t>(v)]) {
      if (--waiting[static_cast<std::size_t>(w)] == 0) ready.push(w);
    }
  }
  return order;
}

void check_workload(const Workload& workload, const std::string& source) {
  check_graph(workload, source);
  check_places(workload, source);
}

}  // namespace automap::placement
