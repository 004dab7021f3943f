#include "common/base/reason.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace automap {
namespace {

TEST(ReasonOf, DropsTheNameOfTheException) {
  EXPECT_EQ(reason_of(std::runtime_error("[json.exception.parse_error.101] parse error at line 1, column 2: bad")),
            "parse error at line 1, column 2: bad");
  EXPECT_EQ(reason_of(std::runtime_error("plain")), "plain");
  EXPECT_EQ(reason_of(std::runtime_error("")), "");
  EXPECT_EQ(reason_of(std::runtime_error("[1,2] is no number")), "is no number");
  EXPECT_EQ(reason_of(std::runtime_error("[unclosed")), "[unclosed");
}

}  // namespace
}  // namespace automap
