// A module with decisions about its inputs, for tests of their consequences.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"

namespace automap::sharding {

struct DecidedModule {
  graph::Graph graph;
  ShardingModel model;
  Propagation decided;
  DecidedModule(graph::Graph g, int shards)
      : graph(std::move(g)), model(ShardingModel::build(graph, options(shards))), decided(model.linkage()) {}
  static ModelOptions options(int shards) {
    ModelOptions o;
    o.shards = shards;
    return o;
  }
  // The first node of the instruction with that name.
  NodeId node(const std::string& name) const {
    for (NodeId id = 0; id < model.flow().size(); ++id) {
      if (graph.instruction(model.flow().node(id).instruction).name == name) return id;
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }
};

}  // namespace automap::sharding
