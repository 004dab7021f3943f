#include "plan/systems/placement/model_workload.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "common/base/numbers.h"
#include "common/machine/collectives.h"

namespace automap::placement {
namespace {

// Bytes of training state per byte of weights, where the profile does not say: weight, gradient, two moments
// (ProblemOptions).
constexpr double kStateFactor = 4;

double transfer_ms(const ModelMachine& machine, double bytes) {
  return bytes > 0 ? machine.transfer_latency_ms + bytes / machine.bytes_per_ms : 0;
}

Node node_of(const std::string& name, int id, double ms, bool backward, int colour) {
  Node node;
  node.name = name;
  node.id = id;
  node.accelerator_ms = ms;
  node.cpu_ms = ms * kCpuFactor;
  node.backward = backward;
  node.colour = colour;
  return node;
}

Workload workload_on(const ModelMachine& machine) {
  Workload out;
  out.accelerators = machine.accelerators;
  out.memory_bytes = machine.memory_bytes;
  return out;
}

// Bytes of different tensors, each once.
class Tensors {
 public:
  void add(const soap::EdgeTensor& tensor) {
    double bytes = tensor.element_bytes;
    for (const soap::EdgeDim& dim : tensor.dims) bytes *= static_cast<double>(dim.extent);
    if (tensor.tensor == soap::kNone || seen_.emplace(tensor.tensor, true).second) bytes_ += bytes;
  }
  double bytes() const { return bytes_; }

