#include "plan/partition/price.h"

#include <utility>
#include <vector>

#include "common/base/text_table.h"
#include "plan/partition/overlap.h"

namespace automap::partition {

PeakMemory peak_memory_of(DecidedAxis axis, const DecidedAxis* outer) {
  std::vector<double> parts = parts_of_axis(*axis.decided);
  std::vector<TensorCopy> copies = copies_of_axis(*axis.model, *axis.decided);
  if (outer != nullptr) {
    const std::vector<double> outer_parts = parts_of_axis(*outer->decided);
    for (TensorCopy& copy : copies) copy.part *= outer_parts[static_cast<std::size_t>(copy.tensor)];
    for (TensorCopy& copy : copies_of_axis(*outer->model, *outer->decided)) {
      copy.part *= parts[static_cast<std::size_t>(copy.tensor)];
      copies.push_back(std::move(copy));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i] *= outer_parts[i];
  }
  return peak_memory(*axis.model, parts, copies);
}

namespace {

// Above this share of a device's memory a plan may not fit in practice.
constexpr double kNearlyFull = 0.9;

double unsplit_ms(const sharding::ShardingModel& model, const machine::DeviceModel& device,
                  const machine::Cluster& cluster) {
  const sharding::ShardingModel whole = model.another_axis(1);
  return PartitionCost(whole, device, cluster).estimate(sharding::Propagation(whole.linkage())).step_ms;
}

}  // namespace

Price price(DecidedAxis axis, const machine::DeviceModel& device, const machine::Cluster& cluster, bool overlap) {
  const PartitionCost cost(*axis.model, device, cluster);
  Price out;
  out.estimate = estimate_step(cost, *axis.decided, overlap);
  out.memory = peak_memory_of(axis);
  out.unsplit_ms = unsplit_ms(*axis.model, device, cluster);
  out.capacity_bytes = cost.capacity_bytes();
  out.links = cost.links();
  return out;
}

Price price(DecidedAxis data, DecidedAxis model, const machine::DeviceModel& device, const machine::Cluster& cluster,
            bool overlap) {
  const OtherAxis left = left_by(data, model.model->linkage().shards(), device, cluster);
  const PartitionCost cost(*model.model, device, cluster, &left);
  Price out;
  out.estimate = estimate_step(cost, *model.decided, overlap);
  out.memory = peak_memory_of(model, &data);
  out.unsplit_ms = unsplit_ms(*model.model, device, cluster);
  out.capacity_bytes = cost.capacity_bytes();
  out.links = cost.links();
  out.outer_links = left.links;
  out.left_by_outer = left.shares;
  out.left_by_own = cost.as_other(*model.decided).shares;
  return out;
}

OtherAxis left_by(DecidedAxis outer, int inner, const machine::DeviceModel& device, const machine::Cluster& cluster) {
  OtherAxis left = PartitionCost(*outer.model, device, cluster, nullptr, inner).as_other(*outer.decided);
  left.shares.gathered_first.clear();  // the inner axis gathers before the outer one does
  return left;
}

std::string memory_warning(double needed_bytes, double capacity_bytes, const std::string& hint) {
  if (capacity_bytes <= 0 || needed_bytes <= kNearlyFull * capacity_bytes) return "";
  if (needed_bytes > capacity_bytes) {
    return "needs " + format_bytes(needed_bytes) + " per device, and the smallest has " + format_bytes(capacity_bytes) +
           hint;
  }
  return "needs " + format_bytes(needed_bytes) + " of " + format_bytes(capacity_bytes) +
         " per device: contexts, fragments and the buffers of collectives may not find room";
}

}  // namespace automap::partition
