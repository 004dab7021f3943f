// H4: list scheduling (HEFT: Topcuoglu, Hariri and Wu), tasks into the gaps of devices.
#include <algorithm>
#include <limits>
#include <numeric>

#include "plan/systems/heuristics/heuristics.h"

namespace automap::heuristics {

namespace {

struct Slot {
  double start = 0, end = 0;
};

class ListSchedule {
 public:
  explicit ListSchedule(const Question& question)
      : q_(question),
        g_(question.work),
        slots_(at(question.machine.num_devices())),
        memory_(slots_.size(), 0),
        end_(g_.tasks.size(), 0),
        out_(at(g_.units()), kNone) {}

  Devices run() {
    const double mean_speed = q_.machine.total_speed() / q_.machine.num_devices();
    std::vector<double> task_ms, message_ms;
    for (const Task& task : g_.tasks) task_ms.push_back(task.ms / mean_speed);
    for (const Value& value : g_.values) message_ms.push_back(q_.machine.mean_message_ms(value.bytes));
    const std::vector<double> rank = bottom_levels(g_, task_ms, message_ms);
    std::vector<TaskId> order(g_.tasks.size());
    std::iota(order.begin(), order.end(), 0);
    // A producer's rank is at least its consumers', and its number is less: producers come first.
    std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) { return rank[at(a)] > rank[at(b)]; });
    for (const TaskId t : order) place(t);
    return std::move(out_);
  }

 private:
  void place(TaskId t) {
    const UnitId unit = g_.tasks[at(t)].unit;
    DeviceId best = out_[at(unit)];
    if (best == kNone && waits(t)) return;
    double start = best == kNone ? 0 : earliest(t, best);
    if (best == kNone) {
      double end = std::numeric_limits<double>::infinity();
      for (const bool with_room : {true, false}) {
        for (DeviceId d = 0; d < q_.machine.num_devices(); ++d) {
          const double bytes = memory_[at(d)] + q_.graph.memory_bytes[at(unit)];
          if (with_room && bytes > q_.machine.capacity_bytes(d)) continue;
          const double begins = earliest(t, d), ends = begins + q_.machine.task_ms(g_.tasks[at(t)].ms, d);
          if (ends >= end) continue;
          best = d;
          start = begins;
          end = ends;
        }
        if (best != kNone) break;
      }
      out_[at(unit)] = best;
      memory_[at(best)] += q_.graph.memory_bytes[at(unit)];
      settle_waiting(t, best);
    }
    take(t, best, start);
  }

  // A state takes no time, so that every device ends it first: it goes where the first task that reads it goes.
  bool waits(TaskId t) const {
    return g_.tasks[at(t)].pass == Pass::kState && g_.tasks[at(t)].ms == 0 && !g_.made[at(t)].empty();
  }

  // The states that the task reads and that have waited for it.
  void settle_waiting(TaskId t, DeviceId d) {
    for (const ValueId v : g_.read[at(t)]) {
      const TaskId producer = g_.values[at(v)].producer;
      const UnitId unit = g_.tasks[at(producer)].unit;
      const double bytes = memory_[at(d)] + q_.graph.memory_bytes[at(unit)];
      if (out_[at(unit)] != kNone || bytes > q_.machine.capacity_bytes(d)) continue;
      out_[at(unit)] = d;
      memory_[at(d)] = bytes;
    }
  }

  // When the task could begin there.
  double earliest(TaskId t, DeviceId d) const {
    double ready = 0;
    for (const ValueId v : g_.read[at(t)]) {
      const TaskId producer = g_.values[at(v)].producer;
      const DeviceId home = out_[at(g_.tasks[at(producer)].unit)];
      if (home == kNone) continue;
      ready = std::max(ready, end_[at(producer)] + q_.machine.message_ms(home, d, g_.values[at(v)].bytes));
    }
    const double ms = q_.machine.task_ms(g_.tasks[at(t)].ms, d);
    const auto& slots = slots_[at(d)];
    auto it = std::upper_bound(slots.begin(), slots.end(), ready, [](double x, const Slot& s) { return x < s.end; });
    for (; it != slots.end() && it->start < ready + ms; ++it) ready = std::max(ready, it->end);
    return ready;
  }

  // Neighbouring slots become one, so that there are as many as gaps.
  void take(TaskId t, DeviceId d, double start) {
    const double end = start + q_.machine.task_ms(g_.tasks[at(t)].ms, d);
    end_[at(t)] = end;
    if (end <= start) return;
    auto& slots = slots_[at(d)];
    auto it = std::upper_bound(slots.begin(), slots.end(), start, [](double x, const Slot& s) { return x < s.start; });
    if (it != slots.begin() && std::prev(it)->end == start) {
      std::prev(it)->end = end;
      if (it != slots.end() && it->start == end) {
        std::prev(it)->end = it->end;
        slots.erase(it);
      }
    } else if (it != slots.end() && it->start == end) {
      it->start = start;
    } else {
      slots.insert(it, {start, end});
    }
  }

  const Question& q_;
  const WorkGraph& g_;
  std::vector<std::vector<Slot>> slots_;  // by device, ascending
  std::vector<double> memory_;            // by device
  std::vector<double> end_;               // by task
  Devices out_;
};

}  // namespace

Devices list_scheduling(const Question& question) {
  Devices out = ListSchedule(question).run();
  // States that nobody with room read.
  for (DeviceId& d : out) d = std::max(d, 0);
  return out;
}

}  // namespace automap::heuristics
