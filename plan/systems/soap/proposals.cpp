#include "plan/systems/soap/proposals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/numbers.h"

namespace automap::soap {

namespace {

std::int32_t product(const std::vector<std::int32_t>& degrees) {
  return std::accumulate(degrees.begin(), degrees.end(), std::int32_t{1}, std::multiplies<>());
}

std::int32_t largest_divisor(std::int64_t extent, int most) {
  for (int degree = static_cast<int>(std::min<std::int64_t>(extent, most)); degree > 1; --degree) {
    if (extent % degree == 0) return degree;
  }
  return 1;
}

// The configuration that splits dimension `dim` (kNone: none) over the first devices.
Config split_along(const Operator& op, std::int32_t dim, int devices) {
  Config config;
  config.degrees.assign(op.dims.size(), 1);
  const std::int32_t parts = dim == kNone ? 1 : largest_divisor(op.dims[at(dim)].extent, devices);
  if (dim != kNone) config.degrees[at(dim)] = parts;
  config.devices.resize(at(parts));
  std::iota(config.devices.begin(), config.devices.end(), 0);
  return config;
}

// The first dimension of a kind that can be split over the most devices; kNone: there is none.
std::int32_t widest(const Operator& op, DimKind kind, int devices) {
  std::int32_t best = kNone, parts = 1;
  for (std::size_t d = 0; d < op.dims.size(); ++d) {
    const std::int32_t degree = op.dims[d].kind == kind ? largest_divisor(op.dims[d].extent, devices) : 1;
    if (degree <= parts) continue;
    parts = degree;
    best = static_cast<std::int32_t>(d);
  }
  return best;
}

// Keeps the degrees that make the most parts among the divisors of `devices`.
void keep_widest(int devices, std::vector<std::vector<std::int32_t>>* degrees) {
  std::int32_t most = 1;
  for (const auto& of : *degrees) {
    if (devices % product(of) == 0) most = std::max(most, product(of));
  }
  degrees->erase(
      std::remove_if(degrees->begin(), degrees->end(), [most](const auto& of) { return product(of) != most; }),
      degrees->end());
}

double bytes_of(const Edge& edge) {
  double bytes = 0;
  for (const EdgeTensor& tensor : edge.tensors) {
    double of_tensor = tensor.element_bytes;
    for (const EdgeDim& dim : tensor.dims) of_tensor *= static_cast<double>(dim.extent);
    bytes += of_tensor;
  }
  return bytes;
}

}  // namespace

const char* to_string(Placement placement) {
  switch (placement) {
    case Placement::kRange: return "range";
    case Placement::kAny: return "any";
    case Placement::kMesh: return "mesh";
  }
  return "";
}

std::optional<Placement> parse_placement(const std::string& name) {
  for (const Placement placement : {Placement::kRange, Placement::kAny, Placement::kMesh}) {
    if (name == to_string(placement)) return placement;
  }
  return std::nullopt;
}

Proposals::Proposals(const Space& space, int devices, Placement placement) : devices_(devices), placement_(placement) {
  std::map<std::vector<std::int64_t>, std::size_t> known;
  for (const Operator& op : space.operators) {
    std::vector<std::int64_t> extents;
    for (const OperatorDim& dim : op.dims) extents.push_back(dim.extent);
    const auto [it, added] = known.try_emplace(std::move(extents), choices_.size());
    choices_of_.push_back(it->second);
    if (!added) continue;
    Choices choices{degree_vectors(op, devices), {0}};
    if (placement == Placement::kMesh) keep_widest(devices, &choices.degrees);
    for (const std::vector<std::int32_t>& degrees : choices.degrees) {
      choices.first.push_back(choices.first.back() +
                              (placement == Placement::kMesh ? 1 : devices - product(degrees) + 1));
    }
    choices_.push_back(std::move(choices));
  }
}

Config Proposals::config(OperatorId op, std::int64_t number) const {
  const std::vector<std::int64_t>& first = of(op).first;
  const auto k = static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), number) - first.begin()) - 1;
  Config out;
  out.degrees = of(op).degrees[k];
  out.devices.resize(at(product(out.degrees)));
  if (placement_ == Placement::kMesh) {
    const std::int32_t step = devices_ / out.parts();
    for (std::int32_t part = 0; part < out.parts(); ++part) out.devices[at(part)] = part * step;
  } else {
    std::iota(out.devices.begin(), out.devices.end(), static_cast<std::int32_t>(number - first[k]));
  }
  return out;
}

Strategy Proposals::nearest(const Strategy& strategy) const {
  if (placement_ != Placement::kMesh) return strategy;
  Strategy out;
  for (std::size_t i = 0; i < strategy.size(); ++i) {
    const auto op = static_cast<OperatorId>(i);
    double least = std::numeric_limits<double>::infinity();
    std::int64_t best = 0;
    for (std::int64_t k = 0; k < count(op); ++k) {
      const std::vector<std::int32_t>& degrees = of(op).degrees[at(k)];
      double away = 0;
      for (std::size_t d = 0; d < degrees.size(); ++d)
        away += std::abs(std::log(degrees[d]) - std::log(strategy[i].degrees[d]));
      if (away >= least - 1e-9) continue;
      least = away;
      best = k;
    }
    out.push_back(config(op, best));
  }
  return out;
}

Config Proposals::draw(OperatorId op, Rng* rng) const {
  if (placement_ != Placement::kAny) {
    return config(op, static_cast<std::int64_t>(rng->below(static_cast<std::uint64_t>(count(op)))));
  }
  Config out;
  out.degrees = of(op).degrees[static_cast<std::size_t>(rng->below(of(op).degrees.size()))];
  out.devices.resize(at(product(out.degrees)));
  for (std::int32_t& device : out.devices)
    device = static_cast<std::int32_t>(rng->below(static_cast<std::uint64_t>(devices_)));
  return out;
}

Strategy data_parallel(const Space& space, int devices) {
  Strategy out;
  for (const Operator& op : space.operators)
    out.push_back(split_along(op, widest(op, DimKind::kSample, devices), devices));
  return out;
}

Strategy expert(const Space& space, int devices) {
  Strategy out = data_parallel(space, devices);
  for (OperatorId i = 0; i < space.size(); ++i) {
    const Operator& op = space.operators[at(i)];
    double weights = 0, read = 0, made = 0;
    for (const Weights& w : op.weights) weights += w.weight_bytes;
    for (const std::int32_t e : space.in[at(i)]) read += bytes_of(space.edges[at(e)]);
    // Its readers mostly read the same.
    for (const std::int32_t e : space.out[at(i)]) made = std::max(made, bytes_of(space.edges[at(e)]));
    const std::int32_t dim = widest(op, DimKind::kParameter, devices);
    if (dim != kNone && weights > read + made) out[at(i)] = split_along(op, dim, devices);
  }
  return out;
}

Strategy random_start(const Space& space, const Proposals& proposals, Rng* rng) {
  Strategy out;
  for (OperatorId op = 0; op < space.size(); ++op) out.push_back(proposals.draw(op, rng));
  return out;
}

}  // namespace automap::soap
