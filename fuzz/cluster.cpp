// Fuzzes cluster files, with their measured collectives; a cluster that was read is asked for its numbers.
#include "common/machine/cluster.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] { machine::parse_cluster(fuzz::text_of(data, size), "fuzz"); });
}
