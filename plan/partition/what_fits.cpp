#include "plan/partition/what_fits.h"

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "plan/partition/mesh_planner.h"
#include "plan/partition/names.h"

namespace automap::partition {

namespace {

constexpr int kMostTimesTheServers = 16;

}  // namespace

std::string what_fits(const sharding::ShardingModel& model, const machine::DeviceModel& device,
                      const machine::Cluster& cluster, const PlanningRequest& operators, bool cluster_was_tried,
                      const std::function<std::string(const std::string&)>& typed) {
  MeshRequest request;
  request.operators = operators;
  request.operators.data = false;
  request.operators.objective = models::PartitionObjective::kTime;
  for (int times = cluster_was_tried ? 2 : 1; times <= kMostTimesTheServers; times *= 2) {
    if (times > 1 && cluster.num_devices() * (times / 2) >= most_devices(model, cluster)) break;
    machine::Cluster larger = cluster;
    larger.servers.back().count *= times;
    if (times > 1) request.zero = Zero::kFull;  // the least memory
    try {
      MeshPlan plan = best_mesh_plan(model, device, larger, request).plan;
      if (times > 1) {
        // There is room: perhaps for something quicker.
        request.zero.reset();
        plan = best_mesh_plan(model, device, larger, request).plan;
      }
      const std::string where =
          times == 1 ? "" : "with " + plural(larger.num_devices(), "device") + " of such servers ";
      return where + typed(mesh_text(plan.data_axis.shards, plan.model_axis.shards, plan.zero)) +
             " fits: " + format_bytes(plan.memory_bytes) + " per device, " + format_ms(plan.expected_ms()) +
             " per step";
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible && e.kind() != ErrorKind::kData) throw;
    }
  }
  return "";
}

}  // namespace automap::partition
