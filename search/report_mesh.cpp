// opp --mesh: the plan of two axes.
#include <algorithm>

#include "common/base/fitted_table.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/partition/names.h"
#include "search/report.h"
#include "search/report_parts.h"
#include "search/report_tables.h"

namespace automap::search {

using namespace partition;
using namespace internal;

namespace {

constexpr std::size_t kMostMeshes = 12;

std::string zero_text(const PlannedMesh& planned) {
  const std::string of = plural(static_cast<long long>(planned.stored.stored.size()), "variable") + " of " +
                         format_count(static_cast<long long>(planned.data.model.variables().size()));
  if (planned.plan.zero == 0) return "nothing lies in parts over the data axis (--zero 0)";
  if (planned.plan.zero == 3) return of + " in parts, gathered before use, with slots and gradients (--zero 3)";
  return "slots and gradients of " + of + " in parts; new values are gathered once per step (--zero 2)";
}

std::string links_text(const ShardLinks& links) {
  return format_number(links.gbytes_per_s) + " GB/s " + (links.inside_server ? "inside one server" : "between servers");
}

std::string meshes_text(const MeshPlan& plan) {
  if (plan.alternatives.size() < 2) return "";
  FittedTable table = meshes_table(plan, kMostMeshes);
  if (plan.alternatives.size() > kMostMeshes) {
    table.add_row({"… " + std::to_string(plan.alternatives.size() - kMostMeshes) + " more", "", "", "", "--json"});
  }
  return "Meshes\n" + table.render("  ") + "\n";
}

}  // namespace

std::string mesh_report(const PlannedMesh& planned) {
  const MeshPlan& plan = planned.plan;
  std::string out = (plan.model.empty() ? "model" : printable(plan.model)) + " over " +
                    plural(plan.devices(), "device") + " of " + printable(plan.cluster) + ": " +
                    plural(plan.data_axis.shards, "replica") + " of " + plural(plan.model_axis.shards, "device") +
                    " (--mesh data=" + std::to_string(plan.data_axis.shards) +
                    ",model=" + std::to_string(plan.model_axis.shards) + ")\n\n";
  const bool counted = plan.counted.cost.has_value();
  out += counted_text(plan.counted);
  out += fact("Judged by", judged_text(planned.price.estimate, counted) + format_ms(plan.compute_ms) + " compute, " +
                               format_ms(plan.data_collective_ms) + " collectives over the data axis (" +
                               links_text(planned.price.outer_links) + "), " + format_ms(plan.model_collective_ms) +
                               " over the model axis (" + links_text(planned.price.links) + ")" +
                               hidden_text(planned.price.estimate) + "; " + format_ms(plan.replicated_step_ms) +
                               " on one device");
  if (!counted) {
    out += fact("", format_bytes(plan.memory_bytes) + " per device of " + format_bytes(plan.capacity_bytes) + ": " +
                        memory_text(planned.price.memory));
  }
  if (plan.data_axis.shards > 1) {
    out += fact("Data axis", collectives_text(planned.data.model, *planned.data.decided, &planned.price.left_by_own));
    out += fact("", zero_text(planned));
  }
  if (plan.model_axis.shards > 1) {
    out += fact("Model axis",
                format_count(plan.model_axis.partitioned) + " of " +
                    plural(static_cast<long long>(planned.model.model.variables().size()), "variable") + " split; " +
                    collectives_text(planned.model.model, *planned.model.decided, &planned.price.left_by_outer));
    if (plan.model_axis.proven) {
      out += fact("How good", std::string("of the model axis: proven") +
                                  (plan.overlapped_ms ? " of the step added up" : "") +
                                  ", given the data axis; the mesh: the fastest of those below");
    }
  }
  if (plan.overlapped_bound_ms) {
    out += fact(plan.model_axis.proven ? "" : "How good", least_overlapped_text(*plan.overlapped_bound_ms));
  }
  out += fact("Planned in", format_ms(plan.planning_ms) + " from file to plan") + "\n";
  if (planned.operators) out += split_table(*planned.operators);
  out += begun_table(planned.model.model) + moved_tables(planned.model.model, plan.model_axis, "model") +
         moved_tables(planned.data.model, plan.data_axis, "data");
  if (planned.operators) out += whole_table(planned.model.model, *planned.operators);
  out += meshes_text(plan);
  while (out.size() > 1 && out[out.size() - 2] == '\n') out.pop_back();
  return out;
}

}  // namespace automap::search
