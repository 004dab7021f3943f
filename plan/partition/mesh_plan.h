// Plans of the kind `mesh` (`automap.plan/1`, docs/formats/plan.md): a plan of one axis for each axis of a mesh.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/partition_plan.h"

namespace automap::partition {

// Another mesh over the same devices or fewer.
struct MeshAlternative {
  int data = 1, model = 1, zero = 0;
  bool fits = true;
  // By the one cost, and then with a simulated step; else as the search estimates it.
  double step_ms = 0, memory_bytes = 0;
  std::optional<double> simulated_step_ms;
  std::optional<double> overlapped_ms;  // of an estimate, as the plan's

  double expected_ms() const { return simulated_step_ms ? *simulated_step_ms : overlapped_ms.value_or(step_ms); }
};

struct MeshPlan : pipeline::PlanEnvelope {
  std::string cluster;
  PartitionPlan data_axis;   // kind "data"; its shards are the axis's devices
  PartitionPlan model_axis;  // kind "operator"
  int zero = 0;              // 0, 2, 3
  CountedCost counted;       // what it takes; what follows is the estimate that the search judged by
  double step_ms = 0, compute_ms = 0, data_collective_ms = 0, model_collective_ms = 0;
  double memory_bytes = 0, capacity_bytes = 0, planning_ms = 0;
  double replicated_step_ms = 0;  // nothing split
  // As PartitionPlan; the bound is of the meshes that were asked for.
  std::optional<double> overlapped_ms, overlapped_bound_ms;
  std::vector<MeshAlternative> alternatives;

  double expected_ms() const { return overlapped_ms.value_or(step_ms); }
  int devices() const { return data_axis.shards * model_axis.shards; }
};

// "--mesh data=4,model=2 --zero 3": the options that ask for it.
std::string mesh_text(int data, int model, int zero);
// The first `most` of its alternatives, a row each: mesh, level of ZeRO, step, memory, and whether it is this plan.
FittedTable meshes_table(const MeshPlan& plan, std::size_t most);

std::string to_json_text(const MeshPlan& plan);
// Throws Error(kData) naming source, key, found and expected: also axes whose devices do not multiply to `shards`.
MeshPlan parse_mesh_plan(std::string_view json_text, const std::string& source);

// A plan of one axis or of two. Reads `path` ("-" = standard input), gzipped or not. Throws as the parsers do.
struct PlanFile {
  std::optional<PartitionPlan> one;
  std::optional<MeshPlan> mesh;
  int devices() const { return one ? one->shards : mesh->devices(); }
  const std::string& cluster() const { return one ? one->cluster : mesh->cluster; }
  const std::map<std::string, std::string>& provenance() const { return one ? one->provenance : mesh->provenance; }
};
PlanFile load_plan_file(const std::string& path);

// The plan's axes set on a model, as apply_plan() does for one. Throws as that does, and Error(kInfeasible) when both
// axes split a dimension that their devices do not divide together.
struct AppliedMesh {
  sharding::ShardingModel data, model;
  sharding::Propagation data_decided, model_decided;
};
AppliedMesh apply_mesh_plan(const sharding::ShardingModel& model, const MeshPlan& plan,
                            const std::string& model_sha256 = "", std::vector<std::string>* warnings = nullptr);

// "dimension 1 of params['w'] f32[64,10] is split by both axes, into 4 x 2 parts, which do not divide 10"; empty: none
// is.
std::string indivisible_by_both(const sharding::ShardingModel& model, const sharding::Propagation& data,
                                const sharding::Propagation& operators);

}  // namespace automap::partition
