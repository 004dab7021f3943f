#include "plan/systems/placement/milp_throughput.h"

#include <algorithm>
#include <numeric>

#include "common/base/numbers.h"

namespace automap::placement {
namespace {

using Terms = std::vector<std::pair<int, double>>;
using Columns = std::vector<std::vector<int>>;  // [unit][device]

double total_bytes(const Units& units) {
  double out = 0;
  for (const Unit& unit : units.units) out += unit.bytes;
  return out;
}

// The heaviest first.
std::vector<int> by_weight(const Units& units) {
  std::vector<int> out(units.units.size());
  std::iota(out.begin(), out.end(), 0);
  std::stable_sort(out.begin(), out.end(),
                   [&](int a, int b) { return units.units[at(a)].accelerator_ms > units.units[at(b)].accelerator_ms; });
  return out;
}

class ThroughputModel {
 public:
  ThroughputModel(const Workload& workload, const Units& units) : workload_(workload), units_(units) {
    longest_ = milp_.add_column(0, Milp::kInfinite, 1);
  }

  // Columns of the units on accelerator d, x[u][d]: its load, and its memory.
  void accelerator(const Columns& x, int d) {
    Terms load = {{longest_, -1}}, bytes;
    for (int u = 0; u < units_.size(); ++u) {
      const Unit& unit = units_.units[at(u)];
      const int column = x[at(u)][at(d)];
      load.emplace_back(column, unit.accelerator_ms);
      bytes.emplace_back(column, unit.bytes);
      if (!unit.on_accelerators || unit.bytes > workload_.memory_bytes) milp_.fix(column, 0);
    }
    for (const Transfer& transfer : units_.transfers) {
      const int in = milp_.add_column(0, 1), out = milp_.add_column(0, 1);
      const int owner = x[at(transfer.owner)][at(d)];
      for (const int r : transfer.readers) {
        const int reader = x[at(r)][at(d)];
        milp_.add_row(0, Milp::kInfinite, {{in, 1}, {reader, -1}, {owner, 1}});
        milp_.add_row(0, Milp::kInfinite, {{out, 1}, {owner, -1}, {reader, 1}});
      }
      load.emplace_back(in, transfer.ms);
      load.emplace_back(out, transfer.ms);
    }
    milp_.add_row(-Milp::kInfinite, 0, load);
    if (total_bytes(units_) > workload_.memory_bytes) {
      milp_.add_row(-Milp::kInfinite, workload_.memory_bytes, bytes);
    }
  }

  void cpu(const Columns& x, int d) {
    Terms load = {{longest_, -1}};
    for (int u = 0; u < units_.size(); ++u) load.emplace_back(x[at(u)][at(d)], units_.units[at(u)].cpu_ms);
    milp_.add_row(-Milp::kInfinite, 0, load);
  }

  MilpPlacement solve(const Terms& start, const MilpLimits& limits, MilpAnswer* answer) {
    *answer = placement::solve(milp_, start, limits);
    MilpPlacement out;
    out.end = answer->end;
    out.bound_ms = std::max(0.0, answer->bound);
    return out;
  }

  Milp& milp() { return milp_; }

