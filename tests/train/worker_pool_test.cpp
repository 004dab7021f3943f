#include "train/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace automap::train {
namespace {

TEST(WorkerPool, EveryTaskOnceForAnyNumberOfThreads) {
  for (const int background : {0, 1, 2, 5}) {
    WorkerPool pool(background);
    EXPECT_EQ(pool.threads(), background + 1);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{500}}) {
      std::vector<int> times(count);
      pool.start(count, [&](std::size_t i) { ++times[i]; });
      pool.wait();
      for (const int t : times) EXPECT_EQ(t, 1);
    }
  }
}

TEST(WorkerPool, ManyShortJobsOneAfterTheOther) {
  WorkerPool pool(3);
  std::atomic<long> sum{0};
  for (int job = 0; job < 2000; ++job) {
    pool.start(3, [&](std::size_t i) { sum += static_cast<long>(i); });
    pool.wait();
    ASSERT_EQ(sum.load(), 3 * (job + 1));
  }
}

TEST(WorkerPool, TheCallerWorksWhileTheJobRuns) {
  WorkerPool pool(1);
  std::atomic<int> done{0};
  pool.start(50, [&](std::size_t) { ++done; });
  pool.wait();
  EXPECT_EQ(done.load(), 50);
  WorkerPool alone(0);
  alone.start(2, [&](std::size_t) { ++done; });
  alone.wait();
  EXPECT_EQ(done.load(), 52);
}

TEST(WorkerPool, AFailureIsThrownByWaitAndEndsTheJob) {
  for (const int background : {0, 2}) {
    WorkerPool pool(background);
    std::atomic<int> begun{0};
    pool.start(100000, [&](std::size_t i) {
      ++begun;
      if (i == 3) throw std::runtime_error("task 3");
    });
    try {
      pool.wait();
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(std::string(e.what()), "task 3");
    }
    EXPECT_LT(begun.load(), 100000);
    // The pool goes on.
    std::atomic<int> done{0};
    pool.start(10, [&](std::size_t) { ++done; });
    pool.wait();
    EXPECT_EQ(done.load(), 10);
  }
}

}  // namespace
}  // namespace automap::train
