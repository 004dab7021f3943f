#include "plan/systems/heuristics/division.h"

#include <algorithm>

#include "common/base/check.h"

namespace automap::heuristics {

namespace {

constexpr double kRounding = 1e-9;

// True if a graph of few vertices, given as counts by (from, to), has a cycle.
bool has_cycle(const std::vector<std::int32_t>& arcs, std::size_t n) {
  std::vector<int> waits(n, 0);
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) waits[b] += arcs[a * n + b] > 0;
  }
  std::vector<std::size_t> ready;
  for (std::size_t b = 0; b < n; ++b) {
    if (waits[b] == 0) ready.push_back(b);
  }
  std::size_t done = 0;
  for (; !ready.empty(); ++done) {
    const std::size_t a = ready.back();
    ready.pop_back();
    for (std::size_t b = 0; b < n; ++b) {
      if (arcs[a * n + b] > 0 && --waits[b] == 0) ready.push_back(b);
    }
  }
  return done < n;
}

}  // namespace

bool Cost::less_than(const Cost& o) const {
  if (load_ms < o.load_ms * (1 - kRounding)) return true;
  return load_ms <= o.load_ms * (1 + kRounding) && cut_bytes < o.cut_bytes;
}

std::vector<DeviceLoad> device_loads(const Hypergraph& graph, const Machine& machine, const Devices& devices) {
  std::vector<DeviceLoad> out(static_cast<std::size_t>(machine.num_devices()));
  for (UnitId u = 0; u < graph.size(); ++u) {
    if (devices[at(u)] == kNone) continue;
    DeviceLoad& load = out[at(devices[at(u)])];
    load.compute_ms += machine.task_ms(graph.ms[at(u)], devices[at(u)]);
    load.memory_bytes += graph.memory_bytes[at(u)];
  }
  for (const Net& net : graph.nets) {
    const DeviceId home = devices[at(net.producer)];
    if (home == kNone) continue;
    std::vector<DeviceId> to;
    for (const UnitId consumer : net.consumers) to.push_back(devices[at(consumer)]);
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    for (const DeviceId d : to) {
      if (d == kNone || d == home) continue;
      out[at(home)].message_ms += machine.message_ms(home, d, net.bytes);
      out[at(d)].message_ms += machine.message_ms(home, d, net.bytes);
    }
  }
  return out;
}

Cost cost_of(const Hypergraph& graph, const Machine& machine, const Devices& devices) {
  Cost out;
  for (const DeviceLoad& load : device_loads(graph, machine, devices))
    out.load_ms = std::max(out.load_ms, load.total_ms());
  for (const Net& net : graph.nets) {
    const DeviceId home = devices[at(net.producer)];
    if (home == kNone) continue;
    std::vector<DeviceId> to{home, kNone};
    for (const UnitId consumer : net.consumers) {
      const DeviceId d = devices[at(consumer)];
      if (std::find(to.begin(), to.end(), d) != to.end()) continue;
      to.push_back(d);
      out.cut_bytes += net.bytes;
    }
  }
  return out;
}

double imbalance(const Machine& machine, const std::vector<DeviceLoad>& loads) {
  double most = 0, work = 0;
  for (std::size_t d = 0; d < loads.size(); ++d) {
    most = std::max(most, loads[d].compute_ms);
    work += loads[d].compute_ms * machine.speed(static_cast<DeviceId>(d));
  }
  return work > 0 ? most * machine.total_speed() / work - 1 : 0;
}

bool acyclic_between_devices(const Hypergraph& graph, const Devices& devices, int num_devices) {
  const auto n = static_cast<std::size_t>(num_devices);
  std::vector<std::int32_t> arcs(n * n, 0);
  for (UnitId u = 0; u < graph.size(); ++u) {
    for (const UnitId next : graph.before[at(u)]) {
      const DeviceId a = devices[at(u)], b = devices[at(next)];
      if (a != kNone && b != kNone && a != b) arcs[at(a) * n + at(b)] = 1;
    }
  }
  return !has_cycle(arcs, n);
}

Division::Division(const Hypergraph& graph, const Machine& machine, bool acyclic)
    : graph_(graph),
      machine_(machine),
      acyclic_(acyclic),
      devices_(graph.ms.size(), kNone),
      loads_(static_cast<std::size_t>(machine.num_devices())),
      readers_(graph.nets.size() * loads_.size(), 0),
      mark_(loads_.size(), 0),
      overlay_(loads_.size(), 0) {
  if (!acyclic_) return;
  arcs_.assign(loads_.size() * loads_.size(), 0);
  after_.resize(graph.ms.size());
  for (UnitId u = 0; u < graph.size(); ++u) {
    for (const UnitId next : graph.before[at(u)]) after_[at(next)].push_back(u);
  }
}

Cost Division::cost() const {
  Cost out;
  out.cut_bytes = cut_bytes_;
  for (const DeviceLoad& load : loads_) out.load_ms = std::max(out.load_ms, load.total_ms());
  return out;
}

template <typename F>
void Division::changes(UnitId unit, DeviceId to, F&& f) const {
  const DeviceId from = devices_[at(unit)];
  for (const std::int32_t n : graph_.read[at(unit)]) {
    const Net& net = graph_.nets[at(n)];
    const DeviceId home = devices_[at(net.producer)];
    if (home == kNone) continue;
    if (from != kNone && from != home && readers(n, from) == 1) f(home, from, net.bytes, -1);
    if (to != kNone && to != home && readers(n, to) == 0) f(home, to, net.bytes, 1);
  }
  for (const std::int32_t n : graph_.made[at(unit)]) {
    const Net& net = graph_.nets[at(n)];
    ++epoch_;
    for (const UnitId consumer : net.consumers) {
      const DeviceId d = devices_[at(consumer)];
      if (d == kNone || mark_[at(d)] == epoch_) continue;
      mark_[at(d)] = epoch_;
      if (from != kNone && from != d) f(from, d, net.bytes, -1);
      if (to != kNone && to != d) f(to, d, net.bytes, 1);
    }
  }
}

