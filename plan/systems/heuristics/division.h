// A division of units among devices and its cost, kept up to date as units move.
//
// The load of a device is the time that it computes, and the time of every message that it sends or receives: a value
// goes once to every other device that reads it, however many tasks read it there (the rule of Tarnawski et al., so
// that plans of both can be compared), in Machine::message_ms. The heuristics minimize J, the largest load; among
// equals the bytes that cross between devices.
//
// Worked case: a (2 ms) makes 100 bytes that b (1 ms) and c (3 ms) read, a on device 0, b and c on device 1, and a
// message of 100 bytes takes 0.5 ms: loads 2.5 and 4.5, J = 4.5, 100 bytes cross.
#pragma once

#include <utility>
#include <vector>

#include "plan/systems/heuristics/hypergraph.h"
#include "plan/systems/heuristics/machine.h"

namespace automap::heuristics {

using Devices = std::vector<DeviceId>;  // by unit; kNone: has no place yet

struct DeviceLoad {
  double compute_ms = 0, message_ms = 0, memory_bytes = 0;
  double total_ms() const { return compute_ms + message_ms; }
};

struct Cost {
  double load_ms = 0;                   // J
  double cut_bytes = 0;                 // over all pairs of (value, device that it is sent to)
  bool less_than(const Cost& o) const;  // beyond rounding
};

// From scratch, of any division; a unit without a place costs nothing, and neither do messages to or from it.
std::vector<DeviceLoad> device_loads(const Hypergraph& graph, const Machine& machine, const Devices& devices);
Cost cost_of(const Hypergraph& graph, const Machine& machine, const Devices& devices);
// max / mean of compute over speed, less 1: 0 is even.
double imbalance(const Machine& machine, const std::vector<DeviceLoad>& loads);
// No way through the forward pass leaves a device and comes back to it.
bool acyclic_between_devices(const Hypergraph& graph, const Devices& devices, int num_devices);

class Division {
 public:
  // `acyclic`: moves that close a way from a device back to itself are not allowed. Both must stay alive.
  Division(const Hypergraph& graph, const Machine& machine, bool acyclic);

  const Hypergraph& graph() const { return graph_; }
  const Machine& machine() const { return machine_; }
  int num_devices() const { return machine_.num_devices(); }
  const Devices& devices() const { return devices_; }
  DeviceId device(UnitId unit) const { return devices_[at(unit)]; }
  const DeviceLoad& load(DeviceId d) const { return loads_[at(d)]; }
  Cost cost() const;

  // Anywhere, allowed or not. `to` may be kNone.
  void move(UnitId unit, DeviceId to);
  void move_all(const Devices& devices);
  // The cost after move(), and the larger load of the two devices. The unit need not have a place.
  struct Outcome {
    Cost cost;
    double own_ms = 0;
  };
  Outcome after(UnitId unit, DeviceId to) const;
  // There is room for it, and no way from a device back to itself.
  bool fits(UnitId unit, DeviceId to) const {
    return loads_[at(to)].memory_bytes + graph_.memory_bytes[at(unit)] <= machine_.capacity_bytes(to);
  }
  bool allowed(UnitId unit, DeviceId to);
  bool fits_everywhere() const;
  // Devices that the unit's nets reach, without its own, those with most bytes first (ties: ascending).
  void neighbours(UnitId unit, std::vector<DeviceId>* out) const;

 private:
  // Calls f(from, to, bytes, sign) for every message that comes (+1) or goes (-1) when the unit moves.
  template <typename F>
  void changes(UnitId unit, DeviceId to, F&& f) const;
  void count_arcs(UnitId unit, DeviceId device, int sign);
  std::int32_t& readers(std::int32_t net, DeviceId d) { return readers_[at(net) * loads_.size() + at(d)]; }
  std::int32_t readers(std::int32_t net, DeviceId d) const { return readers_[at(net) * loads_.size() + at(d)]; }
  bool closes_cycle(UnitId unit, DeviceId to);

  const Hypergraph& graph_;
  const Machine& machine_;
  const bool acyclic_;
  Devices devices_;
  std::vector<DeviceLoad> loads_;
  double cut_bytes_ = 0;
  std::vector<std::int32_t> readers_;       // by net and device: its consumers there
  std::vector<std::int32_t> arcs_;          // by device and device, of `before`; only where acyclic_
  std::vector<std::vector<UnitId>> after_;  // the inverse of Hypergraph::before; only where acyclic_
  mutable std::vector<int> mark_;           // by device
  mutable int epoch_ = 0;
  mutable std::vector<double> overlay_;  // by device
};

}  // namespace automap::heuristics
