// Makes workloads of models, so that nothing need be measured for a placement. The model of a workload is the paper's
// (workload.h); the sources of its numbers are ours:
//
// - Times are the device model's, on the cluster's slowest devices: accelerators are all alike there. Of one run of the
//   module, a micro-batch as it was exported; "per sample" is per such a micro-batch. The optimizer's update, once per
//   step, is not in them.
// - A CPU core takes kCpuFactor times as long, as in the authors' layer graphs. Models come without CPU cores.
// - The paper's transfers go between an accelerator and the memory of the host, the same for all, and both sides are
//   busy with one. Devices of a cluster send to each other: here a transfer is a message over the slowest link between
//   two of them, and both sides are busy with it. Placements know nothing of servers.
// - Memory: weights, gradients and optimizer state, frozen weights, and the stash of one micro-batch for its backward
//   pass; with its forward node. A pipeline has several micro-batches in flight, which the paper does not look at.
// - A forward node and its backward node have one colour. Each transfers its output: the forward node the values that
//   others read, the backward node the gradients that it sends back (to all nodes that it read from, even where one
//   needs its own alone).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/profile.h"
#include "plan/systems/placement/placement.h"
#include "plan/systems/placement/workload.h"
#include "plan/systems/soap/operators.h"

namespace automap::placement {

constexpr double kCpuFactor = 10;

// The cluster as the paper's machine.
struct ModelMachine {
  int accelerators = 1;
  double memory_bytes = 0;                           // of the smallest device
  double speed = 1;                                  // of the slowest, against the reference device
  double transfer_latency_ms = 0, bytes_per_ms = 0;  // of the slowest link
  std::vector<std::string> warnings;                 // where devices differ
};
// `gbytes_per_s`: of a transfer, instead of the slowest link's; then without latency.
ModelMachine machine_of(const machine::Cluster& cluster, const std::optional<double>& gbytes_per_s = std::nullopt);

enum class Granularity { kOperators, kLayers };
const char* to_string(Granularity granularity);  // "operators", "layers"

struct ModelWorkload {
  Workload workload;
  Granularity granularity = Granularity::kOperators;
  // The names of the HLO instructions of each node, for its forward ones. Empty where the model does not say.
  std::vector<std::vector<std::string>> instructions;
  std::vector<int> ends;  // kLayers: of each forward node the last position (1-based) of the profile
  std::vector<std::string> warnings;
};

// The operators of plan/systems/soap, each with its backward pass where it has one: nodes 0 .. n-1 forward, then
// backward.
ModelWorkload operator_workload(const soap::ModelSpace& model, const ModelMachine& machine);

// A chain, as our pipelines see a model: runs of positions of one layer, or the positions themselves where nothing is
// named; all bytes across a cut are transferred behind it, skip connections included. n forward nodes, then n backward
// ones unless it is an inference profile. Of micro-batches of so many samples (0: the profile's own); times where the
// profile has them for that many, else in proportion.
ModelWorkload layer_workload(const pipeline::Profile& profile, const ModelMachine& machine, double samples = 0);

// A contiguous placement of layers as a plan of ours: stage s on the s-th device of the cluster, one device each; for a
// problem over as many devices as it has stages. Nothing where it is none: of operators, with CPU cores, or where a
// device has layers on either side of another one's (`why` says it).
std::optional<pipeline::Plan> pipeline_plan(const ModelWorkload& model, const Placement& placement, std::string* why);

}  // namespace automap::placement