void Division::move(UnitId unit, DeviceId to) {
  const DeviceId from = devices_[at(unit)];
  if (from == to) return;
  changes(unit, to, [&](DeviceId a, DeviceId b, double bytes, int sign) {
    const double ms = sign * machine_.message_ms(a, b, bytes);
    loads_[at(a)].message_ms += ms;
    loads_[at(b)].message_ms += ms;
    cut_bytes_ += sign * bytes;
  });
  for (const std::int32_t n : graph_.read[at(unit)]) {
    if (from != kNone) --readers(n, from);
    if (to != kNone) ++readers(n, to);
  }
  const double ms = graph_.ms[at(unit)], bytes = graph_.memory_bytes[at(unit)];
  if (from != kNone) {
    loads_[at(from)].compute_ms -= machine_.task_ms(ms, from);
    loads_[at(from)].memory_bytes -= bytes;
    if (acyclic_) count_arcs(unit, from, -1);
  }
  devices_[at(unit)] = to;
  if (to != kNone) {
    loads_[at(to)].compute_ms += machine_.task_ms(ms, to);
    loads_[at(to)].memory_bytes += bytes;
    if (acyclic_) count_arcs(unit, to, 1);
  }
}

void Division::move_all(const Devices& devices) {
  AM_CHECK(devices.size() == devices_.size());
  for (UnitId u = 0; u < graph_.size(); ++u) move(u, devices[at(u)]);
}

void Division::count_arcs(UnitId unit, DeviceId device, int sign) {
  const std::size_t n = loads_.size();
  for (const UnitId next : graph_.before[at(unit)]) {
    const DeviceId b = devices_[at(next)];
    if (b != kNone && b != device) arcs_[at(device) * n + at(b)] += sign;
  }
  for (const UnitId last : after_[at(unit)]) {
    const DeviceId a = devices_[at(last)];
    if (a != kNone && a != device) arcs_[at(a) * n + at(device)] += sign;
  }
}

Division::Outcome Division::after(UnitId unit, DeviceId to) const {
  const DeviceId from = devices_[at(unit)];
  Outcome out;
  out.cost.cut_bytes = cut_bytes_;
  if (from == to) {
    out.cost = cost();
    if (to != kNone) out.own_ms = loads_[at(to)].total_ms();
    return out;
  }
  std::fill(overlay_.begin(), overlay_.end(), 0.0);
  changes(unit, to, [&](DeviceId a, DeviceId b, double bytes, int sign) {
    const double ms = sign * machine_.message_ms(a, b, bytes);
    overlay_[at(a)] += ms;
    overlay_[at(b)] += ms;
    out.cost.cut_bytes += sign * bytes;
  });
  if (from != kNone) overlay_[at(from)] -= machine_.task_ms(graph_.ms[at(unit)], from);
  if (to != kNone) overlay_[at(to)] += machine_.task_ms(graph_.ms[at(unit)], to);
  for (std::size_t d = 0; d < loads_.size(); ++d)
    out.cost.load_ms = std::max(out.cost.load_ms, loads_[d].total_ms() + overlay_[d]);
  for (const DeviceId d : {from, to}) {
    if (d != kNone) out.own_ms = std::max(out.own_ms, loads_[at(d)].total_ms() + overlay_[at(d)]);
  }
  return out;
}

bool Division::allowed(UnitId unit, DeviceId to) {
  return fits(unit, to) && (!acyclic_ || !closes_cycle(unit, to));
}

bool Division::closes_cycle(UnitId unit, DeviceId to) {
  const DeviceId from = devices_[at(unit)];
  if (from != kNone) count_arcs(unit, from, -1);
  devices_[at(unit)] = to;
  count_arcs(unit, to, 1);
  const bool out = has_cycle(arcs_, loads_.size());
  count_arcs(unit, to, -1);
  devices_[at(unit)] = from;
  if (from != kNone) count_arcs(unit, from, 1);
  return out;
}

bool Division::fits_everywhere() const {
  for (DeviceId d = 0; d < num_devices(); ++d) {
    if (loads_[at(d)].memory_bytes > machine_.capacity_bytes(d)) return false;
  }
  return true;
}

void Division::neighbours(UnitId unit, std::vector<DeviceId>* out) const {
  out->clear();
  ++epoch_;
  const auto add = [&](UnitId u, double bytes) {
    const DeviceId d = devices_[at(u)];
    if (d == kNone || d == devices_[at(unit)]) return;
    if (mark_[at(d)] != epoch_) {
      mark_[at(d)] = epoch_;
      overlay_[at(d)] = 0;
      out->push_back(d);
    }
    overlay_[at(d)] += bytes;
  };
  const auto add_readers = [&](const Net& net) {
    if (net.consumers.size() > kManyReaders) return;
    for (const UnitId u : net.consumers) add(u, net.bytes);
  };
  for (const std::int32_t n : graph_.read[at(unit)]) {
    add(graph_.nets[at(n)].producer, graph_.nets[at(n)].bytes);
    add_readers(graph_.nets[at(n)]);
  }
  for (const std::int32_t n : graph_.made[at(unit)]) add_readers(graph_.nets[at(n)]);
  std::sort(out->begin(), out->end(), [&](DeviceId a, DeviceId b) {
    return overlay_[at(a)] != overlay_[at(b)] ? overlay_[at(a)] > overlay_[at(b)] : a < b;
  });
}

}  // namespace automap::heuristics
