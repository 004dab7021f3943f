#include "common/base/work.h"

#include <gtest/gtest.h>

#include <string>

namespace automap {
namespace {

TEST(Work, EndsWhenItsUnitsAreSpentAndReadsNoClock) {
  int reads = 0, polls = 0;
  WorkLimits limits = WorkLimits::of_units(100);
  limits.clock = [&] { return ++reads * 1e6; };
  limits.cancelled = [&] {
    ++polls;
    return false;
  };
  Work work(limits);
  EXPECT_FALSE(work.over());
  work.spend(99);
  EXPECT_EQ(work.left(), 1);
  EXPECT_FALSE(work.over());
  EXPECT_EQ(polls, 2);
  work.spend(5);
  EXPECT_TRUE(work.over());
  EXPECT_EQ(work.left(), 0);
  EXPECT_EQ(work.spent(), 104);
  EXPECT_FALSE(work.stopped());
  EXPECT_EQ(polls, 2);  // what is spent is spent: nobody is asked
  EXPECT_EQ(reads, 0);
}

TEST(Work, IsStoppedByTheClockWhereALimitIsGiven) {
  double now = 1000;
  WorkLimits limits = WorkLimits::of_seconds(2);
  limits.clock = [&] { return now; };
  Work work(limits);
  work.spend(1'000'000'000'000);
  EXPECT_FALSE(work.over());
  now = 1001.9;
  EXPECT_FALSE(work.over());
  now = 1002;
  EXPECT_TRUE(work.over());
  EXPECT_TRUE(work.stopped());
  now = 0;
  EXPECT_TRUE(work.over());  // from then on

  // Units that were spent before: the clock makes no difference any more.
  now = 1000;
  limits.units = 10;
  Work small(limits);
  small.spend(10);
  now = 2000;
  EXPECT_TRUE(small.over());
  EXPECT_FALSE(small.stopped());

  // A limit of years is none.
  int reads = 0;
  WorkLimits years = WorkLimits::of_seconds(1e9);
  years.clock = [&] { return ++reads * 1e12; };
  Work long_work(years);
  EXPECT_FALSE(long_work.over());
  EXPECT_EQ(reads, 0);
}

TEST(Work, IsStoppedByTheCaller) {
  int polls = 0;
  Work work(WorkLimits::until([&] { return ++polls > 2; }));
  EXPECT_FALSE(work.over());
  EXPECT_FALSE(work.over());
  EXPECT_TRUE(work.over());
  EXPECT_TRUE(work.over());
  EXPECT_EQ(polls, 3);
  EXPECT_TRUE(work.stopped());
  Work without_end;
  without_end.spend(1);
  EXPECT_FALSE(without_end.over());
  EXPECT_EQ(without_end.left(), WorkLimits::kNoEnd);
}

TEST(Work, PartsSpendTheWhole) {
  Work whole(WorkLimits::of_units(100));
  Work part(whole, 60);
  Work smaller(part, 1000);
  EXPECT_EQ(smaller.left(), 60);
  smaller.spend(50);
  EXPECT_EQ(whole.spent(), 50);
  EXPECT_EQ(part.spent(), 50);
  EXPECT_FALSE(smaller.over());
  smaller.spend(10);
  EXPECT_TRUE(smaller.over());  // its own limit was not what ended it
  EXPECT_TRUE(part.over());
  EXPECT_FALSE(whole.over());
  EXPECT_FALSE(smaller.stopped());
  Work second(whole, 60);
  second.spend(40);
  EXPECT_TRUE(second.over());
  EXPECT_TRUE(whole.over());
  Work none(whole, -5);
  EXPECT_TRUE(none.over());
  EXPECT_EQ(none.left(), 0);
}

TEST(Work, WhatStopsTheWholeStopsItsParts) {
  bool stop = false;
  Work whole(WorkLimits::until([&] { return stop; }));
  Work part(whole, 1000), other(whole, 10);
  other.spend(10);
  EXPECT_FALSE(part.over());
  stop = true;
  EXPECT_TRUE(part.over());
  EXPECT_TRUE(part.stopped());
  EXPECT_TRUE(whole.stopped());
  EXPECT_TRUE(other.over());
  EXPECT_FALSE(other.stopped());
}

TEST(Deadline, IsTheTimeThatIsLeftForEveryPart) {
  double now = 100;
  bool stop = false;
  WorkLimits limits = WorkLimits::of_seconds(8);
  limits.clock = [&] { return now; };
  limits.cancelled = [&] { return stop; };
  const Deadline deadline(limits);
  EXPECT_FALSE(deadline.passed());
  now = 105;
  Work part(deadline.limits(50));
  EXPECT_FALSE(part.over());
  now = 107.5;
  EXPECT_FALSE(deadline.passed());
  EXPECT_FALSE(part.over());
  now = 108.5;
  EXPECT_TRUE(deadline.passed());
  EXPECT_TRUE(part.over());
  EXPECT_TRUE(part.stopped());
  Work of_units(Deadline(WorkLimits()).limits(10));
  of_units.spend(10);
  EXPECT_TRUE(of_units.over());
  EXPECT_FALSE(of_units.stopped());
  EXPECT_FALSE(Deadline(WorkLimits()).passed());
  now = 101;
  stop = true;
  EXPECT_TRUE(deadline.passed());
}

TEST(Effort, HasNames) {
  for (const std::string& name : effort_names()) {
    ASSERT_TRUE(parse_effort(name)) << name;
    EXPECT_EQ(to_string(*parse_effort(name)), name);
  }
  EXPECT_EQ(effort_names().size(), 3u);
  EXPECT_EQ(parse_effort("normal"), Effort::kNormal);
  EXPECT_FALSE(parse_effort("Normal"));
  EXPECT_FALSE(parse_effort(""));
}

}  // namespace
}  // namespace automap
