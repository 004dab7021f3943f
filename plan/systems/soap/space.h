// The SOAP space of FlexFlow (arXiv 1807.05358, section 4): a graph of operators, each of which may be split along
// Sample, Attribute and Parameter dimensions, and may stand on devices of its own (Operator).
//
// An operator's configuration is a degree for each of its dimensions, parts of equal size, and one device for every
// part; a strategy is a configuration for every operator. The operands and results of a part follow from the operator's
// dimensions: of a tensor it holds, along a dimension that is split, its slab, and all of every other dimension.
//
// operators.h makes the operators of a module. This header knows no HLO, so that tests can make spaces of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automap::soap {

using OperatorId = std::int32_t;  // 0-based; producers before consumers
constexpr std::int32_t kNone = -1;

// Limits that let the order of tasks be packed into a number (task_graph.h).
constexpr int kMostOperators = 1 << 20, kMostParts = 4096, kMostEdgesPerOperator = 1 << 14;

enum class DimKind : std::uint8_t {
  kSample,     // holds the samples of the step
  kAttribute,  // splitting it splits no weight of the operator
  kParameter,  // splitting it splits weights of the operator
};
const char* to_string(DimKind kind);  // "sample"

// A dimension that an operator can be split along.
struct OperatorDim {
  DimKind kind = DimKind::kAttribute;
  std::int64_t extent = 1;  // the degree must divide it
};

// Weights of an operator that are split alike. A part holds 1 / (product of the degrees of `dims`) of the bytes; parts
// that differ in other dimensions hold the same weights, and add their gradients up.
struct Weights {
  std::vector<std::int32_t> dims;  // of the operator, ascending
  double weight_bytes = 0, gradient_bytes = 0;
  double update_ms = 0;   // of the optimizer on all of them, on the reference device
  double slot_bytes = 0;  // of the optimizer's state
};

struct Operator {
  std::string name, opcode, layer;  // of its main instruction, and of the layer that stands in
  std::vector<OperatorDim> dims;
  // On the reference device, of all of it; of that, launches of kernels, which every part pays.
  double forward_ms = 0, forward_launch_ms = 0;
  double backward_ms = 0, backward_launch_ms = 0;
  bool backward = false;  // it has a backward task
  std::vector<Weights> weights;
  double kept_bytes = 0;  // of what it makes and the backward pass reads, all of it; each part keeps its share
};

// The splitting of a tensor's dimension in the operator that makes it and in the one that reads it: the dimension of
// the operator that splits it; kNone: every part holds all of it.
struct EdgeDim {
  std::int32_t producer = kNone, consumer = kNone;
  std::int64_t extent = 1;
  std::int64_t left = 0, right = 0;  // elements beyond its own slab that a part of the consumer reads (windows)
};

struct EdgeTensor {
  std::vector<EdgeDim> dims;
  double element_bytes = 4;
  bool gradient = false;        // as many bytes come back in the backward pass
  bool kept = false;            // the backward pass reads it, so that a device that was sent it keeps it
  std::int32_t tensor = kNone;  // the same for edges that read the same tensor; kNone: not known
};

// The tensors that one operator reads of another one.
struct Edge {
  OperatorId producer = 0, consumer = 0;  // producer < consumer
  std::vector<EdgeTensor> tensors;
};

struct Space {
  std::vector<Operator> operators;
  std::vector<Edge> edges;  // at most one for a pair of operators; by consumer, then producer
  // Per operator: indices into edges, ascending. Filled in by link().
  std::vector<std::vector<std::int32_t>> in, out;

  std::int32_t size() const { return static_cast<std::int32_t>(operators.size()); }
  // Sorts the edges and fills in `in` and `out`. Throws Error(kData) for an invalid graph: an edge to an earlier
  // operator or to itself (a cycle), two edges of one pair, dimensions that an operator does not have, extents that an
  // operator's dimension does not divide, times or bytes that are negative or not finite.
  void link();
};

struct Config {
  std::vector<std::int32_t> degrees;  // by dimension of the operator, each >= 1
  std::vector<std::int32_t> devices;  // by part, 0-based; part = ((i_0 * degree_1 + i_1) * degree_2 + i_2) ...

  std::int32_t parts() const { return static_cast<std::int32_t>(devices.size()); }
  bool operator==(const Config& o) const { return degrees == o.degrees && devices == o.devices; }
  bool operator!=(const Config& o) const { return !(*this == o); }
};
using Strategy = std::vector<Config>;  // by operator

// Throws Error(kData), naming `source` and the operator, when a strategy is none of the space over so many devices:
// another number of operators or dimensions, a degree that does not divide its dimension (the error lists the degrees
// that do), a product of degrees that is not the number of devices named, a device that does not exist.
void check_strategy(const Space& space, const Strategy& strategy, int devices, const std::string& source);

// Every vector of degrees of an operator with at most `most_parts` parts, in lexicographic order; the first is all
// ones.
std::vector<std::vector<std::int32_t>> degree_vectors(const Operator& op, int most_parts);

// True if all operators use the same devices in the same number of parts: then the strategy is one mesh, which XLA can
// execute; other strategies need a program per device.
bool same_devices_everywhere(const Strategy& strategy);

}  // namespace automap::soap
