#include "common/base/progress.h"

#include <gtest/gtest.h>

namespace automap {
namespace {

TEST(Progress, OnATerminalOneLineAfterHalfASecondTenTimesASecond) {
  double now = 100;
  std::string out;
  int writes = 0;
  {
    Progress progress(
        "search", 5000000, "plans", [&] { return now; }, [&](const std::string& s) { out = s, ++writes; }, 100);
    for (int i = 0; i <= 200; ++i) {
      now = 100 + i * 0.01;
      progress.update(static_cast<std::uint64_t>(i) * 1000, "best 812 ms");
      if (now < 100.49) {
        EXPECT_EQ(writes, 0);
      }
    }
    EXPECT_GE(writes, 10);
    EXPECT_LE(writes, 17);
    EXPECT_EQ(out.rfind("\r", 0), 0u);
    EXPECT_NE(out.find("search  3 %  192k/5.00M plans  100k/s  ETA 00:48  best 812 ms"), std::string::npos) << out;
  }
  EXPECT_EQ(out, "\r\x1b[K");
}

TEST(Progress, SaysNoTimeThatIsNoEstimate) {
  double now = 0;
  std::string out;
  Progress progress(
      "planning", 1'000'000, "", [&] { return now; }, [&](const std::string& s) { out += s; }, 100);
  now = 1;
  progress.update(1);  // at this rate 11 days
  EXPECT_NE(out.find("planning  0 %"), std::string::npos) << out;
  EXPECT_EQ(out.find("ETA"), std::string::npos) << out;
  now = 2;
  progress.update(10);  // 55 hours
  EXPECT_NE(out.find("ETA"), std::string::npos) << out;
}

TEST(Progress, SaysAtOnceWhatAJobHasFound) {
  double now = 10;
  std::string out;
  Progress progress(
      "planning", 0, "", [&] { return now; }, [&](const std::string& s) { out = s; }, 40);
  now = 10.2;
  progress.say("best so far 812 ms");
  EXPECT_EQ(out, "\r\x1b[Kplanning  00:00  best so far 812 ms");
  now = 13;
  progress.update(5);
  EXPECT_EQ(out, "\r\x1b[Kplanning  00:03  best so far 812 ms");
  progress.say("best so far 349 ms: 1 stage on 32 devices");
  EXPECT_EQ(out, "\r\x1b[Kplanning  00:03  best so far 349 ms: 1…");
  progress.finish();
  EXPECT_EQ(out, "\r\x1b[K");
}

TEST(Progress, SaysIsPatientElsewhere) {
  double now = 0;
  std::string out;
  Progress progress(
      "planning", 0, "", [&] { return now; }, [&](const std::string& s) { out += s; }, 0);
  now = 1;
  progress.say("best so far 812 ms");
  EXPECT_EQ(out, "");
  now = 31;
  progress.update(1);
  EXPECT_EQ(out, "planning  00:31  best so far 812 ms\n");
}

TEST(Progress, ElsewhereAPlainLineEveryHalfMinute) {
  double now = 0;
  std::string out;
  Progress progress(
      "read", 0, "rows", [&] { return now; }, [&](const std::string& s) { out += s; }, 0);
  for (int i = 0; i <= 70; ++i) {
    now = i;
    progress.update(static_cast<std::uint64_t>(i));
  }
  progress.finish();
  EXPECT_EQ(out, "read  30 rows  1/s\nread  60 rows  1/s\n");
}

}  // namespace
}  // namespace automap
