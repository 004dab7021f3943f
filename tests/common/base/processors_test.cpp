#include "common/base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace automap {
namespace {

TEST(Processors, AQuotaIsRoundedUp) {
  EXPECT_EQ(processors_of_quota("350000 100000"), 4);
  EXPECT_EQ(processors_of_quota("400000 100000"), 4);
  EXPECT_EQ(processors_of_quota("5000 100000"), 1);
  EXPECT_EQ(processors_of_quota("1 9223372036854775807"), 1);
  EXPECT_EQ(processors_of_quota("9223372036854775807 1"), 1 << 20);
}

TEST(Processors, OtherTextIsNoQuota) {
  for (const char* text : {"", " ", "max 100000", "-1 100000", "0 100000", "100000", "100000 ", "100000 0", "100000 -1",
                           "100000 100000 1", "99999999999999999999 1", "1e5 100000", "a b"}) {
    EXPECT_EQ(processors_of_quota(text), 0) << text;
  }
}

TEST(Processors, AreNoMoreThanTheProcessMayRunOn) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const int all = usable_processors();
  EXPECT_GE(all, 1);
  EXPECT_LE(all, CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_processors(), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace automap
