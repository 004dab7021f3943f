// Text made safe for pages and pictures.
#include "common/base/markup.h"

#include <gtest/gtest.h>

#include <limits>

namespace automap {
namespace {

TEST(Markup, HoldsNoMarkupAndNoControls) {
  EXPECT_EQ(escape_markup("a<\"b\"&\n"), "a&lt;&quot;b&quot;&amp;\\n");
  EXPECT_EQ(escape_markup("</script><script>'x'"), "&lt;/script&gt;&lt;script&gt;&#39;x&#39;");
  EXPECT_EQ(escape_lines("a\n<\x02"), "a\n&lt;\\x02");
  EXPECT_EQ(escape_markup("\x01\xff"), "\\x01\\xff");
}

TEST(Markup, NumbersAreNumbers) {
  EXPECT_EQ(markup_number(12), "12");
  EXPECT_EQ(markup_number(0.54), "0.5");
  EXPECT_EQ(markup_number(-0.01), "0");
  EXPECT_EQ(markup_number(std::numeric_limits<double>::quiet_NaN()), "0");
  EXPECT_EQ(markup_number(std::numeric_limits<double>::infinity()), "0");
  EXPECT_EQ(markup_number(1e300), "1000000000");
}

}  // namespace
}  // namespace automap
