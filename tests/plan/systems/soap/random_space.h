// Random SOAP spaces and configurations for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/machine/cluster.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

inline std::int64_t pick(Rng* rng, const std::vector<std::int64_t>& from) {
  return from[static_cast<std::size_t>(rng->below(from.size()))];
}

// Operators with up to three dimensions of few sizes, some of no time at all (ties), some without a backward pass;
// edges to earlier operators with tensors split or whole on either side, windows included.
inline Space random_space(Rng* rng, int operators) {
  Space space;
  for (int i = 0; i < operators; ++i) {
    Operator op;
    op.name = "op" + std::to_string(i);
    op.opcode = "dot";
    const int dims = static_cast<int>(rng->below(4));
    for (int d = 0; d < dims; ++d) {
      op.dims.push_back({static_cast<DimKind>(rng->below(3)), pick(rng, {1, 2, 4, 6, 8, 12})});
    }
    // Whole numbers, so that moments coincide.
    op.forward_ms = rng->below(5) == 0 ? 0 : static_cast<double>(rng->below(8));
    op.forward_launch_ms = rng->below(2) == 0 ? 0 : op.forward_ms / 4;
    op.backward = rng->below(6) != 0;
    if (op.backward) op.backward_ms = 2 * op.forward_ms;
    for (std::uint64_t w = rng->below(3); w > 0; --w) {
      Weights weights;
      for (int d = 0; d < dims; ++d) {
        if (rng->below(2) == 0) weights.dims.push_back(d);
      }
      weights.weight_bytes = weights.gradient_bytes = static_cast<double>(rng->below(4)) * 5e6;
      weights.update_ms = static_cast<double>(rng->below(3));
      op.weights.push_back(std::move(weights));
    }
    space.operators.push_back(std::move(op));
    for (int j = 0; j < i; ++j) {
      if (rng->below(static_cast<std::uint64_t>(i)) > 1) continue;
      const Operator &producer = space.operators[static_cast<std::size_t>(j)],
                     &consumer = space.operators[static_cast<std::size_t>(i)];
      Edge edge{j, i, {}};
      for (std::uint64_t t = 1 + rng->below(2); t > 0; --t) {
        EdgeTensor tensor;
        tensor.element_bytes = 4e4;
        tensor.gradient = rng->below(4) != 0;
        std::vector<std::int32_t> a, b;
        for (std::size_t d = 0; d < producer.dims.size(); ++d) a.push_back(static_cast<std::int32_t>(d));
        for (std::size_t d = 0; d < consumer.dims.size(); ++d) b.push_back(static_cast<std::int32_t>(d));
        for (std::uint64_t d = rng->below(4); d > 0; --d) {
          EdgeDim dim;
          const auto take = [&](std::vector<std::int32_t>* left) {
            if (left->empty() || rng->below(3) == 0) return kNone;
            const auto k = static_cast<std::size_t>(rng->below(left->size()));
            const std::int32_t out = (*left)[k];
            left->erase(left->begin() + static_cast<std::ptrdiff_t>(k));
            return out;
          };
          dim.producer = take(&a);
          dim.consumer = take(&b);
          dim.extent = 24;
          if (rng->below(4) == 0) dim.left = dim.right = 1;
          tensor.dims.push_back(dim);
        }
        edge.tensors.push_back(std::move(tensor));
      }
      space.edges.push_back(std::move(edge));
    }
  }
  space.link();
  return space;
}

// Any degrees, any device for every part.
inline Config random_config(Rng* rng, const Operator& op, int devices) {
  const auto vectors = degree_vectors(op, devices);
  Config config;
  config.degrees = vectors[static_cast<std::size_t>(rng->below(vectors.size()))];
  std::int32_t parts = 1;
  for (const std::int32_t degree : config.degrees) parts *= degree;
  for (std::int32_t p = 0; p < parts; ++p)
    config.devices.push_back(static_cast<std::int32_t>(rng->below(static_cast<std::uint64_t>(devices))));
  return config;
}

inline Strategy random_strategy(Rng* rng, const Space& space, int devices) {
  Strategy out;
  for (const Operator& op : space.operators) out.push_back(random_config(rng, op, devices));
  return out;
}

// Servers of two devices with slow ports, the second kind twice as fast.
inline machine::Cluster test_cluster(int servers) {
  machine::Cluster cluster;
  cluster.name = "test";
  cluster.servers = {{(servers + 1) / 2, 2, 10, 1, "slow", {}}};
  if (servers > 1) cluster.servers.push_back({servers / 2, 2, 10, 1, "fast", {}});
  cluster.devices["slow"].memory_gib = cluster.devices["fast"].memory_gib = 16;
  cluster.devices["fast"].relative_speed = 2;
  return cluster;
}

}  // namespace automap::soap
