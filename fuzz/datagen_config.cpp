// Configurations of random rows.
#include "datagen/config.h"
#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] { datagen::parse_config(fuzz::text_of(data, size), "fuzz"); });
}
