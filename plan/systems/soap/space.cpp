#include "plan/systems/soap/space.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/printable.h"

namespace automap::soap {

namespace {

[[noreturn]] void wrong_space(const std::string& what) {
  throw Error(ErrorKind::kData, "SOAP space: " + what,
              "operators are numbered so that producers come before consumers");
}

void check_time(const Operator& op, const char* what, double value) {
  if (std::isfinite(value) && value >= 0) return;
  wrong_space("operator " + printable(op.name) + ": " + what + " is " + std::to_string(value) +
              ", expected a finite number that is not negative");
}

void check_operator(const Operator& op) {
  check_time(op, "forward_ms", op.forward_ms);
  check_time(op, "backward_ms", op.backward_ms);
  check_time(op, "forward_launch_ms", op.forward_launch_ms);
  check_time(op, "backward_launch_ms", op.backward_launch_ms);
  for (const OperatorDim& dim : op.dims) {
    if (dim.extent < 1)
      wrong_space("operator " + printable(op.name) + " has a dimension of extent " + std::to_string(dim.extent));
  }
  for (const Weights& weights : op.weights) {
    check_time(op, "weight_bytes", weights.weight_bytes);
    check_time(op, "gradient_bytes", weights.gradient_bytes);
    check_time(op, "update_ms", weights.update_ms);
    for (const std::int32_t dim : weights.dims) {
      if (dim < 0 || at(dim) >= op.dims.size())
        wrong_space("operator " + printable(op.name) + " has no dimension " + std::to_string(dim));
    }
  }
}

void check_side(const Operator& op, std::int32_t dim, std::int64_t extent) {
  if (dim == kNone) return;
  if (dim < 0 || at(dim) >= op.dims.size())
    wrong_space("operator " + printable(op.name) + " has no dimension " + std::to_string(dim));
  if (extent % op.dims[at(dim)].extent != 0) {
    wrong_space("operator " + printable(op.name) + ": its dimension " + std::to_string(dim) + " of extent " +
                std::to_string(op.dims[at(dim)].extent) + " does not divide the " + std::to_string(extent) +
                " of a tensor that it splits");
  }
}

// "1, 2, 4, 8" of the numbers up to `most` that divide `extent`.
std::string divisors(std::int64_t extent, int most) {
  std::string out;
  for (std::int64_t d = 1; d <= std::min<std::int64_t>(extent, most); ++d) {
    if (extent % d == 0) out += (out.empty() ? "" : ", ") + std::to_string(d);
  }
  return out;
}

}  // namespace

const char* to_string(DimKind kind) {
  switch (kind) {
    case DimKind::kSample: return "sample";
    case DimKind::kAttribute: return "attribute";
    case DimKind::kParameter: return "parameter";
  }
  return "";
}

void Space::link() {
  if (operators.size() > kMostOperators) wrong_space("more than " + std::to_string(kMostOperators) + " operators");
  for (const Operator& op : operators) check_operator(op);
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::make_pair(a.consumer, a.producer) < std::make_pair(b.consumer, b.producer);
  });
  in.assign(operators.size(), {});
  out.assign(operators.size(), {});
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const Edge& edge = edges[e];
    if (edge.producer < 0 || edge.consumer >= size() || edge.producer >= edge.consumer) {
      wrong_space("an edge from operator " + std::to_string(edge.producer) + " to operator " +
                  std::to_string(edge.consumer) + " would make a cycle or leads nowhere");
    }
    if (e > 0 && edges[e - 1].producer == edge.producer && edges[e - 1].consumer == edge.consumer) {
      wrong_space("two edges from operator " + std::to_string(edge.producer) + " to operator " +
                  std::to_string(edge.consumer));
    }
    for (const EdgeTensor& tensor : edge.tensors) {
      for (const EdgeDim& dim : tensor.dims) {
        check_side(operators[at(edge.producer)], dim.producer, dim.extent);
        check_side(operators[at(edge.consumer)], dim.consumer, dim.extent);
      }
    }
    in[at(edge.consumer)].push_back(static_cast<std::int32_t>(e));
    out[at(edge.producer)].push_back(static_cast<std::int32_t>(e));
    if (in[at(edge.consumer)].size() > kMostEdgesPerOperator || out[at(edge.producer)].size() > kMostEdgesPerOperator)
      wrong_space("more than " + std::to_string(kMostEdgesPerOperator) + " edges of one operator");
  }
}

void check_strategy(const Space& space, const Strategy& strategy, int devices, const std::string& source) {
  if (strategy.size() != space.operators.size()) {
    throw Error(ErrorKind::kData,
                source + ": " + std::to_string(strategy.size()) + " operators, but the model has " +
                    std::to_string(space.operators.size()),
                "a strategy is of one model; search this one: automap-search soap");
  }
  for (std::size_t i = 0; i < strategy.size(); ++i) {
    const Operator& op = space.operators[i];
    const Config& config = strategy[i];
    const std::string where = source + ": operator " + std::to_string(i + 1) + " (" + printable(op.name) + ")";
    if (config.degrees.size() != op.dims.size()) {
      throw Error(ErrorKind::kData,
                  where + ": " + std::to_string(config.degrees.size()) + " degrees, expected one for each of its " +
                      std::to_string(op.dims.size()) + " dimensions",
                  "1 leaves a dimension whole");
    }
    std::int64_t parts = 1;
    for (std::size_t d = 0; d < op.dims.size(); ++d) {
      const std::int64_t degree = config.degrees[d], extent = op.dims[d].extent;
      if (degree < 1 || extent % degree != 0) {
        throw Error(ErrorKind::kData,
                    where + ": degree " + std::to_string(degree) + " does not divide its " +
                        to_string(op.dims[d].kind) + " dimension of " + std::to_string(extent),
                    "parts have equal sizes: " + divisors(extent, devices) + " divide it");
      }
      parts = std::min<std::int64_t>(parts * degree, kMostParts + 1);
    }
    if (parts != config.parts()) {
      throw Error(ErrorKind::kData,
                  where + ": its degrees make " + (parts > kMostParts ? "more than " : "") +
                      std::to_string(std::min<std::int64_t>(parts, kMostParts)) + " parts, but " +
                      std::to_string(config.parts()) + " devices are named",
                  "name one device for every part");
    }
    for (const std::int32_t device : config.devices) {
      if (device < 0 || device >= devices) {
        throw Error(ErrorKind::kData,
                    where + ": there is no device " + std::to_string(device + 1) + ", the cluster has " +
                        std::to_string(devices),
                    "devices are numbered from 1, server by server");
      }
    }
  }
}

std::vector<std::vector<std::int32_t>> degree_vectors(const Operator& op, int most_parts) {
  std::vector<std::vector<std::int32_t>> out{{}};
  for (const OperatorDim& dim : op.dims) {
    std::vector<std::vector<std::int32_t>> longer;
    for (const std::vector<std::int32_t>& begun : out) {
      std::int64_t parts = 1;
      for (const std::int32_t degree : begun) parts *= degree;
      for (std::int32_t degree = 1; parts * degree <= most_parts && degree <= dim.extent; ++degree) {
        if (dim.extent % degree != 0) continue;
        longer.push_back(begun);
        longer.back().push_back(degree);
      }
    }
    out = std::move(longer);
  }
  return out;
}

bool same_devices_everywhere(const Strategy& strategy) {
  for (const Config& config : strategy) {
    if (config.devices != strategy.front().devices) return false;
    const std::set<std::int32_t> distinct(config.devices.begin(), config.devices.end());
    if (distinct.size() != config.devices.size()) return false;
  }
  return true;
}

}  // namespace automap::soap
