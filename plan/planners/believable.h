// Estimates the expected error of the numbers under a plan, and names the source of each estimate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/pipeline/profile.h"

namespace automap::planners {

// Shares of the value: 0.1 stands for values from 1 / 1.1 to 1.1 times as large. 0: not asked about.
struct ExpectedErrors {
  double compute_less = 0, compute_more = 0;   // times of kernels: from 1 / (1 + less) to 1 + more times as long
  double links_inside = 0, links_between = 0;  // bandwidth, of servers; 0 where the cluster has no such links
  double memory = 0;                           // activations and workspace
};

// The largest over the devices and links of the cluster.
ExpectedErrors expected_errors(const pipeline::Profile& profile, const machine::Cluster& cluster);

// States the expected errors in sentences: that of each kind of device with what it was measured on, and which of the
// constants that matter for the profile's work are assumptions; the links; memory. `own`: the device of a file, where
// one was given.
std::vector<std::string> expected_errors_text(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                              const std::optional<machine::DeviceModel>& own = {});

}  // namespace automap::planners
