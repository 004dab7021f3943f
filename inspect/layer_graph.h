// The layers of a module's forward pass, and the tensors that go from one to another, which --graph draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/graph.h"

namespace automap::inspect {

struct LayerGraph {
  struct Layer {
    std::string name;
    std::vector<std::string> instructions;  // HLO names, in the order in which pipelines are cut
    double variable_bytes = 0;              // trained or frozen, that are first used here
    std::int64_t turns = 0;                 // of a loop that runs in here; 0: none, or nobody knows
  };
  // All tensors from one layer to another that reads them, each counted once.
  struct Edge {
    std::size_t from = 0, to = 0;
    std::int64_t tensors = 0;
    double bytes = 0;
  };
  std::string model;
  bool training = false;
  std::vector<Layer> layers;  // in the order in which most of each is computed
  std::vector<Edge> edges;    // by from, then to
};

// Throws Error(kData) where the module is too unusual to be understood.
LayerGraph layer_graph(const graph::Graph& module);

}  // namespace automap::inspect
