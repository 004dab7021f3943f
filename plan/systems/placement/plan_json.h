// Plans of the kind `placement` (`automap.plan/1`, docs/formats/plan.md), and placements read from them or from the
// results of msr-fiddle/dnn-partitioning.
#pragma once

#include <string>
#include <string_view>

#include "common/pipeline/plan_envelope.h"
#include "plan/systems/placement/model_workload.h"
#include "plan/systems/placement/planning.h"

namespace automap::placement {

// The data of a plan file beside the answer.
struct PlanNotes : pipeline::PlanEnvelope {
  std::string algorithm;
  double planning_ms = 0;
  const ModelWorkload* made = nullptr;  // where the workload was made of a model
};

std::string to_json_text(const Workload& workload, const Request& request, const Answer& answer,
                         const PlanNotes& notes);

// "accelerator 2", "CPU core 1": devices as people count them.
std::string device_name(const Workload& workload, int device);

// The placement in a plan of the kind `placement`, or in a document of the authors' ("fpgas" and "cpus", each a list of
// objects with "nodes"), of this workload's nodes by their ids. Throws Error(kData): another kind of plan, a newer
// version, more devices than the workload has, a node that is not there, twice or nowhere.
Placement parse_placement(std::string_view json_text, const std::string& source, const Workload& workload);
Placement load_placement(const std::string& path, const Workload& workload);

}  // namespace automap::placement
