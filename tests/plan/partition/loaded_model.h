// A module of a file and its sharding, which points into it.
#pragma once

#include <memory>
#include <string>

#include "common/hlo/hlo_reader.h"
#include "common/sharding/model.h"

namespace automap::partition {

struct LoadedModel {
  hlo::HloModule module;
  sharding::ShardingModel model;
};

inline std::unique_ptr<LoadedModel> load_sharded(const std::string& path, int shards = 8) {
  auto loaded = std::make_unique<LoadedModel>(LoadedModel{hlo::load_hlo(path), {}});
  sharding::ModelOptions options;
  options.shards = shards;
  loaded->model = sharding::ShardingModel::build(loaded->module.graph, options);
  return loaded;
}

}  // namespace automap::partition
