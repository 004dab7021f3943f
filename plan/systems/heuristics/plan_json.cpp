#include "plan/systems/heuristics/plan_json.h"

#include <utility>

#include "common/base/json_text.h"
#include "common/pipeline/plan_reader.h"

namespace automap::heuristics {

namespace {

Json tasks_json(const WorkGraph& graph, const Devices& devices) {
  Json out = Json::array();
  for (const Task& task : graph.tasks) {
    out.push_back({{"name", task.name},
                   {"opcode", task.opcode},
                   {"layer", or_null(task.layer)},
                   {"pass", to_string(task.pass)},
                   {"compute_ms", task.ms},
                   {"unit", task.unit + 1},
                   {"device", devices[at(task.unit)] + 1}});
  }
  return out;
}

Json loads_json(const std::vector<DeviceLoad>& loads) {
  Json out = Json::array();
  for (const DeviceLoad& load : loads) {
    out.push_back({{"compute_ms", load.compute_ms},
                   {"message_ms", load.message_ms},
                   {"load_ms", load.total_ms()},
                   {"memory_bytes", whole_bytes(load.memory_bytes)}});
  }
  return out;
}

Json candidates_json(const std::vector<Candidate>& candidates) {
  Json out = Json::array();
  for (const Candidate& c : candidates) {
    out.push_back({{"heuristic", c.name},
                   {"fits", c.fits},
                   {"load_ms", c.cost.load_ms},
                   {"cut_bytes", whole_bytes(c.cost.cut_bytes)},
                   {"unrefined_load_ms", c.rough.load_ms},
                   {"imbalance", c.imbalance},
                   {"step_ms", c.makespan_ms},
                   {"devices_used", c.devices_used},
                   {"planning_ms", c.planning_ms}});
  }
  return out;
}

Json assistants_json(const PlanNotes& notes, DeviceId straggler, double step_ms) {
  if (notes.scenarios.empty()) return nullptr;
  Json scenarios = Json::array();
  for (const ScenarioResult& result : notes.scenarios) {
    scenarios.push_back({{"noise", result.scenario.sigma},
                         {"slow", result.scenario.slow},
                         {"static_ms", result.static_ms},
                         {"assisted_ms", result.assisted_ms},
                         {"oracle_ms", result.oracle_ms},
                         {"feedback_ms", result.feedback_ms},
                         {"moved_tasks", result.moved},
                         {"ratios", result.ratios}});
  }
  return {{"straggler", straggler + 1},
          {"runs", notes.assistants.runs},
          {"theta_ms", notes.assistants.theta_share * step_ms},
          {"tau", notes.assistants.rules.tau},
          {"scenarios", std::move(scenarios)}};
}

}  // namespace

std::string to_json_text(const WorkGraph& graph, const Machine& machine, const Request& request, const Answer& answer,
                         const PlanNotes& notes) {
  const Candidate& best = answer.candidates[answer.best];
  const std::vector<DeviceLoad> loads = device_loads(hypergraph_of(graph), machine, best.devices);
  Json document = {{"cluster", notes.cluster},
                   {"devices", machine.num_devices()},
                   {"planner", best.name},
                   {"training", notes.training},
                   {"acyclic", request.acyclic},
                   {"step_ms", best.makespan_ms},
                   {"load_ms", best.cost.load_ms},
                   {"lower_bound_ms", answer.bound_ms},
                   {"cut_bytes", whole_bytes(best.cost.cut_bytes)},
                   {"imbalance", best.imbalance},
                   {"tasks", tasks_json(graph, best.devices)},
                   {"loads", loads_json(loads)},
                   {"candidates", candidates_json(answer.candidates)},
                   {"assistants", assistants_json(notes, straggler_of(graph, machine, best.devices), best.makespan_ms)},
                   {"planning_ms", notes.planning_ms}};
  return json_text(pipeline::in_envelope(pipeline::kPlanSchema, "heuristics", notes, std::move(document)));
}

}  // namespace automap::heuristics
