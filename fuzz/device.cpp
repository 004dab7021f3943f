// Files of device models.
#include "common/machine/device.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] { machine::parse_device(fuzz::text_of(data, size), "fuzz"); });
}
