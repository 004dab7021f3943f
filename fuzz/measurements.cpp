// Measured kernels of a device (--calibrate).
#include "fuzz/reader.h"
#include "profile/calibration.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] {
    const profile::Measurements measured = profile::parse_measurements(fuzz::text_of(data, size), "fuzz");
    for (const profile::MeasuredKernel& kernel : measured.kernels) profile::kernel_module(kernel);
  });
}
