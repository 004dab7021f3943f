#include "plan/heuristics/simulation.h"

#include <cmath>

#include "common/base/check.h"
#include "common/base/rng.h"
#include "plan/heuristics/engine.h"

namespace automap::heuristics {

namespace {

constexpr std::uint32_t kNoiseStream = 0xa55157;
constexpr double kTwoPi = 6.283185307179586;

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