 private:
  const Workload& workload_;
  const Units& units_;
  Milp milp_;
  int longest_;
};

MilpPlacement any_placement(const Workload& workload, const Units& units, const std::vector<int>& start,
                            const MilpLimits& limits) {
  ThroughputModel model(workload, units);
  Milp& milp = model.milp();
  const int k = workload.accelerators, devices = workload.devices();
  Columns x(units.units.size());
  for (auto& columns : x) {
    Terms one;
    for (int d = 0; d < devices; ++d) {
      columns.push_back(milp.add_binary());
      one.emplace_back(columns.back(), 1);
    }
    milp.add_row(1, 1, one);
  }
  const std::vector<int> order = by_weight(units);
  for (int rank = 0; rank < units.size(); ++rank) {
    for (int d = rank + 1; d < k; ++d) milp.fix(x[at(order[at(rank)])][at(d)], 0);
  }
  for (int d = 0; d < devices; ++d) d < k ? model.accelerator(x, d) : model.cpu(x, d);
  Terms values;
  if (!start.empty()) {
    // Accelerators in the order of their heaviest units.
    std::vector<int> number(at(devices), -1);
    int next = 0;
    for (const int u : order) {
      int& d = number[at(start[at(u)])];
      if (d < 0) d = start[at(u)] < k ? next++ : start[at(u)];
      for (int other = 0; other < devices; ++other) values.emplace_back(x[at(u)][at(other)], other == d);
    }
  }
  MilpAnswer answer;
  MilpPlacement out = model.solve(values, limits, &answer);
  if (answer.values.empty()) return out;
  out.device_of_unit.emplace(units.units.size(), 0);
  for (int u = 0; u < units.size(); ++u) {
    for (int d = 0; d < devices; ++d) {
      if (answer.values[at(x[at(u)][at(d)])] > 0.5) (*out.device_of_unit)[at(u)] = d;
    }
  }
  return out;
}

// Devices in an order in which the split's edges go forward; they are those that hold something, then the others.
std::vector<int> pipeline_order(const Workload& workload, const Units& units, const std::vector<int>& split) {
  const std::size_t devices = at(workload.devices());
  std::vector<int> waiting(devices, 0), out;
  Columns next(devices);
  for (int u = 0; u < units.size(); ++u) {
    for (const int v : units.next[at(u)]) {
      if (split[at(u)] == split[at(v)]) continue;
      next[at(split[at(u)])].push_back(split[at(v)]);
      ++waiting[at(split[at(v)])];
    }
  }
  for (std::size_t d = 0; d < devices; ++d) {
    if (waiting[d] == 0) out.push_back(static_cast<int>(d));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (const int d : next[at(out[i])]) {
      if (--waiting[at(d)] == 0) out.push_back(d);
    }
  }
  return out;
}

MilpPlacement pipeline(const Workload& workload, const Units& units, const std::vector<int>& start,
                       const MilpLimits& limits) {
  ThroughputModel model(workload, units);
  Milp& milp = model.milp();
  const int stages = workload.devices();
  const bool mixed = workload.accelerators > 0 && workload.cpus > 0;
  // 1 if a stage is a CPU core; a constant where the workload leaves no choice.
  std::vector<int> is_cpu;
  Terms cores;
  for (int s = 0; s < stages; ++s) {
    is_cpu.push_back(milp.add_binary());
    cores.emplace_back(is_cpu.back(), 1);
    if (!mixed) milp.fix(is_cpu.back(), workload.cpus > 0 ? 1 : 0);
  }
  milp.add_row(workload.cpus, workload.cpus, cores);
  Columns on_accelerator(units.units.size()), on_cpu(units.units.size()), reached(units.units.size());
  for (int u = 0; u < units.size(); ++u) {
    for (int s = 0; s < stages; ++s) {
      const int a = milp.add_binary(), c = milp.add_binary();
      if (workload.accelerators == 0) milp.fix(a, 0);
      if (workload.cpus == 0) milp.fix(c, 0);
      const int y = milp.add_column(s + 1 == stages ? 1 : 0, 1);
      Terms step = {{a, 1}, {c, 1}, {y, -1}};
      if (s > 0) step.emplace_back(reached[at(u)].back(), 1);
      milp.add_row(0, 0, step);
      if (mixed) {
        milp.add_row(-Milp::kInfinite, 1, {{a, 1}, {is_cpu[at(s)], 1}});
        milp.add_row(-Milp::kInfinite, 0, {{c, 1}, {is_cpu[at(s)], -1}});
      }
      on_accelerator[at(u)].push_back(a);
      on_cpu[at(u)].push_back(c);
      reached[at(u)].push_back(y);
    }
  }
  for (int u = 0; u < units.size(); ++u) {
    for (const int v : units.next[at(u)]) {
      for (int s = 0; s + 1 < stages; ++s) {
        milp.add_row(0, Milp::kInfinite, {{reached[at(u)][at(s)], 1}, {reached[at(v)][at(s)], -1}});
      }
    }
  }
  for (int s = 0; s < stages; ++s) {
    if (workload.accelerators > 0) model.accelerator(on_accelerator, s);
    if (workload.cpus > 0) model.cpu(on_cpu, s);
  }
  Terms values;
  if (!start.empty()) {
    const std::vector<int> order = pipeline_order(workload, units, start);
    for (int s = 0; s < stages; ++s) {
      const bool cpu = order[at(s)] >= workload.accelerators;
      values.emplace_back(is_cpu[at(s)], cpu);
      for (int u = 0; u < units.size(); ++u) {
        const bool here = start[at(u)] == order[at(s)];
        values.emplace_back(on_accelerator[at(u)][at(s)], here && !cpu);
        values.emplace_back(on_cpu[at(u)][at(s)], here && cpu);
      }
    }
  }
  MilpAnswer answer;
  MilpPlacement out = model.solve(values, limits, &answer);
  if (answer.values.empty()) return out;
  out.device_of_unit.emplace(units.units.size(), 0);
  int accelerators = 0, cpus = workload.accelerators;
  for (int s = 0; s < stages; ++s) {
    const bool cpu = answer.values[at(is_cpu[at(s)])] > 0.5;
    const int device = cpu ? cpus++ : accelerators++;
    for (int u = 0; u < units.size(); ++u) {
      const int column = (cpu ? on_cpu : on_accelerator)[at(u)][at(s)];
      if (answer.values[at(column)] > 0.5) (*out.device_of_unit)[at(u)] = device;
    }
  }
  return out;
}

}  // namespace

MilpPlacement milp_throughput(const Workload& workload, const Units& units, bool contiguous,
                              const std::vector<int>& start, const MilpLimits& limits) {
  return contiguous ? pipeline(workload, units, start, limits) : any_placement(workload, units, start, limits);
}

}  // namespace automap::placement
