// Lists of variables, of every form.
#include "common/graph/variables.h"

#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] { graph::parse_variable_list(fuzz::text_of(data, size), "fuzz"); });
}
