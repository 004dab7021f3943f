#include "infer/software.h"

#include <sstream>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "plan/planners/own_device.h"

namespace automap::infer {
namespace {

// A compiled step launches a kernel every 3 us. Python, its dispatcher and autograd take some 10 us for an operation,
// and what is counted here as one kernel are about ten of them, forward and backward: the steps of small GPT models
// that were published take the same time at every width of tensor parallelism, and as long as with 100 us. Between
// operations tensors are written and read again, twice in all by published steps of MPT; Megatron has kernels of its
// own for bias and activation, for dropout and residual, and for softmax. Gradients: what each does by default.
constexpr Software kSoftware[] = {
    {"jax", 3, 1, "overlap", "XLA's scheduler"},
    {"torch-compile", 3, 1, "overlap", "compiled graphs, and the buckets of DistributedDataParallel"},
    {"torch-eager", 100, 2, "overlap", "Python for every operation, and the buckets of DistributedDataParallel"},
    {"megatron", 100, 1, "after", "Python for every operation; without --overlap-grad-reduce"},
    {"deepspeed", 100, 2, "after", "Python for every operation; without overlap_comm"},
};

// "40", "2.5".
std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// "host_us=100,elementwise_passes=2": behind a device's name.
std::string changes_of(const Software& software) {
  const std::string passes = ",elementwise_passes=" + number(software.elementwise_passes);
  return "host_us=" + number(software.host_us) + (software.elementwise_passes == 1 ? "" : passes);
}

}  // namespace

std::vector<std::string> software_choices() {
  std::vector<std::string> names = {"any"};
  for (const Software& software : kSoftware) names.emplace_back(software.name);
  return names;
}

const Software* find_software(const std::string& name) {
  for (const Software& software : kSoftware) {
    if (name == software.name) return &software;
  }
  return nullptr;
}

void take_software(const Software& software, OptionTable& table) {
  table.set_unless_given("gradient-sync", software.gradient_sync, "--software");
}

std::optional<machine::DeviceModel> with_its_times(const Software& software, machine::Cluster* cluster) {
  const std::string type = cluster->servers.front().device;
  for (const machine::ServerGroup& servers : cluster->servers) {
    if (servers.device == type && machine::find_device(type) && cluster->devices.at(type).relative_speed == 1) continue;
    throw Error(ErrorKind::kUsage,
                std::string("--software ") + software.name + " has times of its own, and cluster '" + cluster->name +
                    "' has devices of several types, or that no table knows",
                "drop --software; --device DEVICE:" + changes_of(software) + " says it of a device");
  }
  const machine::DeviceModel had_times = machine::load_device(type);
  if (had_times.host_us == software.host_us && had_times.elementwise_passes == software.elementwise_passes) {
    return std::nullopt;
  }
  machine::DeviceModel device = machine::load_device(type + ":" + changes_of(software));
  // Memory is what the cluster has, as before.
  machine::DeviceType had = cluster->devices.at(type);
  planners::set_device(device, cluster);
  cluster->devices.at(device.name) = std::move(had);
  return device;
}

std::string software_text(const Software& software, const std::optional<machine::DeviceModel>& device,
                          const OptionTable& table) {
  const double host_us = device ? device->host_us : software.host_us;
  const double passes = device ? device->elementwise_passes : software.elementwise_passes;
  return std::string("software ") + software.name + ": " + number(host_us) + " us of host time for a kernel, " +
         (passes == 1 ? "" : "what one fused kernel moves moved " + number(passes) + " times, ") + "gradients summed " +
         (table.value_of("gradient-sync") == "after" ? "behind" : "beside") + " the last backward pass (" +
         software.basis + ")";
}

}  // namespace automap::infer
