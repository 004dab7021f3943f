// The partitioning problems of module files, for the benchmarks: 8 shards on config-a, without a memory limit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"
#include "plan/partition/partition_cost.h"

namespace automap::bench {

struct NamedProblem {
  std::string name;  // "t5_6_6 time"
  models::PartitionProblem problem;
};

// By count, then by time.
inline std::vector<NamedProblem> partition_problems(const std::string& path, int shards = 8) {
  const hlo::HloModule module = hlo::read_hlo(read_file(path), path);
  sharding::ModelOptions options;
  options.shards = shards;
  const sharding::ShardingModel model = sharding::ShardingModel::build(module.graph, options);
  const partition::PartitionCost cost(model, machine::load_device("v100-16gb"), machine::load_cluster("config-a"));
  std::string name = path.substr(path.rfind('/') + 1);
  name = name.substr(0, name.find('.'));
  std::vector<NamedProblem> out;
  for (const auto objective : {models::PartitionObjective::kCount, models::PartitionObjective::kTime}) {
    std::vector<sharding::GroupId> groups_of;
    const bool time = objective == models::PartitionObjective::kTime;
    out.push_back({name + (time ? " time" : " count"),
                   partition::make_problem(model, cost, model.variables(), objective, 0, &groups_of)});
  }
  return out;
}

inline std::vector<std::string> default_modules() {
  std::vector<std::string> out;
  for (const char* name : {"t5_6_6", "t5_24_24", "vgg19", "resnet50", "gpt2", "bert48"}) {
    out.push_back(std::string("fixtures/hlo/") + name + ".hlo.gz");
  }
  return out;
}

}  // namespace automap::bench
