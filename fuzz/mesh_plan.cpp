// Fuzzes partition plans of two axes: a plan that was read must write the same text again.
#include "plan/partition/mesh_plan.h"

#include "common/base/check.h"
#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] {
    const std::string text = partition::to_json_text(partition::parse_mesh_plan(fuzz::text_of(data, size), "fuzz"));
    AM_CHECK(partition::to_json_text(partition::parse_mesh_plan(text, "again")) == text);
  });
}
