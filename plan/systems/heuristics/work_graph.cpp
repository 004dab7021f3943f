#include "plan/systems/heuristics/work_graph.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/base/printable.h"

namespace automap::heuristics {

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::kData, message, "a graph has tasks in topological order with times and bytes of at least 0");
}

bool is_amount(double x) {
  return std::isfinite(x) && x >= 0;
}

}  // namespace

const char* to_string(Pass pass) {
  switch (pass) {
    case Pass::kState: return "state";
    case Pass::kForward: return "forward";
    case Pass::kBackward: return "backward";
    case Pass::kUpdate: return "update";
    case Pass::kOther: return "other";
  }
  return "";
}

double WorkGraph::total_ms() const {
  double out = 0;
  for (const Task& task : tasks) out += task.ms;
  return out;
}

double WorkGraph::memory_bytes() const {
  double out = 0;
  for (const Task& task : tasks) out += task.memory_bytes;
  return out;
}

void WorkGraph::link() {
  if (tasks.empty()) refuse("the graph has no task");
  std::vector<UnitId> number;
  tasks_of_unit.clear();
  for (TaskId t = 0; t < size(); ++t) {
    Task& task = tasks[at(t)];
    if (!is_amount(task.ms) || !is_amount(task.memory_bytes) || task.unit < 0 || task.unit > size()) {
      refuse("task " + std::to_string(t) + " (" + printable(task.name) + "): its time, memory or unit is no amount");
    }
    if (at(task.unit) >= number.size()) number.resize(at(task.unit) + 1, kNone);
    UnitId& unit = number[at(task.unit)];
    if (unit == kNone) {
      unit = units();
      tasks_of_unit.emplace_back();
    }
    task.unit = unit;
    tasks_of_unit[at(unit)].push_back(t);
  }
  made.assign(tasks.size(), {});
  read.assign(tasks.size(), {});
  for (std::size_t v = 0; v < values.size(); ++v) {
    const Value& value = values[v];
    const std::string name = "value " + std::to_string(v);
    if (value.producer < 0 || value.producer >= size()) refuse(name + ": its producer is no task");
    if (!is_amount(value.bytes)) refuse(name + ": its bytes are no amount");
    if (value.consumers.empty()) refuse(name + ": nobody reads it");
    TaskId last = value.producer;
    for (const TaskId consumer : value.consumers) {
      if (consumer <= last || consumer >= size()) {
        refuse(name + ": task " + std::to_string(consumer) +
               " reads it, but does not stand behind its producer and the readers before: a cycle, or named twice");
      }
      last = consumer;
      read[at(consumer)].push_back(static_cast<ValueId>(v));
    }
    made[at(value.producer)].push_back(static_cast<ValueId>(v));
  }
}

std::vector<double> bottom_levels(const WorkGraph& graph, const std::vector<double>& task_ms,
                                  const std::vector<double>& message_ms) {
  std::vector<double> out(graph.tasks.size(), 0);
  for (TaskId t = graph.size() - 1; t >= 0; --t) {
    double after = 0;
    for (const ValueId v : graph.made[at(t)]) {
      const double message = message_ms.empty() ? 0 : message_ms[at(v)];
      for (const TaskId consumer : graph.values[at(v)].consumers) after = std::max(after, message + out[at(consumer)]);
    }
    out[at(t)] = task_ms[at(t)] + after;
  }
  return out;
}

}  // namespace automap::heuristics
