#include "plan/emit/torch_order.h"

#include <algorithm>

namespace automap::emit {

using pipeline::GroupOrder;
using pipeline::WorkItem;
using pipeline::WorkKind;

std::vector<std::string> torch_order(const pipeline::WorkOrder& order, char between) {
  const bool split_backward = has_weights_pass(order);
  std::vector<std::string> rows;
  for (const GroupOrder& of_group : order) {
    std::string& row = rows.emplace_back();
    for (const WorkItem& item : of_group) {
      const bool first_pass = split_backward && item.kind == WorkKind::kBackward;
      if (!row.empty()) row += between;
      row += std::to_string(item.part) + (first_pass ? 'I' : letter_of(item.kind)) + std::to_string(item.micro_batch);
    }
  }
  return rows;
}

bool has_weights_pass(const pipeline::WorkOrder& order) {
  return std::any_of(order.begin(), order.end(), [](const GroupOrder& of_group) {
    return std::any_of(of_group.begin(), of_group.end(),
                       [](const WorkItem& item) { return item.kind == WorkKind::kWeights; });
  });
}

}  // namespace automap::emit
