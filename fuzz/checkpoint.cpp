// Training checkpoints, with a checksum that is right.
#include "train/checkpoint.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse(
      [&] { train::load_checkpoint(fuzz::path_of_file_with(fuzz::with_right_crc(fuzz::text_of(data, size)))); });
}