 private:
  std::map<std::int32_t, bool> seen_;
  double bytes_ = 0;
};

double memory_of(const soap::Operator& op) {
  double bytes = op.kept_bytes;
  for (const soap::Weights& weights : op.weights)
    bytes += weights.weight_bytes + weights.gradient_bytes + weights.slot_bytes;
  return bytes;
}

// Forward and backward of one micro-batch at every position, ms.
void times_of(const pipeline::Profile& profile, double samples, std::vector<double>* forward,
              std::vector<double>* backward) {
  if (!profile.times.empty()) {
    const pipeline::DeviceTimes& times = profile.times.front();
    const auto found = std::find(times.samples.begin(), times.samples.end(), samples);
    if (found != times.samples.end()) {
      const auto point = static_cast<std::size_t>(found - times.samples.begin());
      *forward = times.forward_ms[point];
      *backward = times.backward_ms[point];
      return;
    }
  }
  const double ratio = samples / static_cast<double>(pipeline::own_samples(profile));
  for (const double ms : profile.c_ms) {
    forward->push_back(ms * ratio * profile.forward_fraction);
    backward->push_back(ms * ratio * (1 - profile.forward_fraction));
  }
}

// Memory of a position on the device that holds it; `ratio`: of the micro-batch to the profile's own.
double memory_of(const pipeline::Profile& profile, std::size_t i, bool training, double ratio) {
  const auto value = [i](const std::vector<double>& column) { return column.empty() ? 0 : column[i]; };
  const double frozen = value(profile.frozen_bytes);
  if (!training) return profile.w_bytes[i] + frozen;
  const bool known = !profile.slot_bytes.empty() && !profile.gradient_bytes.empty();
  const double state = known ? profile.w_bytes[i] + profile.gradient_bytes[i] + profile.slot_bytes[i]
                             : kStateFactor * profile.w_bytes[i];
  return state + frozen + profile.stash_bytes[i] * ratio;
}

std::string layer_name(const pipeline::Profile& profile, std::size_t i) {
  if (!profile.layer.empty() && !profile.layer[i].empty()) return profile.layer[i];
  if (!profile.name.empty() && !profile.name[i].empty()) return profile.name[i];
  return "position " + std::to_string(i + 1);
}

// True if a layer ends with the position.
bool ends_layer(const pipeline::Profile& profile, std::size_t i) {
  return i + 1 == profile.c_ms.size() || profile.layer.empty() || profile.layer[i].empty() ||
         profile.layer[i] != profile.layer[i + 1];
}

}  // namespace

ModelMachine machine_of(const machine::Cluster& cluster, const std::optional<double>& gbytes_per_s) {
  ModelMachine out;
  out.accelerators = std::min(cluster.num_devices(), kMostDevices);
  if (out.accelerators < cluster.num_devices()) {
    out.warnings.push_back("a placement has at most " + std::to_string(kMostDevices) +
                           " accelerators: those are placed on");
  }
  out.memory_bytes = out.speed = out.bytes_per_ms = std::numeric_limits<double>::infinity();
  double fastest = 0, largest = 0;
  const bool several = cluster.num_servers() > 1;
  for (const machine::ServerGroup& servers : cluster.servers) {
    const machine::DeviceType& type = cluster.devices.at(servers.device);
    out.speed = std::min(out.speed, type.relative_speed);
    out.memory_bytes = std::min(out.memory_bytes, type.memory_gib * kBytesPerGiB);
    fastest = std::max(fastest, type.relative_speed);
    largest = std::max(largest, type.memory_gib * kBytesPerGiB);
    machine::CollectiveGroup pair;
    pair.devices = 2;
    pair.intra_bytes_per_ms = servers.intra_gbytes_per_s * machine::kBytesPerMsPerGByteS;
    pair.inter_bytes_per_ms = servers.inter_gbytes_per_s * machine::kBytesPerMsPerGByteS;
    pair.intra_latency_ms = cluster.intra_latency_us * 1e-3;
    pair.inter_latency_ms = cluster.inter_latency_us * 1e-3;
    pair.measured = servers.links.empty() ? nullptr : &servers.links;
    const machine::MessageLinks links = machine::message_links(pair);
    const double latency = several ? links.between_latency_ms : links.inside_latency_ms;
    const double pace = machine::bytes_per_ms(links, {1, 1, !several});
    if (cluster.num_devices() > 1) {
      out.transfer_latency_ms = std::max(out.transfer_latency_ms, latency);
      out.bytes_per_ms = std::min(out.bytes_per_ms, pace);
    }
  }
  if (fastest > out.speed || largest > out.memory_bytes) {
    out.warnings.push_back(
        "the cluster's devices differ, and a placement's accelerators are all alike: each counts as the slowest with "
        "the smallest memory");
  }
  if (gbytes_per_s) {
    out.transfer_latency_ms = 0;
    out.bytes_per_ms = *gbytes_per_s * machine::kBytesPerMsPerGByteS;
  }
  return out;
}

const char* to_string(Granularity granularity) {
  return granularity == Granularity::kOperators ? "operators" : "layers";
}

ModelWorkload operator_workload(const soap::ModelSpace& model, const ModelMachine& machine) {
  ModelWorkload out;
  out.workload = workload_on(machine);
  out.warnings = machine.warnings;
  const soap::Space& space = model.space;
  std::vector<int> backward_of(space.operators.size(), -1);
  for (int i = 0; i < space.size(); ++i) {
    const soap::Operator& op = space.operators[at(i)];
    Node node = node_of(op.name, i, op.forward_ms / machine.speed, false, i);
    node.bytes = memory_of(op);
    Tensors read;
    for (const std::int32_t e : space.out[at(i)]) {
      for (const soap::EdgeTensor& tensor : space.edges[at(e)].tensors) read.add(tensor);
    }
    node.transfer_ms = transfer_ms(machine, read.bytes());
    out.workload.nodes.push_back(std::move(node));
    out.instructions.push_back(model.instructions[at(i)]);
  }
  for (int i = 0; i < space.size(); ++i) {
    const soap::Operator& op = space.operators[at(i)];
    if (!op.backward) continue;
    backward_of[at(i)] = out.workload.size();
    Node node = node_of(op.name + " backward", space.size() + i, op.backward_ms / machine.speed, true, i);
    Tensors sent;
    for (const std::int32_t e : space.in[at(i)]) {
      for (const soap::EdgeTensor& tensor : space.edges[at(e)].tensors) {
        if (tensor.gradient && space.operators[at(space.edges[at(e)].producer)].backward) sent.add(tensor);
      }
    }
    node.transfer_ms = transfer_ms(machine, sent.bytes());
    out.workload.nodes.push_back(std::move(node));
    out.workload.edges.emplace_back(i, backward_of[at(i)]);
  }
  out.instructions.resize(out.workload.nodes.size());
  for (const soap::Edge& edge : space.edges) {
    out.workload.edges.emplace_back(edge.producer, edge.consumer);
    const int from = backward_of[at(edge.consumer)], to = backward_of[at(edge.producer)];
    const bool gradient = std::any_of(edge.tensors.begin(), edge.tensors.end(),
                                      [](const soap::EdgeTensor& tensor) { return tensor.gradient; });
    if (gradient && from >= 0 && to >= 0) out.workload.edges.emplace_back(from, to);
  }
  return out;
}

ModelWorkload layer_workload(const pipeline::Profile& profile, const ModelMachine& machine, double samples) {
  ModelWorkload out;
  out.workload = workload_on(machine);
  out.granularity = Granularity::kLayers;
  out.warnings = machine.warnings;
  const bool training = profile.forward_fraction < 1;
  std::vector<double> forward, backward, backward_ms;
  const auto own = static_cast<double>(pipeline::own_samples(profile));
  const double ratio = samples > 0 ? samples / own : 1;
  times_of(profile, own * ratio, &forward, &backward);
  double forward_ms = 0, back_ms = 0, bytes = 0;
  std::vector<std::string> instructions;
  for (std::size_t i = 0; i < forward.size(); ++i) {
    forward_ms += forward[i] / machine.speed;
    back_ms += backward[i] / machine.speed;
    bytes += memory_of(profile, i, training, ratio);
    if (!profile.name.empty()) instructions.push_back(profile.name[i]);
    if (!ends_layer(profile, i)) continue;
    const int layer = out.workload.size();
    Node node = node_of(layer_name(profile, i), layer, forward_ms, false, training ? layer : kNoColour);
    node.bytes = bytes;
    if (i + 1 < forward.size()) node.transfer_ms = transfer_ms(machine, profile.a_bytes[i] * ratio);
    out.workload.nodes.push_back(std::move(node));
    out.instructions.push_back(std::move(instructions));
    out.ends.push_back(static_cast<int>(i) + 1);
    backward_ms.push_back(back_ms);
    instructions.clear();
    forward_ms = back_ms = bytes = 0;
  }
  const int layers = out.workload.size();
  for (int i = 1; i < layers; ++i) out.workload.edges.emplace_back(i - 1, i);
  if (!training) return out;
  for (int i = 0; i < layers; ++i) {
    Node node = node_of(out.workload.nodes[at(i)].name + " backward", layers + i, backward_ms[at(i)], true, i);
    // The gradient of the values that came over the cut in front.
    if (i > 0) node.transfer_ms = out.workload.nodes[at(i - 1)].transfer_ms;
    out.workload.nodes.push_back(std::move(node));
    out.workload.edges.emplace_back(i, layers + i);
    if (i > 0) out.workload.edges.emplace_back(layers + i, layers + i - 1);
  }
  out.instructions.resize(out.workload.nodes.size());
  return out;
}

std::optional<pipeline::Plan> pipeline_plan(const ModelWorkload& model, const Placement& placement, std::string* why) {
  if (model.granularity != Granularity::kLayers) {
    *why = "it is a placement of operators; one of layers can be a pipeline";
    return std::nullopt;
  }
  pipeline::Plan plan;
  std::vector<char> used(at(model.workload.devices()), 0);
  for (std::size_t i = 0; i < model.ends.size(); ++i) {
    const int device = placement.device[i];
    if (device >= model.workload.accelerators) {
      *why = "a layer is on a CPU core";
      return std::nullopt;
    }
    if (i > 0 && placement.device[i - 1] == device) continue;
    if (used[at(device)]) {
      *why = "it is not contiguous: a device has layers on either side of another one's";
      return std::nullopt;
    }
    used[at(device)] = 1;
    if (i == 0) continue;
    plan.cuts.push_back(model.ends[i - 1]);
    plan.device_cuts.push_back(static_cast<int>(plan.cuts.size()));
  }
  return plan;
}

}  // namespace automap::placement
