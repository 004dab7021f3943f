// Fuzzes states of online searches, with a right checksum; a state that was read is written.
#include "plan/planners/learned/online_state.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] {
    planners::load_online_state(fuzz::path_of_file_with(fuzz::with_right_crc(fuzz::text_of(data, size))), std::nullopt);
  });
}
