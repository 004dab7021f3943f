#include "common/base/text_table.h"

#include <gtest/gtest.h>

#include "common/base/suggest.h"

namespace automap {
namespace {

TEST(TextTable, Aligns) {
  TextTable table({{"stage"}, {"layer", TextTable::Align::kLeft}, {"ms"}});
  table.add_row({"1", "h/0", "12.3"});
  table.add_row({"10", "höhe", "1"});
  EXPECT_EQ(table.render("  "),
            "  stage  layer    ms\n"
            "  -----  -----  ----\n"
            "      1  h/0    12.3\n"
            "     10  höhe      1\n");
}

TEST(TextTable, Milliseconds) {
  EXPECT_EQ(format_ms(0), "0 ms");
  EXPECT_EQ(format_ms(0.000012), "0.0120 µs");
  EXPECT_EQ(format_ms(0.045), "45.0 µs");
  EXPECT_EQ(format_ms(0.1), "0.100 ms");
  EXPECT_EQ(format_ms(9.996), "10.0 ms");
  EXPECT_EQ(format_ms(999.4), "999 ms");
  EXPECT_EQ(format_ms(999.6), "1.00 s");
  EXPECT_EQ(format_ms(61000), "61.0 s");
  EXPECT_EQ(format_ms(600000), "10.0 min");
}

TEST(TextTable, BytesPercentNumbers) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(16.0 * (1 << 30)), "16.0 GiB");
  EXPECT_EQ(format_bytes(1023.0 * 1024), "0.999 MiB");
  EXPECT_EQ(format_percent(0), "0 %");
  EXPECT_EQ(format_percent(0.0123), "1.2 %");
  EXPECT_EQ(format_percent(0.0005), "0.05 %");
  EXPECT_EQ(format_percent(-0.25), "-25.0 %");
  EXPECT_EQ(format_percent(12.5), "1250 %");
  EXPECT_EQ(format_number(0.01234), "0.0123");
  EXPECT_EQ(format_number(99.96), "100");
  EXPECT_EQ(format_number(123456), "123456");
  EXPECT_EQ(format_count(1234567), "1 234 567");
  EXPECT_EQ(format_count(-999), "-999");
  EXPECT_EQ(format_count(0), "0");
}

TEST(TextTable, ShortensInTheMiddle) {
  EXPECT_EQ(shorten("encoder/layer/17", 16), "encoder/layer/17");
  EXPECT_EQ(shorten("encoder/layer/17", 9), "enco…r/17");
  EXPECT_EQ(display_width(shorten("größere/schräge/blöcke", 11)), 11);
}

TEST(Suggest, FindsSlipsAndAbbreviations) {
  const std::vector<std::string> known = {"micro-batches", "max-stages", "stages", "planner"};
  EXPECT_EQ(closest_name("stage", known), "stages");
  EXPECT_EQ(closest_name("sTages", known), "stages");
  EXPECT_EQ(closest_name("plnaner", known), "planner");
  EXPECT_EQ(closest_name("micro", known), "micro-batches");
  EXPECT_EQ(closest_name("memory", known), "");
  EXPECT_EQ(closest_name("", known), "");
  // A letter that is missing counts, however many are.
  EXPECT_EQ(closest_name("seed", {"some-other-extended", "speed"}), "speed");
  EXPECT_EQ(closest_name("seed", {"some-other-extended"}), "");
}

TEST(Format, Plural) {
  EXPECT_EQ(plural(1, "variable"), "1 variable");
  EXPECT_EQ(plural(0, "variable"), "0 variables");
  EXPECT_EQ(plural(2, "box"), "2 boxes");
}

TEST(SpansText, JoinsNumbersThatFollowOneAnother) {
  EXPECT_EQ(span_text(3, 3), "3");
  EXPECT_EQ(spans_text({}), "");
  EXPECT_EQ(spans_text({1, 2, 3, 4, 9}), "1-4, 9");
  EXPECT_EQ(spans_text({9, 10, 1, 3, 2}), "9-10, 1, 3, 2");
}

}  // namespace
}  // namespace automap
