// The options of automap-search opp and adp, and the requests made from them.
#pragma once

#include <optional>
#include <string>

#include "common/base/options.h"
#include "common/base/work.h"
#include "plan/partition/planner.h"
#include "plan/partition/stored_parts.h"
#include "search/commands.h"
#include "search/emit_files.h"
#include "search/one_cost.h"

namespace automap::search {

// Devices per axis of --mesh.
struct MeshSizes {
  int data = 1, model = 1;
};

struct PlanOptions {
  ModelOptions model;
  std::string shards = "8", mesh, zero = "auto", objective, memory, output, effort = to_string(Effort::kNormal),
              reshard = "auto", sequence_parallel = "auto", sums = "apart";
  PricingOptions pricing;
  CostOptions cost;
  partition::SearchRequest search;
  EmitFiles emit;
  bool keep_shardings = false, json = false;

  void declare(OptionTable* table, bool data);
  // --shards auto: 0. Throws Error(kUsage).
  int num_shards() const;
  // The value of --mesh, "data=4,model=2"; nullopt where it is not given. Throws Error(kUsage).
  std::optional<MeshSizes> mesh_sizes() const;
  // The value of --zero; nullopt: auto.
  std::optional<partition::Zero> zero_level() const;
  partition::PlanningRequest request(bool data, bool objective_asked) const;
  bool sums_combined() const { return sums == "combined"; }
};

}  // namespace automap::search
