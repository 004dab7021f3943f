// Plans of the kinds `operator` and `data` (`automap.plan/1`, docs/formats/plan.md): the inputs that are split and
// their dimensions, the consequences, and the estimated cost.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json_object.h"
#include "common/pipeline/plan_envelope.h"
#include "common/sharding/collectives.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/plan_cost.h"

namespace automap::partition {

struct PlanTensor {
  std::string name, parameter;  // for people; HLO name
  std::string role;             // graph::to_string(InputRole)
  std::string shape;            // "f32[512,2048]"
  int dim = -1;                 // split along; -1: replicated
};

struct PlanResult {
  std::string shape;
  std::string input;  // name of the input whose new value it is; empty: of none
  int dim = -1;       // split along; -1: replicated
};

// A partial sum. XLA's partitioner, which reduces at once, makes one all-reduce for each.
struct PlanSource {
  std::string instruction, layer;
  double bytes = 0;  // of the whole tensor in its own type, which may differ from what the collective moves
  int node = -1;     // of ShardingModel::flow: tells apart what several calls share
};

// After carrying partial sums through linear instructions (sharding::listed_placement).
struct PlanCollective {
  std::string kind, reduction, instruction, layer;
  double bytes = 0,
         times = 1;      // of the whole tensor or border (in a mesh: of the other axis's part), each time; per step
  int partial_sums = 1;  // that it reduces
  bool kept_in_parts = false;       // a reduce-scatter will do (sharding::Collective)
  std::vector<PlanSource> sources;  // those; one may be in several collectives
  int border = 0;                   // of a collective-permute (sharding::Collective)
};

// A tensor that `instruction` reads whole although it is split elsewhere (sharding::Gather).
struct PlanGather {
  std::string instruction, tensor;  // HLO names
  int node = -1, tensor_node = -1;  // of ShardingModel::flow: tells apart what several calls share
  int dim = 0;
  sharding::Gather::Kind kind = sharding::Gather::Kind::kRead;
};

// A sharding of the module's own that a plan takes as given (--keep-shardings), as far as it does.
struct PlanKept {
  std::string tensor;  // input or instruction
  int dim = -1;        // split along; -1: whole, or nothing is kept
  std::string written, left;
};

// A tensor that is moved because of kept shardings.
struct PlanReshard {
  std::string kind, instruction;
  double bytes = 0, times = 1, ms = 0;  // of the whole tensor, each time; per step
};

struct PlanLinkageGroup {
  std::vector<std::pair<std::string, int>> members;  // (tensor name, dimension)
  bool split = false;
  double saved_ms = 0, collective_ms = 0, saved_bytes = 0;
};

struct PartitionAlternative {
  std::string planner;  // "greedy", "enumerate", "replicate", "data parallel"
  int partitioned = 0;
  double step_ms = 0, memory_bytes = 0, collective_bytes = 0, planning_ms = 0;
  double bound = HUGE_VAL;  // of the objective; infinite: none is known
  bool proven = false;
  std::map<std::string, double> statistics = {};  // PartitionAnswer::statistics
  std::optional<double> overlapped_ms = {};       // as the plan's

  double expected_ms() const { return overlapped_ms.value_or(step_ms); }
};

struct PartitionPlan : pipeline::PlanEnvelope {
  std::string kind;  // "operator" or "data"
  std::string cluster, planner, objective;
  int shards = 0;
  bool halos = false;          // windows may exchange borders (sharding::LinkageOptions)
  bool sums_combined = false;  // the written module carries partial sums (sharding::Placement::kCombined)
  // Every entry input, in parameter order; `partition` in the file is {name: dim} of the decided ones (variables or
  // data), `inputs` lists all.
  std::vector<PlanTensor> inputs;
  std::vector<PlanResult> results;   // every leaf of the entry's result, in order
  std::vector<std::string> decided;  // names of the tensors that the search decided
  int partitioned = 0;               // of those, how many are split
  double value = 0, bound = 0;       // of the objective; bound: nothing is better
  bool proven = false, cut_by_time = false;
  CountedCost counted;  // what it takes; what follows is the estimate that the search judged by
  double step_ms = 0, compute_ms = 0, collective_ms = 0, memory_bytes = 0, capacity_bytes = 0, planning_ms = 0;
  double replicated_step_ms = 0;  // nothing split
  // With --overlap: the step with collectives beside compute, where step_ms adds them up; and a lower bound on it over
  // all decisions.
  std::optional<double> overlapped_ms, overlapped_bound_ms;
  int all_reduces = 0, partial_sums = 0;  // after / before carrying through linear instructions
  int all_gathers = 0, all_to_alls = 0, permutes = 0;
  double all_reduce_bytes = 0, all_gather_bytes = 0, all_to_all_bytes = 0;  // per step, of whole tensors
  double permute_bytes = 0;                                                 // per step, of borders
  std::vector<PlanCollective> collectives;
  std::vector<PlanGather> gathers;
  std::vector<PlanKept> kept;
  std::vector<PlanReshard> reshards;  // the longest first
  std::vector<PlanLinkageGroup> groups;
  std::vector<PartitionAlternative> alternatives;

  double expected_ms() const { return overlapped_ms.value_or(step_ms); }
};

// States of the leaves of the entry's result: as they are split. Free ones (gradient buffers set to zero again) are as
// the input whose new value or whose buffer (input_output_alias) they are, so that the next step finds them as this one
// did.
std::vector<sharding::TensorState> result_states(const sharding::ShardingModel& model,
                                                 const sharding::Propagation& decided);

// Describes the consequences of a decision: shards, inputs, results, partitioned (of `decided`, whose entries become
// names of inputs), sums_combined, halos, collectives with their counts and bytes, gathers. `plan->decided` must be
// filled in; everything else is left alone. `shares`: the shares of tensors that the other axis of a mesh leaves, of
// which bytes are counted. Null: all.
void describe_decision(const sharding::ShardingModel& model, const sharding::Propagation& decided, PartitionPlan* plan,
                       const sharding::TensorShares* shares = nullptr);

// Per input of the plan: is it one that the search decided?
std::vector<bool> decided_inputs(const PartitionPlan& plan);
// The tensors of `partition`, in the order of `inputs`.
std::vector<PlanTensor> decided_tensors(const PartitionPlan& plan);

// A tensor stands in `partition` under its name, or under its HLO name when several inputs share the name.
std::string to_json_text(const PartitionPlan& plan);
// Without the counted cost and the estimate, which an axis of a mesh does not have by itself.
Json to_json(const PartitionPlan& plan);
// Only the decision: schema, kind, shards, sums, partition and gathers. A plan by itself.
std::string decision_json_text(const PartitionPlan& plan);
// Throws Error(kData) naming source, key, found and expected. Files of other makers need only "schema", "kind",
// "shards" and "partition"; missing fields are empty, and `inputs` holds the tensors of `partition`.
PartitionPlan parse_partition_plan(std::string_view json_text, const std::string& source);
PartitionPlan read_partition_plan(const Json& json, const std::string& source);

}  // namespace automap::partition
