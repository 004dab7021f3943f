#include "plan/systems/soap/memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/numbers.h"
#include "plan/systems/soap/overlaps.h"

namespace automap::soap {

namespace {

// Calls see(device, memory) for every part.
template <typename See>
void of_operator(const Operator& op, const Config& config, const See& see) {
  DeviceMemory kept;
  kept.kept_bytes = op.kept_bytes / config.parts();
  for (const std::int32_t device : config.devices) see(device, kept);
  for (const Weights& weights : op.weights) {
    std::int32_t ways = 1;
    for (const std::int32_t dim : weights.dims) ways *= config.degrees[at(dim)];
    const DeviceMemory part{weights.weight_bytes / ways, weights.gradient_bytes / ways, weights.slot_bytes / ways, 0};
    std::set<std::pair<std::int32_t, std::int32_t>> held;  // device, which of the parts of the weights
    for (std::int32_t p = 0; p < config.parts(); ++p) {
      const std::vector<std::int32_t> indices = indices_of(config, p);
      std::int32_t group = 0;
      for (const std::int32_t dim : weights.dims) group = group * config.degrees[at(dim)] + indices[at(dim)];
      if (held.emplace(config.devices[at(p)], group).second) see(config.devices[at(p)], part);
    }
  }
}

template <typename See>
void of_edge(const Edge& edge, const Strategy& strategy, const MachineLinks& machine, const See& see) {
  if (std::none_of(edge.tensors.begin(), edge.tensors.end(), [](const EdgeTensor& t) { return t.kept; })) return;
  const Config &producer = strategy[at(edge.producer)], &consumer = strategy[at(edge.consumer)];
  Overlaps overlaps(edge, producer, consumer, machine);
  for (std::int32_t q = 0; q < consumer.parts(); ++q) {
    DeviceMemory sent;
    for (const Overlaps::Bytes& bytes : overlaps.of(q)) {
      if (producer.devices[at(bytes.producer)] != consumer.devices[at(q)]) sent.kept_bytes += bytes.kept;
    }
    if (sent.kept_bytes > 0) see(consumer.devices[at(q)], sent);
  }
}

}  // namespace

std::vector<DeviceMemory> memory_of(const Space& space, const Strategy& strategy, const MachineLinks& machine) {
  std::vector<DeviceMemory> out(at(machine.num_devices()));
  const auto add = [&](std::int32_t device, const DeviceMemory& part) {
    DeviceMemory& sum = out[at(device)];
    sum.weight_bytes += part.weight_bytes;
    sum.gradient_bytes += part.gradient_bytes;
    sum.slot_bytes += part.slot_bytes;
    sum.kept_bytes += part.kept_bytes;
  };
  for (OperatorId op = 0; op < space.size(); ++op) of_operator(space.operators[at(op)], strategy[at(op)], add);
  for (const Edge& edge : space.edges) of_edge(edge, strategy, machine, add);
  return out;
}

Fullest fullest_of(const std::vector<DeviceMemory>& memory, const MachineLinks& machine) {
  Fullest out;
  for (std::size_t d = 0; d < memory.size(); ++d) {
    const auto device = static_cast<std::int32_t>(d);
    const Fullest here{device, memory[d].bytes(), machine.memory_bytes(device)};
    if (d == 0 || here.share() > out.share()) out = here;
  }
  return out;
}

MemoryTally::MemoryTally(const Space& space, const MachineLinks& machine, Strategy strategy)
    : space_(space), machine_(machine), strategy_(std::move(strategy)) {
  for (const DeviceMemory& device : memory_of(space, strategy_, machine)) bytes_.push_back(device.bytes());
}

void MemoryTally::add(OperatorId op, double sign) {
  const auto see = [&](std::int32_t device, const DeviceMemory& part) { bytes_[at(device)] += sign * part.bytes(); };
  of_operator(space_.operators[at(op)], strategy_[at(op)], see);
  for (const auto* edges : {&space_.in[at(op)], &space_.out[at(op)]}) {
    for (const std::int32_t e : *edges) of_edge(space_.edges[at(e)], strategy_, machine_, see);
  }
}

void MemoryTally::change(OperatorId op, const Config& config) {
  add(op, -1);
  strategy_[at(op)] = config;
  add(op, 1);
}

double MemoryTally::missing_bytes() const {
  double missing = 0;
  for (std::size_t d = 0; d < bytes_.size(); ++d)
    missing += std::max(0.0, bytes_[d] - machine_.memory_bytes(static_cast<std::int32_t>(d)));
  return missing;
}

}  // namespace automap::soap
