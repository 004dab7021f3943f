#include "infer/software.h"

#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/machine/link_kinds.h"
#include "plan/planners/own_device.h"

namespace automap::infer {
namespace {

using machine::kCompiledHostUs;

// A compiled step launches a kernel every 3 us. Python, its dispatcher and autograd take some 10 us for an operation,
// and what is counted here as one kernel are about eight of them, forward and backward: the steps of small GPT models
// that were published take the same time at every width of tensor parallelism, and as long as with 80 us. Between
// operations tensors are written and read again, twice in all by published steps of BERT and MPT; Megatron has kernels
// of its own for bias and activation, for dropout and residual, and for softmax. Gradients: what each does by default.
//
// State: autocast and fully_shard leave weights f32, and .grad is of their type. Megatron's and DeepSpeed's models are
// cast, and the optimizer has f32 copies: 18 bytes a parameter with Megatron's --bf16, whose gradients are added up in
// f32, 16 otherwise (without a distributed optimizer; ZeRO's paper, section 3.1).
constexpr Software kSoftware[] = {
    {"jax", kCompiledHostUs, 1, "overlap", "XLA's scheduler", {}, {}},
    {"torch-compile", kCompiledHostUs, 1, "overlap", "the buckets of DistributedDataParallel", {4, 4}, {4, 4}},
    {"torch-eager", 80, 2, "overlap", "the buckets of DistributedDataParallel", {4, 4}, {4, 4}},
    {"megatron", 80, 1, "after", "without --overlap-grad-reduce", {2, 4}, {2, 2}},
    {"deepspeed", 80, 2, "after", "without overlap_comm", {2, 2}, {2, 2}},
};

// The software that frameworks run in by default. torchtitan compiles only where its configuration says so, and the
// configuration that is emitted does not.
constexpr const char* kImplied[][2] = {{"jax", "jax"},           {"maxtext", "jax"},
                                       {"torch", "torch-eager"}, {"torchtitan", "torch-eager"},
                                       {"megatron", "megatron"}, {"deepspeed", "deepspeed"}};

// "40", "2.5".
std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// "host_us=80,elementwise_passes=2": behind a device's name.
std::string changes_of(const Software& software) {
  const std::string passes = ",elementwise_passes=" + number(software.elementwise_passes);
  return "host_us=" + number(software.host_us) + (software.elementwise_passes == 1 ? "" : passes);
}

// The reason why the cluster's devices cannot have the software's times, as the end of a sentence; empty: they can.
std::string without_its_times(const machine::Cluster& cluster) {
  for (const machine::ServerGroup& servers : cluster.servers) {
    if (machine::find_device(servers.device) && cluster.devices.at(servers.device).relative_speed == 1) continue;
    return "cluster '" + cluster.name + "' has devices that no table knows";
  }
  return "";
}

// The first of the cluster's devices, where all are of one type.
std::optional<machine::DeviceModel> with_its_times(const Software& software, machine::Cluster* cluster) {
  const auto named = [&](const std::string& type) { return type + ":" + changes_of(software); };
  std::map<std::string, machine::DeviceType> types;
  for (machine::ServerGroup& servers : cluster->servers) {
    // Memory is what the cluster has, as before.
    types[named(servers.device)] = cluster->devices.at(servers.device);
    servers.device = named(servers.device);
  }
  cluster->devices = std::move(types);
  if (cluster->devices.size() > 1) return std::nullopt;
  return machine::load_device(cluster->servers.front().device);
}

}  // namespace

std::vector<std::string> software_choices() {
  std::vector<std::string> names = {"auto", "any"};
  for (const Software& software : kSoftware) names.emplace_back(software.name);
  return names;
}

const Software* find_software(const std::string& name, const planners::Framework& framework) {
  std::string wanted = name;
  for (const auto& [of, implied] : kImplied) {
    if (name == "auto" && std::string(of) == framework.name) wanted = implied;
  }
  for (const Software& software : kSoftware) {
    if (wanted == software.name) return &software;
  }
  return nullptr;
}

bool has_times(const Software& software) {
  return software.host_us != kCompiledHostUs || software.elementwise_passes != 1;
}

void keep_state_of(const Software* software, InferOptions* options) {
  options->input.software = options->state_factor == "auto" ? software : nullptr;
}

RunsIn run_in(const Software* software, bool named, bool profile, InferOptions* options, machine::Cluster* cluster) {
  RunsIn out{software, false};
  InputOptions* const input = &options->input;
  const std::string& device = options->device;
  keep_state_of(software, options);
  if (!device.empty()) {
    input->device = machine::load_device(device);
    planners::set_device(*input->device, cluster);
  } else if (software != nullptr && has_times(*software)) {
    const std::string why = profile ? input_name(input->path) + " is a profile already" : without_its_times(*cluster);
    out.timed = why.empty();
    if (out.timed) {
      input->device = with_its_times(*software, cluster);
    } else if (named) {
      throw Error(ErrorKind::kUsage, std::string("--software ") + software->name + " has times of its own, and " + why,
                  "drop --software; --device DEVICE:" + changes_of(*software) +
                      " says it of a device (of automap-profile, which makes profiles)");
    } else {
      log_warning(std::string("times are those of a compiled step, not of ") + software->name + " with " +
                  number(software->host_us) + " us of host time a kernel, since " + why);
    }
  }
  *cluster = machine::with_link_kinds(std::move(*cluster));
  return out;
}

std::string whose_times(const RunsIn& runs_in) {
  return runs_in.timed ? runs_in.software->name : "a compiled step";
}

std::string software_text(const Software& software, const std::optional<machine::DeviceModel>& device,
                          const OptionTable& table) {
  const double host_us = device ? device->host_us : software.host_us;
  const double passes = device ? device->elementwise_passes : software.elementwise_passes;
  const std::string sync = table.value_of("gradient-sync");
  return std::string("software ") + software.name + ": " + number(host_us) + " us of host time for a kernel, " +
         (passes == 1 ? "" : number(passes) + " times the traffic of fused elementwise kernels, ") +
         "gradients summed " + (sync == "after" ? "behind" : "beside") + " the last backward pass" +
         (sync == software.gradient_sync ? std::string(" (") + software.sync_basis + ")" : "");
}

std::string state_text(const Software& software, const TrainingState& state) {
  return std::string(software.name) + " keeps " + number(state.weight) + " bytes of weights and " +
         number(state.gradient) + " of gradients for each parameter" +
         (state.copies() ? ", and an f32 copy beside the optimizer's moments" : "") + ", not what the module keeps";
}

std::string assumed_text(const Software& software, bool timed, const std::optional<machine::DeviceModel>& device) {
  const double host_us = device ? device->host_us : timed ? software.host_us : kCompiledHostUs;
  if (host_us == kCompiledHostUs) return "";
  return number(host_us) + " us of host time a kernel, as " +
         (host_us == software.host_us ? std::string(software.name) + " takes" : "--device says") +
         " (--software jax: " + number(kCompiledHostUs) + " us)";
}

}  // namespace automap::infer
