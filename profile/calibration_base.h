// Identifies the device of a file of measurements and checks that its times are possible; for calibrate().
#pragma once

#include <string>

#include "common/machine/device.h"
#include "profile/calibration.h"

namespace automap::profile {

// Multiplications of a product or convolution (all of its window, also beyond the edge), elements of a softmax or copy,
// products of a launch; 1 for a module.
double kernel_work(const MeasuredKernel& kernel);

struct Base {
  machine::DeviceModel device;
  bool known = false;  // from the table or a file; else its peaks are the best that was measured
};
// Finds the base of the fit, as calibrate() says of its `base`. The name decides first: a generation of the table is
// recognised where its name is a word of the measured one ("NVIDIA A100-SXM4-40GB", not "A1000"). Where the name does
// not tell the variant, the one with the nearest memory is taken, since JAX, for one, reports the memory that it may
// use.
Base base_of(const Measurements& measured, const std::string& base, const std::string& source);

// Throws Error(kData) naming measured[i]: times that no device, or not this one, can reach; two of the same kernel that
// differ kTwiceApart times; a larger kernel that takes less than half of a smaller one's time. A few microseconds are
// left to the clock: scripts/measure_device.py subtracts an empty call.
constexpr double kTwiceApart = 3;
void check_times(const Measurements& measured, const Base& base, const std::string& source);

}  // namespace automap::profile
