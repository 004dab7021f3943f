#include "plan/partition/stage_counts.h"

#include <algorithm>

#include "common/graph/flow_order.h"
#include "plan/partition/flow_units.h"
#include "profile/step_positions.h"

namespace automap::partition {

using graph::kNone;
using graph::NodeId;

std::vector<bool> stage_counts(const sharding::ShardingModel& model, int p0, int p1) {
  const graph::TrainingStep& step = model.step();
  const graph::FlowOrder order = graph::order_forward(step);
  const profile::StepPositions at(step, order);
  const std::vector<NodeId> units = units_of(model);
  std::int32_t last_variable_use = 0;
  for (const sharding::ModelInput& input : model.inputs()) {
    const NodeId unit = units[static_cast<std::size_t>(input.node)];
    if (input.role != graph::InputRole::kVariable || unit == kNone) continue;
    last_variable_use = std::max(last_variable_use, at.last_use(unit));
  }
  const std::vector<std::int32_t> backward = profile::place_backward(at, last_variable_use);
  std::vector<bool> out(units.size(), false);
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i] == kNone) continue;
    std::int32_t position = at.position(units[i]);
    if (position == kNone) position = at.first_use(units[i]);
    if (position == kNone) position = backward[static_cast<std::size_t>(units[i])];
    out[i] = position != kNone && position >= p0 && position < p1;
  }
  return out;
}

}  // namespace automap::partition
