// Splits the operands and results of a group's programs over its devices, replicas x width: each is whole, or in parts
// along one dimension over the replicas and along one over the width. Samples are split over the replicas, and with
// ZeRO slots (1), gradients (2) and weights (3) as well; weights with their gradients and slots are split over the
// width as the partition in the plan says.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/graph/graph.h"
#include "common/pipeline/plan_json.h"
#include "plan/programs/program_set.h"
#include "plan/programs/step_cut.h"

namespace automap::programs {

// The splits of one group, by the manifest's names.
struct GroupSplits {
  Json splits = Json::object();      // of what is in parts: {"replicas": dimension, "width": dimension}
  Json not_divided = Json::array();  // what stays whole over the replicas since no dimension of it divides
};

// By group. Throws Error(kData) naming a tensor of the plan's partition that the module does not have.
std::vector<GroupSplits> group_splits(const pipeline::PlanDocument& plan, const std::string& plan_source,
                                      const graph::Graph& graph, const StepCut& cut, const ProgramSet& set);

}  // namespace automap::programs
