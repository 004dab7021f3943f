#include "infer/software.h"

#include <sstream>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "plan/planners/own_device.h"

namespace automap::infer {
namespace {

// A compiled step launches a kernel every 3 us. Python and its dispatcher take some 10 us for an operation, and what is
// counted here as one kernel are three to four operations of eager software; published steps of GPT on one server of
// A100s are ranked best with 40 us. Gradients: what each does by default.
constexpr Software kSoftware[] = {
    {"jax", 3, "overlap", "XLA's scheduler"},
    {"torch-compile", 3, "overlap", "compiled graphs, and the buckets of DistributedDataParallel"},
    {"torch-eager", 40, "overlap", "Python for every operation, and the buckets of DistributedDataParallel"},
    {"megatron", 40, "after", "Python for every operation; without --overlap-grad-reduce"},
    {"deepspeed", 40, "after", "Python for every operation; without overlap_comm"},
};

// "40", "2.5".
std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
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

std::optional<machine::DeviceModel> with_host_time(const Software& software, machine::Cluster* cluster) {
  const std::string type = cluster->servers.front().device;
  for (const machine::ServerGroup& servers : cluster->servers) {
    if (servers.device == type && machine::find_device(type) && cluster->devices.at(type).relative_speed == 1) continue;
    throw Error(ErrorKind::kUsage,
                std::string("--software ") + software.name + " has a host time of its own, and cluster '" +
                    cluster->name + "' has devices of several types, or that no table knows",
                "drop --software; --device DEVICE:host_us=" + number(software.host_us) + " says it of a device");
  }
  if (machine::load_device(type).host_us == software.host_us) return std::nullopt;
  machine::DeviceModel device = machine::load_device(type + ":host_us=" + number(software.host_us));
  // Memory is what the cluster has, as before.
  machine::DeviceType had = cluster->devices.at(type);
  planners::set_device(device, cluster);
  cluster->devices.at(device.name) = std::move(had);
  return device;
}

std::string software_text(const Software& software, const std::optional<machine::DeviceModel>& device,
                          const OptionTable& table) {
  const double host_us = device ? device->host_us : software.host_us;
  return std::string("software ") + software.name + ": " + number(host_us) +
         " us of host time for a kernel, gradients summed " +
         (table.value_of("gradient-sync") == "after" ? "behind" : "beside") + " the last backward pass (" +
         software.basis + ")";
}

}  // namespace automap::infer
