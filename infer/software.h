// --software: what a step costs in the software that runs it, as far as that is no fact of the model and the devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"

namespace automap::infer {

struct Software {
  const char* name;
  double host_us;             // between two launches by the host, for a kernel as it is counted here
  double elementwise_passes;  // DeviceModel
  const char* gradient_sync;  // as --gradient-sync
  const char* basis;          // for people: where these are from
};

// "any", which changes nothing, and the others.
std::vector<std::string> software_choices();
// Null: "any".
const Software* find_software(const std::string& name);

// Sets what the command line leaves open to what the software does, but for the times of its kernels.
void take_software(const Software& software, OptionTable& table);
// The cluster's devices with what the software makes of kernels' times, which stand for them from now on; nothing where
// they have it. Throws Error(kUsage) where they are of several types, or not of the table at its own speed: --device
// says it then.
std::optional<machine::DeviceModel> with_its_times(const Software& software, machine::Cluster* cluster);
// "software megatron: 100 us of host time for a kernel, gradients summed behind the last backward pass (...)", of what
// counts. `device`: that of the times, where it is one of its own.
std::string software_text(const Software& software, const std::optional<machine::DeviceModel>& device,
                          const OptionTable& table);

}  // namespace automap::infer
