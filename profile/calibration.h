// Fits a device's constants to times that its owner measured: scripts/measure_device.py writes them (schema
// automap.measurements/1), calibrate() fits a machine::DeviceModel to them, automap-profile --calibrate writes that as
// a device file (docs/device-model.md, "Your own device").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/machine/device.h"
#include "common/machine/link_fit.h"

namespace automap::profile {

// One kernel that was timed.
struct MeasuredKernel {
  std::string kind;                           // "matmul", "convolution", "softmax", "copy", "launch", "module"
  std::string type;                           // "f32", "bf16", "f16"
  std::map<std::string, std::int64_t> sizes;  // by name, as the kind has them
  std::string hlo;                            // of a "module"
  double ms = 0;
  int row = 0;  // its place in the file: measured[row]
};

struct Measurements {
  std::string device;  // what the framework calls it
  std::string framework;
  int cores = 1;
  double memory_gib = 0;
  std::vector<MeasuredKernel> kernels;
  std::map<int, std::vector<machine::MeasuredTime>> all_reduce;  // by number of devices, sizes ascending
};

// Throws Error(kConfig) naming the element: no measurements, an unknown kind or size, times that are not above 0, fewer
// than kLeastSizes different sizes of matrix products in f32 or of copies, all-reduces that break the rules of cluster
// files (common/machine/collectives_json.h).
constexpr int kLeastSizes = 3;
Measurements parse_measurements(std::string_view json_text, const std::string& source);

// HLO of a kernel, as the device model sees it.
std::string kernel_module(const MeasuredKernel& kernel);

struct Calibration {
  machine::DeviceModel device;
  struct Errors {  // of one kind, |predicted / measured - 1|
    std::string kind;
    int sizes = 0;
    double median = 0, largest = 0;
  };
  std::vector<Errors> errors;
  // The all-reduces that link_gbytes_per_s is fitted to; none: it is `base`'s, or 0.
  int link_devices = 0, link_sizes = 0;
  double link_error = 0;  // the largest
  // Constants that the fit would have moved further than it may, as "memory_efficiency = 0.02".
  std::vector<std::string> at_bound;
};

// `base`: a known name or file whose peaks are the device's, or "": those of the known device that the measurements
// name, else the best that was measured counts as the peak. Of what was not measured the constants stay `base`'s, or
// assumptions. Throws Error(kConfig) when the measurements are of another device than `base`, by name or memory, or
// leave open which one, and Error(kData), naming measured[i], when times contradict each other or the device's peaks,
// or a module cannot be read.
Calibration calibrate(const Measurements& measured, const std::string& base, const std::string& source);

// Doubts about the fit, a line each: kinds that it misses by kDoubtful in the median, constants at a bound.
constexpr double kDoubtful = 0.3;
std::vector<std::string> calibration_warnings(const Calibration& calibration);
// The text for people: the device, its link, the error of the fit by kind, and the warnings.
std::string calibration_text(const Calibration& calibration);

}  // namespace automap::profile
