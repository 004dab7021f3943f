#include "common/base/in_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/base/rng.h"

namespace automap {
namespace {

class LoopsInOrder : public testing::Test {
 protected:
  void TearDown() override { set_loop_threads(1); }
};

// Fails where nothing comes for a minute.
template <typename Condition>
void wait_until(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "waited in vain";
      return;
    }
    std::this_thread::yield();
  }
}

// Turns of random lengths; each is wanted while its bound is below the least of those taken.
struct Search {
  explicit Search(std::uint64_t seed) {
    Rng random(seed, 0, 0);
    double bound = 0;
    for (int i = 0; i < 60; ++i) {
      bound += random.uniform();
      bounds.push_back(bound);
      values.push_back(bound * (1 + 3 * random.uniform()));
      turns_of_sleep.push_back(static_cast<int>(random.uniform() * 4));
    }
  }
  std::vector<double> bounds, values;
  std::vector<int> turns_of_sleep;
};

// The loop as it is written down in in_order.h.
std::vector<std::size_t> taken_by_one_thread(const Search& search) {
  std::vector<std::size_t> taken;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < search.bounds.size() && search.bounds[i] < best; ++i) {
    best = std::min(best, search.values[i]);
    taken.push_back(i);
  }
  return taken;
}

TEST_F(LoopsInOrder, ComeToWhatOneThreadComesTo) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Search search(seed);
    const std::vector<std::size_t> expected = taken_by_one_thread(search);
    for (const int threads : {1, 2, 3, 7}) {
      set_loop_threads(threads);
      ASSERT_EQ(loop_threads(), threads);
      std::vector<std::size_t> taken;
      std::vector<double> results(search.bounds.size());
      double best = std::numeric_limits<double>::infinity();
      InOrder loop;
      loop.wanted = [&](std::size_t i) { return search.bounds[i] < best; };
      loop.work = [&](std::size_t i, const Dropped&) {
        std::this_thread::sleep_for(std::chrono::microseconds(50 * search.turns_of_sleep[i]));
        results[i] = search.values[i];
      };
      loop.take = [&](std::size_t i) {
        best = std::min(best, results[i]);
        taken.push_back(i);
      };
      run_in_order(search.bounds.size(), loop);
      EXPECT_EQ(taken, expected) << "seed " << seed << ", " << threads << " threads";
    }
  }
}

TEST_F(LoopsInOrder, TurnsRunBesideOneAnother) {
  set_loop_threads(2);
  std::atomic<int> inside{0};
  InOrder loop;
  // Each waits for the other: one thread alone would wait in vain.
  loop.work = [&](std::size_t, const Dropped&) {
    ++inside;
    wait_until([&] { return inside == 2; });
  };
  loop.take = [](std::size_t) {};
  run_in_order(2, loop);
  EXPECT_EQ(inside, 2);
}

TEST_F(LoopsInOrder, ATurnThatIsDroppedLearnsIt) {
  set_loop_threads(2);
  std::atomic<bool> second_runs{false};
  std::vector<std::size_t> taken;
  InOrder loop;
  loop.wanted = [&](std::size_t i) { return i == 0 || taken.empty(); };
  loop.work = [&](std::size_t i, const Dropped& dropped) {
    if (i == 0) {
      wait_until([&] { return second_runs.load(); });
      return;
    }
    second_runs = true;
    wait_until([&] { return dropped(); });
  };
  loop.take = [&](std::size_t i) { taken.push_back(i); };
  run_in_order(10, loop);
  EXPECT_EQ(taken, std::vector<std::size_t>{0});
}

TEST_F(LoopsInOrder, NothingBeginsWhenTheTimeIsOverAndWhatBeganIsTaken) {
  for (const int threads : {1, 3}) {
    set_loop_threads(threads);
    std::atomic<int> begun{0};
    int taken = 0;
    InOrder loop;
    loop.over = [&] { return begun >= 3; };
    loop.work = [&](std::size_t, const Dropped&) { ++begun; };
    loop.take = [&](std::size_t) { ++taken; };
    run_in_order(1000, loop);
    EXPECT_EQ(taken, begun);
    EXPECT_GE(begun, 3);
    EXPECT_LE(begun, 2 + threads);
  }
}

TEST_F(LoopsInOrder, ThrowWhatTheFirstTurnThrowsThatIsTaken) {
  for (const int threads : {1, 2, 5}) {
    set_loop_threads(threads);
    int taken = 0;
    InOrder loop;
    loop.work = [&](std::size_t i, const Dropped&) {
      if (i == 4) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (i >= 4) throw std::runtime_error("turn " + std::to_string(i));
    };
    loop.take = [&](std::size_t) { ++taken; };
    try {
      run_in_order(50, loop);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "turn 4");
    }
    EXPECT_EQ(taken, 4);
    // Exceptions of a call beside the turns are thrown, too.
    loop.work = [](std::size_t, const Dropped&) {};
    loop.take = [](std::size_t i) {
      if (i == 7) throw std::runtime_error("taking");
    };
    EXPECT_THROW(run_in_order(50, loop), std::runtime_error);
  }
}

