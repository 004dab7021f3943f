// H1: a chunk of the topological order for every device.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/systems/heuristics/heuristics.h"

namespace automap::heuristics {

namespace {

constexpr std::int32_t kLeastWindow = 8;  // places that a cut may move, each way; and a share of a chunk:
constexpr std::int32_t kWindowShare = 4;

std::vector<UnitId> order_by_place(const Hypergraph& graph) {
  std::vector<UnitId> order(at(graph.size()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](UnitId a, UnitId b) { return graph.place[at(a)] < graph.place[at(b)]; });
  return order;
}

// By cut: bytes of nets that have units on both sides. Cut i is before the i-th unit of the order.
std::vector<double> crossing_bytes(const Hypergraph& graph, const std::vector<UnitId>& order) {
  std::vector<std::int32_t> index(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) index[at(order[i])] = static_cast<std::int32_t>(i);
  std::vector<double> out(order.size() + 2, 0);
  for (const Net& net : graph.nets) {
    std::int32_t first = index[at(net.producer)], last = first;
    for (const UnitId u : net.consumers) {
      first = std::min(first, index[at(u)]);
      last = std::max(last, index[at(u)]);
    }
    out[at(first) + 1] += net.bytes;
    out[at(last) + 1] -= net.bytes;
  }
  for (std::size_t i = 1; i < out.size(); ++i) out[i] += out[i - 1];
  return out;
}

}  // namespace

Devices chunks_along_order(const Hypergraph& graph, const Machine& machine) {
  const std::vector<UnitId> order = order_by_place(graph);
  const std::vector<double> crossing = crossing_bytes(graph, order);
  const auto n = static_cast<std::int32_t>(order.size());
  std::vector<double> prefix(order.size() + 1, 0);
  for (std::size_t i = 0; i < order.size(); ++i) prefix[i + 1] = prefix[i] + graph.ms[at(order[i])];
  const int k = machine.num_devices();
  const double total = prefix.back(), speed = machine.total_speed();
  std::vector<std::int32_t> cut(at(k) + 1, n);
  cut[0] = 0;
  double wanted = 0;
  for (DeviceId d = 0; d + 1 < k; ++d) {
    wanted += total * machine.speed(d) / speed;
    // The cut whose work in front of it is nearest to the wanted one.
    auto i = static_cast<std::int32_t>(std::lower_bound(prefix.begin(), prefix.end(), wanted) - prefix.begin());
    if (i > 0 && (i > n || wanted - prefix[at(i) - 1] < prefix[at(i)] - wanted)) --i;
    cut[at(d) + 1] = std::max(cut[at(d)], std::min(i, n));
  }
  const std::int32_t window = std::max(kLeastWindow, n / (kWindowShare * k));
  for (DeviceId d = 0; d + 1 < k; ++d) {
    std::int32_t& own = cut[at(d) + 1];
    const std::int32_t from = std::max(cut[at(d)], own - window), to = std::min(cut[at(d) + 2], own + window);
    const auto within = [&](std::int32_t i) {
      const double before = prefix[at(i)] - prefix[at(cut[at(d)])], behind = prefix[at(cut[at(d) + 2])] - prefix[at(i)];
      return before <= (1 + kSlack) * total * machine.speed(d) / speed &&
             behind <= (1 + kSlack) * total * machine.speed(d + 1) / speed;
    };
    std::int32_t best = own;
    for (std::int32_t i = from; i <= to; ++i) {
      if (!within(i)) continue;
      const bool fewer = crossing[at(i)] < crossing[at(best)],
                 nearer = crossing[at(i)] == crossing[at(best)] && std::abs(i - own) < std::abs(best - own);
      if (fewer || nearer) best = i;
    }
    own = best;
  }
  Devices out(order.size(), 0);
  for (DeviceId d = 0; d < k; ++d) {
    for (std::int32_t i = cut[at(d)]; i < cut[at(d) + 1]; ++i) out[at(order[at(i)])] = d;
  }
  return out;
}

Devices topo_chunk(const Question& question) {
  return chunks_along_order(question.graph, question.machine);
}

}  // namespace automap::heuristics
