// The number of processors that this process may use.
#pragma once

#include <string_view>

namespace automap {

// Those that it may run on (sched_getaffinity), and no more than its container has time for (cgroup v2, cpu.max; v1,
// cpu.cfs_quota_us): with a quota of 3.5 processors on a machine of 64 it is 4. At least 1.
int usable_processors();

// The processors of a quota, rounded up: "350000 100000", a time in each period, gives 4. 0: no quota is set ("max
// 100000", "-1 100000", other text).
int processors_of_quota(std::string_view quota_and_period);

}  // namespace automap
