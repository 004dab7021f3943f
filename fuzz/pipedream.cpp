// PipeDream's graph.txt.
#include "common/io/pipedream.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] { io::parse_pipedream(fuzz::text_of(data, size), "fuzz"); });
}
