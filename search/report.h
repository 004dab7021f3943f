// The texts and documents that automap-search prints.
#pragma once

#include <string>
#include <vector>

#include "common/sharding/collectives.h"
#include "common/sharding/explain.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/mesh_planner.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/planner.h"

namespace automap::search {

// The reason why a plan's time and memory are the search's estimate alone.
std::string not_counted_text(const partition::CountedCost& counted);

// opp and adp: the plan, the split tensors and why the rest is not split, and the results of other ways.
std::string plan_report(const sharding::ShardingModel& model, const partition::Planned& planned);

// opp --mesh: both axes, the tensors stored in parts, and the results of other meshes.
std::string mesh_report(const partition::PlannedMesh& planned);

// One line for a decision that somebody else made: "111 of 188 variables split over 8 devices; ...".
// `shares` as for describe_decision.
std::string decision_line(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                          const partition::PartitionPlan& plan, const sharding::TensorShares* shares = nullptr);

// The consequences of a partial decision.
struct Completion {
  enum class Outcome { kComplete, kStuck, kConflict };
  Outcome outcome = Outcome::kComplete;
  struct Decision {
    std::string text;        // as given: "params/wte=0"
    sharding::TensorDim at;  // dim -1: kept whole
    bool repeated = false;   // an earlier decision had settled it so
  };
  std::vector<Decision> decisions;     // those that were taken
  sharding::Explanation conflict;      // kConflict: why the next one was not
  std::string refused;                 // kConflict: that one
  std::vector<sharding::Stuck> stuck;  // kStuck
};
const char* to_string(Completion::Outcome outcome);  // "complete"

std::string completion_report(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                              const Completion& completion);
// The same with every step (docs/search.md): schema automap.propagation/1.
std::string completion_json(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                            const Completion& completion);

// explain without a tensor: the split tensors, the groups, and every collective. `shares`, where the plan is one axis
// of a mesh: the shares of tensors that the other axis leaves.
std::string overview_report(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                            const partition::PartitionPlan& plan, const sharding::TensorShares* shares = nullptr);
// One tensor: why it is split, whole or reduced, and the collectives it takes part in.
std::string tensor_report(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                          sharding::NodeId node, const sharding::TensorShares* shares = nullptr);
// Schema automap.explanation/1; without nodes the overview alone.
std::string explanation_json(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                             const partition::PartitionPlan& plan, const std::vector<sharding::NodeId>& nodes,
                             const sharding::TensorShares* shares = nullptr);

}  // namespace automap::search
