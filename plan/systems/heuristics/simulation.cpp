#include "plan/systems/heuristics/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/check.h"
#include "common/base/rng.h"
#include "plan/systems/heuristics/engine.h"

namespace automap::heuristics {

namespace {

constexpr std::uint32_t kNoiseStream = 0xa55157;
constexpr double kTwoPi = 6.283185307179586;

// From the end of the step backwards. Behind a task are the next one of its device, and the readers of its values, as
// long after its end as the values took to arrive.
std::vector<double> latest_starts(const WorkGraph& graph, const Machine& machine, const Schedule& schedule) {
  std::map<std::pair<ValueId, DeviceId>, double> took;
  for (const MessageRun& m : schedule.planned.messages)
    took[{m.value, m.to}] = m.end_ms - schedule.planned.tasks[at(graph.values[at(m.value)].producer)].end_ms;
  std::vector<TaskId> next(graph.tasks.size(), kNone), previous = next, free;
  for (const auto& order : schedule.order) {
    for (std::size_t i = 1; i < order.size(); ++i) {
      next[at(order[i - 1])] = order[i];
      previous[at(order[i])] = order[i - 1];
    }
  }
  std::vector<std::size_t> behind(graph.tasks.size());  // that are not done yet
  for (TaskId t = 0; t < graph.size(); ++t) {
    behind[at(t)] = next[at(t)] == kNone ? 0 : 1;
    for (const ValueId v : graph.made[at(t)]) behind[at(t)] += graph.values[at(v)].consumers.size();
    if (behind[at(t)] == 0) free.push_back(t);
  }
  std::vector<double> out(graph.tasks.size(), 0);
  while (!free.empty()) {
    const TaskId t = free.back();
    free.pop_back();
    const DeviceId home = schedule.home[at(t)];
    double end = schedule.planned.makespan_ms;
    if (next[at(t)] != kNone) end = std::min(end, out[at(next[at(t)])]);
    for (const ValueId v : graph.made[at(t)]) {
      for (const TaskId reader : graph.values[at(v)].consumers) {
        const DeviceId to = schedule.home[at(reader)];
        end = std::min(end, out[at(reader)] - (to == home ? 0 : took.at({v, to})));
      }
    }
    out[at(t)] = end - machine.task_ms(graph.tasks[at(t)].ms, home);
    const auto done = [&](TaskId before) {
      if (--behind[at(before)] == 0) free.push_back(before);
    };
    if (previous[at(t)] != kNone) done(previous[at(t)]);
    for (const ValueId v : graph.read[at(t)]) done(graph.values[at(v)].producer);
  }
  return out;
}

}  // namespace

Conditions no_surprise(const WorkGraph& graph, const Machine& machine) {
  return {std::vector<double>(graph.tasks.size(), 1), std::vector<double>(at(machine.num_devices()), 1)};
}

Conditions draw_conditions(const WorkGraph& graph, const Machine& machine, double sigma, DeviceId straggler,
                           double slow, std::uint64_t seed, std::uint64_t run) {
  Conditions out = no_surprise(graph, machine);
  out.slow[at(straggler)] = slow;
  if (sigma == 0) return out;
  Rng rng(seed, kNoiseStream, run);
  for (double& noise : out.noise) {
    const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));  // Box and Muller
    noise = std::exp(sigma * radius * std::cos(kTwoPi * rng.uniform()));
  }
  return out;
}

Schedule plan_schedule(const WorkGraph& graph, const Machine& machine, const Devices& devices) {
  Schedule out;
  std::vector<double> task_ms, message_ms;
  for (const Task& task : graph.tasks) {
    out.home.push_back(devices[at(task.unit)]);
    AM_CHECK(out.home.back() != kNone);
    task_ms.push_back(machine.task_ms(task.ms, out.home.back()));
  }
  for (const Value& value : graph.values) message_ms.push_back(machine.mean_message_ms(value.bytes));
  out.priority = bottom_levels(graph, task_ms, message_ms);
  Engine engine(graph, machine, out, no_surprise(graph, machine), nullptr);
  out.planned = engine.run();
  out.order = engine.begun();
  out.latest_start = latest_starts(graph, machine, out);
  return out;
}

Execution run_static(const WorkGraph& graph, const Machine& machine, const Schedule& schedule,
                     const Conditions& conditions) {
  return Engine(graph, machine, schedule, conditions, nullptr).run();
}

Execution run_assisted(const WorkGraph& graph, const Machine& machine, const Schedule& schedule,
                       const Conditions& conditions, const AssistantRules& rules) {
  return Engine(graph, machine, schedule, conditions, &rules).run();
}

}  // namespace automap::heuristics
