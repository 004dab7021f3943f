// H3: edge zeroing (after Sarkar): clusters are joined along the values that cost most to send.
#include <algorithm>
#include <numeric>

#include "plan/systems/heuristics/heuristics.h"

namespace automap::heuristics {

namespace {

// Clusters as units of a division over as many "devices" would cost a matrix. Only their work, their memory, and the
// time of the messages at their borders are needed.
class Zeroing {
 public:
  Zeroing(const Hypergraph& graph, const Machine& machine)
      : graph_(graph),
        parent_(graph.ms.size()),
        members_(graph.ms.size()),
        ms_(graph.ms),
        memory_(graph.memory_bytes),
        border_(graph.ms.size(), 0),
        most_ms_((1 + kSlack) * graph.total_ms() / machine.num_devices()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (DeviceId d = 0; d < machine.num_devices(); ++d) most_bytes_ = std::max(most_bytes_, machine.capacity_bytes(d));
    for (const Net& net : graph.nets) message_ms_.push_back(machine.mean_message_ms(net.bytes));
    for (UnitId u = 0; u < graph.size(); ++u) {
      members_[at(u)] = {u};
      border_[at(u)] = border_of({u});
      longest_ms_ = std::max(longest_ms_, ms_[at(u)] + border_[at(u)]);
    }
  }

  void run() {
    std::vector<std::int32_t> order(graph_.nets.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return graph_.nets[at(a)].bytes > graph_.nets[at(b)].bytes;
    });
    for (const std::int32_t n : order) {
      const Net& net = graph_.nets[at(n)];
      if (net.consumers.size() > kManyReaders) continue;
      for (const UnitId consumer : net.consumers) try_join(find(net.producer), find(consumer));
    }
  }

  std::vector<std::int32_t> clusters(std::int32_t* count) {
    std::vector<std::int32_t> number(parent_.size(), kNone), out(parent_.size());
    *count = 0;
    for (UnitId u = 0; u < graph_.size(); ++u) {
      std::int32_t& n = number[at(find(u))];
      if (n == kNone) n = (*count)++;
      out[at(u)] = n;
    }
    return out;
  }

 private:
  std::int32_t find(std::int32_t u) {
    while (parent_[at(u)] != u) u = parent_[at(u)] = parent_[at(parent_[at(u)])];
    return u;
  }

  // Messages in and out of a set of units, each value once each way: the cost of a cluster on a device of its own if
  // all others were on one other device.
  double border_of(const std::vector<UnitId>& units) {
    ++epoch_;
    unit_mark_.resize(graph_.ms.size(), 0);
    net_mark_.resize(graph_.nets.size(), 0);
    for (const UnitId u : units) unit_mark_[at(u)] = epoch_;
    double out = 0;
    for (const UnitId u : units) {
      for (const std::int32_t n : graph_.read[at(u)]) {
        if (net_mark_[at(n)] == epoch_ || unit_mark_[at(graph_.nets[at(n)].producer)] == epoch_) continue;
        net_mark_[at(n)] = epoch_;
        out += message_ms_[at(n)];
      }
      for (const std::int32_t n : graph_.made[at(u)]) {
        const auto& consumers = graph_.nets[at(n)].consumers;
        const bool leaves =
            std::any_of(consumers.begin(), consumers.end(), [&](UnitId c) { return unit_mark_[at(c)] != epoch_; });
        if (leaves) out += message_ms_[at(n)];
      }
    }
    return out;
  }

  void try_join(std::int32_t a, std::int32_t b) {
    if (a == b || ms_[at(a)] + ms_[at(b)] > most_ms_ || memory_[at(a)] + memory_[at(b)] > most_bytes_) return;
    std::vector<UnitId> both = members_[at(a)];
    both.insert(both.end(), members_[at(b)].begin(), members_[at(b)].end());
    const double border = border_of(both), ms = ms_[at(a)] + ms_[at(b)];
    // The estimated parallel time is that of the longest cluster.
    if (ms + border > std::max(longest_ms_, most_ms_)) return;
    if (members_[at(a)].size() < members_[at(b)].size()) std::swap(a, b);
    parent_[at(b)] = a;
    members_[at(a)] = std::move(both);
    members_[at(b)].clear();
    ms_[at(a)] = ms;
    memory_[at(a)] += memory_[at(b)];
    border_[at(a)] = border;
  }

  const Hypergraph& graph_;
  std::vector<std::int32_t> parent_;
  std::vector<std::vector<UnitId>> members_;  // by cluster, and so are the next ones
  std::vector<double> ms_, memory_, border_;
  std::vector<double> message_ms_;  // by net
  std::vector<int> unit_mark_, net_mark_;
  int epoch_ = 0;
  double most_ms_ = 0, most_bytes_ = 0, longest_ms_ = 0;
};

}  // namespace

std::vector<std::int32_t> zeroed_clusters(const Hypergraph& graph, const Machine& machine, std::int32_t* count) {
  Zeroing zeroing(graph, machine);
  zeroing.run();
  return zeroing.clusters(count);
}

Devices edge_zeroing(const Question& question) {
  std::int32_t count = 0;
  const std::vector<std::int32_t> cluster = zeroed_clusters(question.graph, question.machine, &count);
  return map_clusters(question.graph, question.machine, cluster, count);
}

}  // namespace automap::heuristics
