#include "plan/systems/placement/milp_latency.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "common/base/numbers.h"

namespace automap::placement {
namespace {

using Terms = std::vector<std::pair<int, double>>;
using Columns = std::vector<std::vector<int>>;

class LatencyModel {
 public:
  LatencyModel(const Workload& workload, const Units& units, int pieces, double most_ms)
      : workload_(workload), units_(units), pieces_(pieces), most_ms_(most_ms) {
    unit_of_.resize(workload.nodes.size());
    for (int u = 0; u < units.size(); ++u) {
      for (const int v : units.units[at(u)].nodes) unit_of_[at(v)] = u;
    }
    latency_ = milp_.add_column(0, most_ms, 1);
    for (int v = 0; v < workload.size(); ++v) end_.push_back(milp_.add_column(0, most_ms));
    place_units();
    rank_accelerators();
    read_edges();
    for (int d = 0; d < workload.accelerators; ++d) memory(d);
    for (int slot = 0; slot < slots(); ++slot) run_slot(slot);
    run_cpus();
    for (const int end : end_) milp_.add_row(0, Milp::kInfinite, {{latency_, 1}, {end, -1}});
  }

  MilpPlacement solve(const Placement* known, const MilpLimits& limits) {
    const MilpAnswer answer = placement::solve(milp_, known == nullptr ? Terms() : start_from(*known), limits);
    MilpPlacement out;
    out.end = answer.end;
    out.bound_ms = std::max(0.0, answer.bound);
    if (answer.values.empty()) return out;
    out.device_of_unit.emplace(units_.units.size(), workload_.accelerators);
    out.piece_of_unit.assign(units_.units.size(), 0);
    for (int u = 0; u < units_.size(); ++u) {
      for (int slot = 0; slot < slots(); ++slot) {
        if (answer.values[at(x_[at(u)][at(slot)])] < 0.5) continue;
        (*out.device_of_unit)[at(u)] = slot / pieces_;
        out.piece_of_unit[at(u)] = slot % pieces_;
      }
    }
    return out;
  }

 private:
  int slots() const { return workload_.accelerators * pieces_; }

  // x_[u]: the slots, then the CPU cores.
  void place_units() {
    for (const Unit& unit : units_.units) {
      Terms one;
      std::vector<int> columns;
      for (int slot = 0; slot <= slots(); ++slot) {
        columns.push_back(milp_.add_binary());
        one.emplace_back(columns.back(), 1);
        const bool cpu = slot == slots();
        if (cpu ? workload_.cpus == 0 : !unit.on_accelerators || unit.bytes > workload_.memory_bytes) {
          milp_.fix(columns.back(), 0);
        }
      }
      milp_.add_row(1, 1, one);
      x_.push_back(std::move(columns));
    }
  }

  void rank_accelerators() {
    order_.resize(units_.units.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
      return units_.units[at(a)].accelerator_ms > units_.units[at(b)].accelerator_ms;
    });
    for (int rank = 0; rank < units_.size(); ++rank) {
      for (int slot = (rank + 1) * pieces_; slot < slots(); ++slot) milp_.fix(x_[at(order_[at(rank)])][at(slot)], 0);
    }
  }

  // Units other than its own that read each node.
  void read_edges() {
    readers_.resize(workload_.nodes.size());
    for (const auto& [from, to] : workload_.edges) {
      if (unit_of_[at(from)] != unit_of_[at(to)]) readers_[at(from)].insert(unit_of_[at(to)]);
    }
  }

  void memory(int d) {
    Terms bytes;
    double total = 0;
    for (int u = 0; u < units_.size(); ++u) {
      total += units_.units[at(u)].bytes;
      for (int j = 0; j < pieces_; ++j) bytes.emplace_back(x_[at(u)][at(d * pieces_ + j)], units_.units[at(u)].bytes);
    }
    if (total > workload_.memory_bytes) milp_.add_row(-Milp::kInfinite, workload_.memory_bytes, bytes);
  }

  void run_slot(int slot) {
    const int start = milp_.add_column(0, most_ms_), finish = milp_.add_column(0, most_ms_);
    Terms length = {{finish, 1}, {start, -1}};
    for (int u = 0; u < units_.size(); ++u) {
      length.emplace_back(x_[at(u)][at(slot)], -units_.units[at(u)].accelerator_ms);
    }
    for (int w = 0; w < workload_.size(); ++w) {
      if (readers_[at(w)].empty()) continue;
      const double ms = workload_.nodes[at(w)].transfer_ms;
      const int in = milp_.add_column(0, 1), owner = x_[at(unit_of_[at(w)])][at(slot)];
      const int out = ms > 0 ? milp_.add_column(0, 1) : -1;
      for (const int r : readers_[at(w)]) {
        const int reader = x_[at(r)][at(slot)];
        milp_.add_row(0, Milp::kInfinite, {{in, 1}, {reader, -1}, {owner, 1}});
        if (ms > 0) milp_.add_row(0, Milp::kInfinite, {{out, 1}, {owner, -1}, {reader, 1}});
      }
      milp_.add_row(-most_ms_, Milp::kInfinite, {{start, 1}, {end_[at(w)], -1}, {in, -most_ms_}});
      if (ms > 0) {
        length.emplace_back(in, -ms);
        length.emplace_back(out, -ms);
      }
    }
    milp_.add_row(0, 0, length);
    for (int v = 0; v < workload_.size(); ++v) {
      milp_.add_row(-most_ms_, Milp::kInfinite,
                    {{end_[at(v)], 1}, {finish, -1}, {x_[at(unit_of_[at(v)])][at(slot)], -most_ms_}});
    }
    if (slot % pieces_ > 0) milp_.add_row(0, Milp::kInfinite, {{start, 1}, {last_finish_, -1}});
    last_finish_ = finish;
  }

  void run_cpus() {
    for (int v = 0; v < workload_.size(); ++v) {
      const int on_cpu = x_[at(unit_of_[at(v)])].back();
      milp_.add_row(0, Milp::kInfinite, {{end_[at(v)], 1}, {on_cpu, -workload_.nodes[at(v)].cpu_ms}});
    }
    for (const auto& [from, to] : workload_.edges) {
      const int on_cpu = x_[at(unit_of_[at(to)])].back();
      milp_.add_row(0, Milp::kInfinite,
                    {{end_[at(to)], 1}, {end_[at(from)], -1}, {on_cpu, -workload_.nodes[at(to)].cpu_ms}});
    }
  }

  Terms start_from(const Placement& known) const {
    std::vector<int> number(at(workload_.devices()), -1);
    int next = 0;
    Terms out;
    for (const int u : order_) {
      const int node = units_.units[at(u)].nodes.front(), device = known.device[at(node)];
      int slot = slots();
      if (device < workload_.accelerators) {
        int& d = number[at(device)];
        if (d < 0) d = next++;
        slot = d * pieces_ + (known.piece.empty() ? 0 : known.piece[at(node)]);
      }
      for (int s = 0; s <= slots(); ++s) out.emplace_back(x_[at(u)][at(s)], s == slot);
    }
    return out;
  }

  const Workload& workload_;
  const Units& units_;
  const int pieces_;
  const double most_ms_;
  Milp milp_;
  int latency_, last_finish_ = -1;
  std::vector<int> unit_of_, end_, order_;
  Columns x_;
  std::vector<std::set<int>> readers_;
};

}  // namespace

MilpPlacement milp_latency(const Workload& workload, const Units& units, int pieces, const Placement* known,
                           double most_ms, const MilpLimits& limits) {
  return LatencyModel(workload, units, pieces, most_ms).solve(known, limits);
}

}  // namespace automap::placement