TEST_F(LoopsInOrder, AnErrorBeforeATurnComesBehindThoseInFrontOfIt) {
  for (const int threads : {1, 3}) {
    set_loop_threads(threads);
    std::vector<std::size_t> taken;
    InOrder loop;
    loop.begin = [](std::size_t i) {
      if (i == 5) throw std::runtime_error("beginning");
    };
    loop.work = [](std::size_t i, const Dropped&) {
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    loop.take = [&](std::size_t i) { taken.push_back(i); };
    EXPECT_THROW(run_in_order(50, loop), std::runtime_error);
    EXPECT_EQ(taken.size(), 5u);
  }
}

// The least of values that grow with what was the least before: steps on an old state come to something else.
TEST_F(LoopsInOrder, FoldsComeToWhatOneThreadComesTo) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Search search(seed);
    // Changes at nearly every step, seldom, and never.
    for (const double falls : {0.99, 0.05, 0.0}) {
      Rng random(seed, 1, 0);
      std::vector<char> falls_here;
      for (std::size_t i = 0; i < search.values.size(); ++i) falls_here.push_back(random.uniform() < falls ? 1 : 0);
      const auto step = [&](std::size_t i, double state) {
        std::this_thread::sleep_for(std::chrono::microseconds(20 * search.turns_of_sleep[i]));
        return falls_here[i] != 0 ? state * 0.75 + search.values[i] : state;
      };
      double expected = 100;
      for (std::size_t i = 0; i < search.values.size(); ++i) expected = step(i, expected);
      for (const int threads : {1, 2, 7}) {
        set_loop_threads(threads);
        EXPECT_EQ(fold_in_order(search.values.size(), 100.0, step), expected) << seed << ", " << threads << " threads";
      }
    }
  }
}

TEST_F(LoopsInOrder, FoldsThrowOnlyWhatOneThreadThrows) {
  for (const int threads : {1, 2, 5}) {
    set_loop_threads(threads);
    // The state counts down from ten: one thread never takes a step at 10 but the first.
    const auto step = [](std::size_t i, int left) {
      if (i > 0 && left == 10) throw std::runtime_error("a state of long ago");
      if (left == 0) throw std::runtime_error("step " + std::to_string(i));
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return left - 1;
    };
    EXPECT_EQ(fold_in_order(10, 10, step), 0);
    try {
      fold_in_order(20, 10, step);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "step 10");
    }
  }
}

TEST_F(LoopsInOrder, ALoopInsideATurnStaysOnItsThread) {
  set_loop_threads(4);
  InOrder outer;
  std::atomic<int> elsewhere{0}, turns{0};
  outer.work = [&](std::size_t, const Dropped&) {
    const std::thread::id own = std::this_thread::get_id();
    InOrder inner;
    inner.work = [&](std::size_t, const Dropped&) {
      ++turns;
      if (std::this_thread::get_id() != own) ++elsewhere;
    };
    inner.take = [](std::size_t) {};
    run_in_order(20, inner);
  };
  outer.take = [](std::size_t) {};
  run_in_order(6, outer);
  EXPECT_EQ(turns, 120);
  EXPECT_EQ(elsewhere, 0);
}

TEST_F(LoopsInOrder, NoTurnsAndFewerThreadsThanAllowed) {
  set_loop_threads(3);
  InOrder loop;
  loop.work = [](std::size_t, const Dropped&) { FAIL(); };
  loop.take = [](std::size_t) { FAIL(); };
  run_in_order(0, loop);
  loop.most_threads = 1;
  const std::thread::id own = std::this_thread::get_id();
  loop.work = [&](std::size_t, const Dropped&) { EXPECT_EQ(std::this_thread::get_id(), own); };
  loop.take = [](std::size_t) {};
  run_in_order(20, loop);
}

TEST_F(LoopsInOrder, TheEnvironmentSaysHowManyThreads) {
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before == nullptr ? "" : before;
  const auto with = [](const char* text) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    set_loop_threads(0);
    return loop_threads();
  };
  EXPECT_EQ(with("3"), 3);
  EXPECT_EQ(with("5,2"), 5);
  EXPECT_EQ(with("1000000"), kMostLoopThreads);
  ::unsetenv("OMP_NUM_THREADS");
  set_loop_threads(0);
  const int cores = loop_threads();
  EXPECT_GE(cores, 1);
  for (const char* text : {"", "0", "-2", "many", "3x", "99999999999999999999"}) EXPECT_EQ(with(text), cores) << text;
  if (before == nullptr) {
    ::unsetenv("OMP_NUM_THREADS");
  } else {
    ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
  }
  set_loop_threads(2);
  EXPECT_EQ(loop_threads(), 2);
}

}  // namespace
}  // namespace automap
