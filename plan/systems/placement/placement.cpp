#include "plan/systems/placement/placement.h"

#include <algorithm>
#include <map>

#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "plan/systems/placement/units.h"

namespace automap::placement {
namespace {

// Producers whose output crosses the border of one of `groups` sets: calls paid(group of the producer or reader,
// producer, whether it enters). Each (producer, group) once.
template <typename Paid>
void crossings(const Workload& workload, const std::vector<int>& group, const Paid& paid) {
  std::vector<std::pair<int, int>> in, out;
  for (const auto& [from, to] : workload.edges) {
    if (group[at(from)] == group[at(to)]) continue;
    out.emplace_back(from, group[at(from)]);
    in.emplace_back(from, group[at(to)]);
  }
  for (auto* list : {&in, &out}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
    for (const auto& [producer, of] : *list) paid(of, producer, list == &in);
  }
}

bool acyclic(int vertices, const std::vector<std::pair<int, int>>& edges) {
  std::vector<std::vector<int>> next(at(vertices));
  std::vector<int> waiting(at(vertices), 0), ready;
  for (const auto& [from, to] : edges) {
    next[at(from)].push_back(to);
    ++waiting[at(to)];
  }
  for (int v = 0; v < vertices; ++v) {
    if (waiting[at(v)] == 0) ready.push_back(v);
  }
  int done = 0;
  while (!ready.empty()) {
    const int v = ready.back();
    ready.pop_back();
    ++done;
    for (const int w : next[at(v)]) {
      if (--waiting[at(w)] == 0) ready.push_back(w);
    }
  }
  return done == vertices;
}

int most_pieces(const Placement& placement) {
  return placement.piece.empty() ? 1 : 1 + *std::max_element(placement.piece.begin(), placement.piece.end());
}

// Runs of a single sample: every node of a CPU core is one, and every piece of an accelerator.
struct Runs {
  std::vector<int> of;                     // run of every node
  std::vector<double> ms;                  // how long it takes, transfers included
  std::vector<std::pair<int, int>> after;  // (run, run that has to wait for it)
};

Runs runs_of(const Workload& workload, const Placement& placement) {
  Runs out;
  out.of.resize(workload.nodes.size());
  const int pieces = most_pieces(placement);
  std::map<std::pair<int, int>, int> run_of_piece;
  for (int v = 0; v < workload.size(); ++v) {
    const int device = placement.device[at(v)];
    if (device >= workload.accelerators) {
      out.of[at(v)] = static_cast<int>(out.ms.size());
      out.ms.push_back(workload.nodes[at(v)].cpu_ms);
      continue;
    }
    const int piece = placement.piece.empty() ? 0 : placement.piece[at(v)];
    const auto [found, fresh] = run_of_piece.emplace(std::make_pair(device, piece), static_cast<int>(out.ms.size()));
    if (fresh) out.ms.push_back(0);
    out.of[at(v)] = found->second;
    out.ms[at(found->second)] += workload.nodes[at(v)].accelerator_ms;
  }
  // Transfers are between accelerators and the host: runs on the CPU pay none.
  std::vector<char> pays(out.ms.size(), 0);
  for (const auto& entry : run_of_piece) pays[at(entry.second)] = 1;
  crossings(workload, out.of, [&](int run, int producer, bool) {
    if (pays[at(run)]) out.ms[at(run)] += workload.nodes[at(producer)].transfer_ms;
  });
  for (const auto& [from, to] : workload.edges) {
    if (out.of[at(from)] != out.of[at(to)]) out.after.emplace_back(out.of[at(from)], out.of[at(to)]);
  }
  if (pieces > 1) {
    auto before = run_of_piece.begin();
    for (auto it = before; it != run_of_piece.end(); before = it++) {
      if (it != before && it->first.first == before->first.first) out.after.emplace_back(before->second, it->second);
    }
  }
  return out;
}

}  // namespace

std::vector<DeviceLoad> device_loads(const Workload& workload, const Placement& placement) {
  std::vector<DeviceLoad> out(at(workload.devices()));
  for (int v = 0; v < workload.size(); ++v) {
    const int device = placement.device[at(v)];
    const Node& node = workload.nodes[at(v)];
    out[at(device)].compute_ms += device < workload.accelerators ? node.accelerator_ms : node.cpu_ms;
    out[at(device)].bytes += node.bytes;
  }
  crossings(workload, placement.device, [&](int device, int producer, bool enters) {
    if (device >= workload.accelerators) return;
    double& ms = enters ? out[at(device)].in_ms : out[at(device)].out_ms;
    ms += workload.nodes[at(producer)].transfer_ms;
  });
  return out;
}

double max_load_ms(const Workload& workload, const Placement& placement) {
  double out = 0;
  for (const DeviceLoad& load : device_loads(workload, placement)) out = std::max(out, load.total_ms());
  return out;
}

std::string why_not(const Workload& workload, const Placement& placement) {
  std::vector<int> first(at(workload.colours()), -1);
  for (int v = 0; v < workload.size(); ++v) {
    const Node& node = workload.nodes[at(v)];
    const int device = placement.device[at(v)];
    if (!node.on_accelerators && device < workload.accelerators) {
      return workload.describe(v) + " is on an accelerator, which does not run it";
    }
    if (node.colour == kNoColour) continue;
    int& other = first[at(node.colour)];
    if (other < 0) other = v;
    if (placement.device[at(other)] != device) {
      return workload.describe(other) + " and " + workload.describe(v) + " have one colour and are on two devices";
    }
  }
  const std::vector<DeviceLoad> loads = device_loads(workload, placement);
  for (int d = 0; d < workload.accelerators; ++d) {
    if (loads[at(d)].bytes > workload.memory_bytes) {
      return "accelerator " + std::to_string(d + 1) + " holds " + format_bytes(loads[at(d)].bytes) + " and has " +
             format_bytes(workload.memory_bytes);
    }
  }
  return "";
}

bool contiguous(const Workload& workload, const Placement& placement) {
  std::vector<std::pair<int, int>> edges;
  for (const auto& [from, to] : forward_order(workload)) {
    const int one = placement.device[at(from)], other = placement.device[at(to)];
    if (one != other) edges.emplace_back(one, other);
  }
  return acyclic(workload.devices(), edges);
}

std::optional<double> latency_ms(const Workload& workload, const Placement& placement) {
  const Runs runs = runs_of(workload, placement);
  std::vector<std::vector<int>> next(runs.ms.size());
  std::vector<int> waiting(runs.ms.size(), 0), ready;
  for (const auto& [from, to] : runs.after) {
    next[at(from)].push_back(to);
    ++waiting[at(to)];
  }
  std::vector<double> start(runs.ms.size(), 0);
  for (std::size_t r = 0; r < runs.ms.size(); ++r) {
    if (waiting[r] == 0) ready.push_back(static_cast<int>(r));
  }
  std::size_t done = 0;
  double end = 0;
  while (!ready.empty()) {
    const int r = ready.back();
    ready.pop_back();
    ++done;
    const double finish = start[at(r)] + runs.ms[at(r)];
    end = std::max(end, finish);
    for (const int w : next[at(r)]) {
      start[at(w)] = std::max(start[at(w)], finish);
      if (--waiting[at(w)] == 0) ready.push_back(w);
    }
  }
  return done == runs.ms.size() ? std::optional<double>(end) : std::nullopt;
}

Placement in_pieces(const Workload& workload, Placement placement) {
  placement.piece.clear();
  if (latency_ms(workload, placement)) return placement;
  const std::vector<int> order = topological_order(workload);
  std::vector<std::vector<int>> before(workload.nodes.size());
  for (const auto& [from, to] : workload.edges) before[at(to)].push_back(from);
  // For each device by itself: the number of times that a path to a node has come to it from elsewhere.
  placement.piece.assign(workload.nodes.size(), 0);
  for (int d = 0; d < workload.accelerators; ++d) {
    std::vector<int> entries(workload.nodes.size(), 0);
    for (const int v : order) {
      const bool here = placement.device[at(v)] == d;
      int& most = entries[at(v)];
      most = here ? 1 : 0;
      for (const int u : before[at(v)]) {
        most = std::max(most, entries[at(u)] + (here && placement.device[at(u)] != d ? 1 : 0));
      }
      if (here) placement.piece[at(v)] = most - 1;
    }
  }
  if (latency_ms(workload, placement)) return placement;
  // Pieces of several devices wait for each other: counting every change of device on the way leaves no circle, for an
  // edge then leads to a later number or stays in its piece.
  std::vector<int> changes(workload.nodes.size(), 0);
  for (const int v : order) {
    for (const int u : before[at(v)]) {
      changes[at(v)] = std::max(changes[at(v)], changes[at(u)] + (placement.device[at(u)] != placement.device[at(v)]));
    }
  }
  placement.piece = changes;
  return placement;
}

}  // namespace automap::placement
