// What a host that launches kernels one after the other adds to a pass.
//
// Launches are asynchronous: a host that has launched a long kernel runs ahead of its device and launches the next ones
// meanwhile. So no single kernel waits, but a pass takes at least as long as the host needs for all its launches
// (DeviceModel::host_us each). Optimizers update many variables by one launch and wait for nothing.
#pragma once

#include <vector>

namespace automap::profile {

// `device_ms`: what the device takes, `host_ms`: what the host needs to launch it, both by position, of one pass. Where
// the host needs longer in all, `device_ms` is lengthened to its time, in proportion to the launches.
void wait_for_host(std::vector<double>* device_ms, const std::vector<double>& host_ms);

}  // namespace automap::profile
