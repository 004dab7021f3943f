#include "plan/planners/expected_error.h"

#include <gtest/gtest.h>

#include "common/machine/device.h"

namespace automap::planners {
namespace {

TEST(ExpectedError, NamesWhatItWasMeasuredOnOrNothing) {
  const ExpectedError measured = compute_error("v100-32gb", "matmul f16");
  EXPECT_LT(measured.less, measured.more);  // most steps take longer than estimated
  EXPECT_NE(measured.basis.find("V100"), std::string::npos);
  // An alias, and a successor with the same cores.
  EXPECT_EQ(compute_error("h100-80gb", "matmul bf16").more, compute_error("h200", "matmul bf16").more);
  EXPECT_EQ(compute_error("v100-16gb", "convolution f16").basis, "");
}

TEST(ExpectedError, OfUnknownWorkIsTheLargestOfTheDevice) {
  for (const std::string& device : machine::device_names()) {
    const ExpectedError unknown = compute_error(device, "");
    EXPECT_EQ(unknown.basis, "");
    for (const char* work : {"matmul f16", "matmul bf16", "matmul f32"}) {
      const ExpectedError known = compute_error(device, work);
      if (!known.basis.empty()) {
        EXPECT_LE(known.less, unknown.less) << device << " " << work;
        EXPECT_LE(known.more, unknown.more) << device << " " << work;
      }
    }
  }
  EXPECT_EQ(compute_error("my accelerator", "matmul f16").basis, "");
  EXPECT_GT(compute_error("my accelerator", "matmul f16").more, 0.1);
}

TEST(ExpectedError, MeasuredLinksAreNearerThanFormulas) {
  EXPECT_LT(link_error(true).more, link_error(false).more);
  EXPECT_EQ(link_error(false).basis, "");
  EXPECT_GT(memory_error().larger(), 0);
}

}  // namespace
}  // namespace automap::planners
