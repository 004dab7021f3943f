#include "plan/systems/heuristics/hypergraph.h"

#include <algorithm>

namespace automap::heuristics {

namespace {

void sort_once(std::vector<std::int32_t>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

// The net between units, if there are two of them.
void add_net(UnitId producer, double bytes, std::vector<UnitId> consumers, Hypergraph* out) {
  sort_once(&consumers);
  const auto own = std::lower_bound(consumers.begin(), consumers.end(), producer);
  if (own != consumers.end() && *own == producer) consumers.erase(own);
  if (!consumers.empty()) out->nets.push_back({producer, bytes, std::move(consumers)});
}

void link(Hypergraph* out) {
  out->made.assign(out->ms.size(), {});
  out->read.assign(out->ms.size(), {});
  for (std::size_t n = 0; n < out->nets.size(); ++n) {
    const auto net = static_cast<std::int32_t>(n);
    out->made[at(out->nets[n].producer)].push_back(net);
    for (const UnitId consumer : out->nets[n].consumers) out->read[at(consumer)].push_back(net);
  }
  for (auto& list : out->before) sort_once(&list);
}

}  // namespace

double Hypergraph::total_ms() const {
  double out = 0;
  for (const double x : ms) out += x;
  return out;
}

Hypergraph hypergraph_of(const WorkGraph& graph) {
  Hypergraph out;
  const auto units = static_cast<std::size_t>(graph.units());
  out.ms.assign(units, 0);
  out.memory_bytes.assign(units, 0);
  out.place.assign(units, 0);
  out.before.resize(units);
  for (std::size_t u = 0; u < units; ++u) {
    double places = 0;
    for (const TaskId t : graph.tasks_of_unit[u]) {
      out.ms[u] += graph.tasks[at(t)].ms;
      out.memory_bytes[u] += graph.tasks[at(t)].memory_bytes;
      places += graph.tasks[at(t)].ms * t;
    }
    // A state without work lies where the order has it: before its first reader.
    const TaskId first = graph.tasks_of_unit[u].front();
    const bool state = graph.tasks[at(first)].pass == Pass::kState;
    out.place[u] = state || out.ms[u] <= 0 ? first : places / out.ms[u];
  }
  for (const Value& value : graph.values) {
    const UnitId producer = graph.tasks[at(value.producer)].unit;
    std::vector<UnitId> consumers;
    const Pass pass = graph.tasks[at(value.producer)].pass;
    for (const TaskId t : value.consumers) {
      const UnitId consumer = graph.tasks[at(t)].unit;
      consumers.push_back(consumer);
      if (consumer != producer && (pass == Pass::kForward || pass == Pass::kState) &&
          graph.tasks[at(t)].pass == Pass::kForward) {
        out.before[at(producer)].push_back(consumer);
      }
    }
    add_net(producer, value.bytes, std::move(consumers), &out);
  }
  link(&out);
  return out;
}

Hypergraph contract(const Hypergraph& fine, const std::vector<std::int32_t>& number, std::int32_t count) {
  Hypergraph out;
  out.ms.assign(at(count), 0);
  out.memory_bytes.assign(at(count), 0);
  out.place.assign(at(count), 0);
  out.before.resize(at(count));
  std::vector<double> plain(at(count), 0);
  std::vector<int> members(at(count), 0);
  for (std::size_t u = 0; u < number.size(); ++u) {
    const std::size_t c = at(number[u]);
    out.ms[c] += fine.ms[u];
    out.memory_bytes[c] += fine.memory_bytes[u];
    out.place[c] += fine.ms[u] * fine.place[u];
    plain[c] += fine.place[u];
    ++members[c];
    for (const UnitId next : fine.before[u]) {
      if (number[at(next)] != number[u]) out.before[c].push_back(number[at(next)]);
    }
  }
  for (std::size_t c = 0; c < out.ms.size(); ++c) {
    out.place[c] = out.ms[c] > 0 ? out.place[c] / out.ms[c] : plain[c] / members[c];
  }
  for (const Net& net : fine.nets) {
    std::vector<UnitId> consumers;
    for (const UnitId u : net.consumers) consumers.push_back(number[at(u)]);
    add_net(number[at(net.producer)], net.bytes, std::move(consumers), &out);
  }
  link(&out);
  return out;
}

}  // namespace automap::heuristics
