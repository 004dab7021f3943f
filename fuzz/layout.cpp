// Layouts in AutoMap's words and in those of frameworks.
#include "common/base/check.h"
#include "fuzz/reader.h"
#include "plan/emit/read_words.h"
#include "plan/planners/score.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::read_or_refuse([&] {
    const std::string written = planners::parse_layout(text, {}).text();
    AM_CHECK(planners::parse_layout(written, {}).text() == written);
  });
  return fuzz::read_or_refuse([&] {
    if (const auto words = emit::read_words(text)) planners::parse_layout(words->layout, {});
  });
}
