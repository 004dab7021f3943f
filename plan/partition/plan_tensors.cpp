#include "plan/partition/plan_tensors.h"

#include "common/base/error.h"

namespace automap::partition {

using sharding::ModelInput;

PlanTensors::PlanTensors(const sharding::ShardingModel& model) : model_(model) {
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const ModelInput& input = model.inputs()[i];
    by_name_[input.name].push_back(static_cast<std::int32_t>(i));
    by_parameter_[input.parameter_name].push_back(static_cast<std::int32_t>(i));
  }
}

std::int32_t PlanTensors::find(const PlanTensor& tensor) const {
  if (const auto found = by_name_.find(tensor.name); found != by_name_.end()) {
    if (found->second.size() == 1) return found->second[0];
    for (const std::int32_t i : found->second) {
      if (model_.inputs()[static_cast<std::size_t>(i)].parameter_name == tensor.parameter) return i;
    }
    throw Error(
        ErrorKind::kData,
        "the plan's tensor " + tensor.name + " means " + std::to_string(found->second.size()) + " inputs of this model",
        "name it by its HLO parameter");
  }
  for (const std::string& parameter : {tensor.parameter, tensor.name}) {
    const auto found = by_parameter_.find(parameter);
    if (found != by_parameter_.end() && found->second.size() == 1) return found->second[0];
  }
  try {
    return model_.find_input(tensor.name);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kData) throw;
    throw Error(ErrorKind::kData, "the plan is not for this model: " + std::string(e.what()), e.hint());
  }
}

}  // namespace automap::partition
