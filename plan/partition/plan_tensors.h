// Finds the inputs of a model that the tensors of a plan mean.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/sharding/model.h"
#include "plan/partition/partition_plan.h"

namespace automap::partition {

class PlanTensors {
 public:
  explicit PlanTensors(const sharding::ShardingModel& model);
  // Index into model.inputs(). Throws Error(kData) when it means none, or several.
  std::int32_t find(const PlanTensor& tensor) const;

 private:
  const sharding::ShardingModel& model_;
  std::unordered_map<std::string, std::vector<std::int32_t>> by_name_, by_parameter_;
};

}  // namespace automap::partition
