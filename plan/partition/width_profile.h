// Adds the columns of replicas of several devices (widths.h) to a module's profile.
#pragma once

#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "plan/partition/widths.h"
#include "profile/profile_hlo.h"

namespace automap::partition {

// profile::profile_module on `devices`, with Profile::widths for those of `widths` (beyond 1) at which something of the
// module can be split. The collectives of a width are between devices of a server of `cluster`. request.widths is not
// looked at. `why_none`: empty, or why there is none of the widths.
profile::ModelProfile profile_with_widths(const hlo::HloModule& module, const std::string& source,
                                          profile::ProfileRequest request,
                                          const std::vector<machine::DeviceModel>& devices,
                                          const machine::Cluster& cluster, const std::vector<int>& widths,
                                          const WidthChoices& choices, std::string* why_none);
// The same with the columns of partitions that were found.
profile::ModelProfile profile_with_partitions(const hlo::HloModule& module, const std::string& source,
                                              profile::ProfileRequest request,
                                              const std::vector<machine::DeviceModel>& devices,
                                              const machine::Cluster& cluster, std::vector<WidthPlan> widths,
                                              const WidthChoices& choices);

// Times as a profile file keeps them, so that a model and its profile give the same plan.
void round_times(pipeline::Profile* profile);

}  // namespace automap::partition
