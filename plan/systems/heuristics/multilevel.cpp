// H5: multilevel division: heavy-edge matching, a division of few units, refinement on the way back (as METIS does).
#include <algorithm>
#include <numeric>

#include "plan/systems/heuristics/heuristics.h"
#include "plan/systems/heuristics/refinement.h"

namespace automap::heuristics {

namespace {

constexpr std::int32_t kFewUnits = 200, kFewPerDevice = 16;
constexpr double kLeastShrinking = 0.95;  // a level that leaves more than this share of the units is the last
constexpr double kMostOfShare = 0.25;     // of a device's work, that a coarse unit may have

// Numbers for pairs of units that send each other most, unmatched ones alone.
std::vector<std::int32_t> match(const Hypergraph& graph, const Machine& machine, std::int32_t* count) {
  const double most_ms = kMostOfShare * graph.total_ms() / machine.num_devices();
  double most_bytes = 0;
  for (DeviceId d = 0; d < machine.num_devices(); ++d)
    most_bytes = std::max(most_bytes, kMostOfShare * machine.capacity_bytes(d));
  std::vector<std::int32_t> number(graph.ms.size(), kNone);
  std::vector<double> weight(graph.ms.size(), 0);
  std::vector<UnitId> touched;
  *count = 0;
  for (UnitId u = 0; u < graph.size(); ++u) {
    if (number[at(u)] != kNone) continue;
    touched.clear();
    const auto add = [&](UnitId other, double ms) {
      if (other == u || number[at(other)] != kNone) return;
      if (weight[at(other)] == 0) touched.push_back(other);
      weight[at(other)] += ms;
    };
    const auto add_net = [&](std::int32_t n) {
      const Net& net = graph.nets[at(n)];
      if (net.consumers.size() > kManyReaders) return;
      const double ms = machine.mean_message_ms(net.bytes) / static_cast<double>(net.consumers.size());
      add(net.producer, ms);
      if (net.producer != u) return;
      for (const UnitId consumer : net.consumers) add(consumer, ms);
    };
    for (const std::int32_t n : graph.read[at(u)]) add_net(n);
    for (const std::int32_t n : graph.made[at(u)]) add_net(n);
    UnitId best = kNone;
    for (const UnitId other : touched) {
      const bool small = graph.ms[at(u)] + graph.ms[at(other)] <= most_ms &&
                         graph.memory_bytes[at(u)] + graph.memory_bytes[at(other)] <= most_bytes;
      const bool heavier = best == kNone || weight[at(other)] > weight[at(best)] ||
                           (weight[at(other)] == weight[at(best)] && other < best);
      if (small && heavier) best = other;
    }
    for (const UnitId other : touched) weight[at(other)] = 0;
    number[at(u)] = *count;
    if (best != kNone) number[at(best)] = *count;
    ++*count;
  }
  return number;
}

// Makes the division of a level legal and refines it.
Devices refined(const Hypergraph& graph, const Question& question, Devices devices, bool* fits, Cost* cost) {
  if (question.acyclic) make_acyclic(graph, question.machine.num_devices(), &devices);
  Division division(graph, question.machine, question.acyclic);
  division.move_all(devices);
  *fits = make_fit(&division);
  refine(&division);
  *cost = division.cost();
  return division.devices();
}

// Divisions to begin with, over all devices and over those of the first servers alone (1, 2, 4, ...): between servers
// messages may cost more than their devices are worth.
std::vector<Devices> starts_of(const Hypergraph& graph, const Machine& machine) {
  std::vector<std::int32_t> alone(graph.ms.size());
  std::iota(alone.begin(), alone.end(), 0);
  std::vector<int> counts{machine.num_devices()};
  const soap::MachineLinks& links = machine.links();
  for (DeviceId d = 1; d < machine.num_devices(); ++d) {
    const int servers = links.server_of(d);  // whole ones before it
    if (servers > links.server_of(d - 1) && (servers & (servers - 1)) == 0) counts.push_back(d);
  }
  std::vector<Devices> out;
  for (const int devices : counts) {
    const Machine part = machine.first(devices);
    std::int32_t count = 0;
    const std::vector<std::int32_t> clusters = zeroed_clusters(graph, part, &count);
    out.push_back(map_clusters(graph, part, clusters, count));
    out.push_back(map_clusters(graph, part, alone, graph.size()));
    out.push_back(chunks_along_order(graph, part));
  }
  return out;
}

Devices divide_few(const Hypergraph& graph, const Question& question) {
  Devices best;
  bool best_fits = false;
  Cost best_cost;
  for (Devices& start : starts_of(graph, question.machine)) {
    bool fits = false;
    Cost cost;
    Devices devices = refined(graph, question, std::move(start), &fits, &cost);
    if (!best.empty() && (best_fits != fits ? best_fits : !cost.less_than(best_cost))) continue;
    best = std::move(devices);
    best_fits = fits;
    best_cost = cost;
  }
  return best;
}

}  // namespace

Devices multilevel(const Question& question) {
  std::vector<Hypergraph> levels;
  std::vector<std::vector<std::int32_t>> numbers;
  const std::int32_t few = std::max(kFewUnits, kFewPerDevice * question.machine.num_devices());
  const auto coarsest = [&]() -> const Hypergraph& { return levels.empty() ? question.graph : levels.back(); };
  while (coarsest().size() > few) {
    std::int32_t count = 0;
    std::vector<std::int32_t> number = match(coarsest(), question.machine, &count);
    if (count > kLeastShrinking * coarsest().size()) break;
    Hypergraph next = contract(coarsest(), number, count);
    levels.push_back(std::move(next));
    numbers.push_back(std::move(number));
  }
  Devices devices = divide_few(coarsest(), question);
  for (std::size_t level = numbers.size(); level-- > 0;) {
    Devices finer(numbers[level].size());
    for (std::size_t u = 0; u < finer.size(); ++u) finer[u] = devices[at(numbers[level][u])];
    devices = std::move(finer);
    if (level == 0) break;  // the last refinement is everybody's
    bool fits = false;
    Cost cost;
    devices = refined(levels[level - 1], question, std::move(devices), &fits, &cost);
  }
  return devices;
}

}  // namespace automap::heuristics
