// Plans of the kind `heuristics` (automap.plan/1, docs/formats/plan.md): a device for every task of a step.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/plan_envelope.h"
#include "plan/systems/heuristics/planning.h"

namespace automap::heuristics {

// The data of a plan file beside the answer.
struct PlanNotes : pipeline::PlanEnvelope {
  std::string cluster;
  bool training = false;
  AssistantRequest assistants;
  std::vector<ScenarioResult> scenarios;  // empty: nobody asked
  double planning_ms = 0;
};

std::string to_json_text(const WorkGraph& graph, const Machine& machine, const Request& request, const Answer& answer,
                         const PlanNotes& notes);

}  // namespace automap::heuristics
