// Plan files: automap.plan/1 to 3 and minimal ones.
#include "infer/plan_file.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] { infer::read_plan_file(fuzz::path_of_file_with(fuzz::text_of(data, size))); });
}
