#include <algorithm>

#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "plan/systems/placement/baselines.h"

namespace automap::placement {
namespace {

constexpr std::uint32_t kRestartStream = 0x4c4f4341;
constexpr std::int64_t kMoveUnits = 100;  // of work, per move looked at

// Placements are compared by the bytes that do not fit, then by the largest load.
struct Value {
  double bytes_over = 0, load_ms = 0;
  bool better_than(const Value& other, double least) const {
    if (bytes_over != other.bytes_over) return bytes_over < other.bytes_over;
    return load_ms < other.load_ms - least;
  }
};

// One placement and the costs after a move.
class Moves {
 public:
  Moves(const Workload& workload, const Units& units, std::vector<int> device)
      : workload_(workload),
        units_(units),
        device_(std::move(device)),
        load_(at(workload.devices()), 0),
        bytes_(at(workload.devices()), 0),
        members_(units.transfers.size() * at(workload.devices()), 0) {
    for (int u = 0; u < units.size(); ++u) add(u, 1);
    for (std::size_t t = 0; t < units.transfers.size(); ++t) {
      const Transfer& transfer = units.transfers[t];
      for (const int r : transfer.readers) ++members(t, device_[at(r)]);
      for (int d = 0; d < workload.accelerators; ++d) load_[at(d)] += paid(t, d) * transfer.ms;
    }
  }

  const std::vector<int>& device() const { return device_; }

  Value value() const {
    Value out;
    for (int d = 0; d < workload_.devices(); ++d) {
      out.load_ms = std::max(out.load_ms, load_[at(d)]);
      if (d < workload_.accelerators) out.bytes_over += std::max(0.0, bytes_[at(d)] - workload_.memory_bytes);
    }
    return out;
  }

  void move(int u, int to) {
    const int from = device_[at(u)];
    for (const int t : units_.transfers_of[at(u)]) pay(at(t), from, to, -1);
    add(u, -1);
    for (const int t : units_.transfers_of[at(u)]) {
      if (units_.transfers[at(t)].owner == u) continue;
      --members(at(t), from);
      ++members(at(t), to);
    }
    device_[at(u)] = to;
    add(u, 1);
    for (const int t : units_.transfers_of[at(u)]) pay(at(t), from, to, 1);
  }

 private:
  int& members(std::size_t t, int d) { return members_[t * at(workload_.devices()) + at(d)]; }
  int paid(std::size_t t, int d) {
    const Transfer& transfer = units_.transfers[t];
    const int here = members(t, d);
    return device_[at(transfer.owner)] == d ? here < static_cast<int>(transfer.readers.size()) : here > 0;
  }
  void pay(std::size_t t, int from, int to, int sign) {
    for (const int d : {from, to}) {
      if (d < workload_.accelerators) load_[at(d)] += sign * paid(t, d) * units_.transfers[t].ms;
    }
  }
  void add(int u, int sign) {
    const Unit& unit = units_.units[at(u)];
    const int d = device_[at(u)];
    load_[at(d)] += sign * (d < workload_.accelerators ? unit.accelerator_ms : unit.cpu_ms);
    bytes_[at(d)] += sign * unit.bytes;
  }

  const Workload& workload_;
  const Units& units_;
  std::vector<int> device_;
  std::vector<double> load_, bytes_;
  std::vector<int> members_;  // readers of transfer t on device d
};

// To the nearest placement that no move makes better.
void descend(const Workload& workload, const Units& units, Moves* moves, Work* work) {
  while (!work->over()) {
    Value best = moves->value();
    double least = kLeastGain;
    int unit = -1, device = -1;
    for (int u = 0; u < units.size(); ++u) {
      if (!units.units[at(u)].on_accelerators) continue;
      const int from = moves->device()[at(u)];
      for (int d = 0; d < workload.accelerators; ++d) {
        if (d == from) continue;
        work->spend(kMoveUnits);
        moves->move(u, d);
        const Value value = moves->value();
        moves->move(u, from);
        if (!value.better_than(best, least)) continue;
        best = value;
        least = 0;
        unit = u;
        device = d;
      }
    }
    if (unit < 0) return;
    moves->move(unit, device);
  }
}

}  // namespace

std::optional<Split> local_search(const Workload& workload, const Units& units, int restarts, std::uint64_t seed,
                                  Work* work) {
  if (workload.accelerators == 0) return std::nullopt;
  std::optional<Split> best;
  for (int restart = 0; restart < restarts && !work->over(); ++restart) {
    Rng rng(seed, kRestartStream, static_cast<std::uint64_t>(restart));
    std::vector<int> device;
    for (const Unit& unit : units.units) {
      const int random = static_cast<int>(rng.below(static_cast<std::uint64_t>(workload.accelerators)));
      if (!unit.on_accelerators && workload.cpus == 0) return std::nullopt;
      device.push_back(unit.on_accelerators ? random : workload.accelerators);
    }
    Moves moves(workload, units, std::move(device));
    descend(workload, units, &moves, work);
    const Placement placement = placement_of(workload, units, moves.device());
    if (!why_not(workload, placement).empty()) continue;
    // From the graph itself: no rounding of the moves.
    const double load = max_load_ms(workload, placement);
    if (!best || load < best->max_load_ms) best = Split{load, moves.device()};
  }
  return best;
}

}  // namespace automap::placement
