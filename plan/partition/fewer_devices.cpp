#include "plan/partition/fewer_devices.h"

#include <algorithm>
#include <vector>

#include "common/base/error.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/products.h"

namespace automap::partition {

FewerDevices best_with_fewer(sharding::ShardingModel* model, const machine::DeviceModel& device,
                             const machine::Cluster& cluster, double memory_limit_bytes, bool rows_whole,
                             const SearchRequest& search) {
  const int shards = model->linkage().shards();
  const std::vector<sharding::Gather> gathers = model->gathers();
  FewerDevices best;
  // One share of the work for each number.
  int numbers = 0;
  for (int devices = shards / 2; devices >= 2; devices /= 2) ++numbers;
  SearchRequest share = search;
  share.limits.units /= std::max(1, numbers);
  share.limits.budget_s /= std::max(1, numbers);
  for (int devices = shards / 2; devices >= 2; devices /= 2) {
    model->relink(devices, {});
    const PartitionCost cost(*model, device, cluster);
    std::vector<sharding::GroupId> groups_of;
    const std::vector<bool> rows = rows_whole ? rows_of_weights(*model).groups : std::vector<bool>();
    const models::PartitionProblem problem =
        make_problem(*model, cost, model->variables(), models::PartitionObjective::kTime, memory_limit_bytes,
                     &groups_of, rows_whole ? &rows : nullptr);
    try {
      const std::vector<PartitionAnswer> answers = run_search(problem, share);
      if (answers.empty()) continue;
      best.cut_by_time = best.cut_by_time || answers.front().cut_by_time;
      if (best.devices != 0 && answers.front().score.step_ms >= best.step_ms) continue;
      best.devices = devices;
      best.step_ms = answers.front().score.step_ms;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible) throw;  // does not fit into so few
    }
  }
  model->relink(shards, gathers);
  return best;
}

}  // namespace automap::partition
