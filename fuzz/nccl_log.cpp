// Logs of nccl-tests.
#include "common/machine/nccl_log.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] { machine::parse_nccl_log(fuzz::text_of(data, size), "fuzz"); });
}
