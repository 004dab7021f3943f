#include "common/base/in_order.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/processors.h"

namespace automap {
namespace {

std::atomic<int> allowed{1};
thread_local bool inside_a_turn = false;

// The first number of OMP_NUM_THREADS, which may be a list; 0: it says none.
int threads_of_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return 0;
  const std::string_view all = text;
  int number = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  const bool ends_well = error == std::errc() && (end == all.data() + all.size() || *end == ',');
  return ends_well && number > 0 ? number : 0;
}

class Loop {
 public:
  Loop(std::size_t count, const InOrder& loop) : loop_(loop), end_(count), state_(count) {}

  void run(std::size_t threads) {
    std::vector<std::thread> others;
    beside_others_ = threads > 1;
    try {
      for (std::size_t k = 1; k < threads; ++k) others.emplace_back([this] { turns(); });
    } catch (const std::exception&) {
      // No more threads to be had, or no memory for them: those there are do the work.
    }
    turns();
    for (std::thread& other : others) other.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct State {
    bool done = false;
    std::exception_ptr failure;
  };

  void turns() {
    const bool before = std::exchange(inside_a_turn, inside_a_turn || beside_others_);
    std::unique_lock<std::mutex> lock(mutex_);
    while (may_begin()) {
      const std::size_t turn = begun_++;
      lock.unlock();
      std::exception_ptr failure;
      try {
        loop_.work(turn, Dropped(end_, turn));
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      state_[turn] = {true, std::move(failure)};
      take_those_done();
    }
    inside_a_turn = before;
  }

  // Runs a callback while the lock is held. If it throws, the loop ends, too.
  template <typename Call>
  bool tried(const Call& call) {
    try {
      return call();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
      end_ = 0;
      return false;
    }
  }

  bool may_begin() {
    if (begun_ >= end_) return false;
    try {
      const bool begins = (!loop_.wanted || loop_.wanted(begun_)) && !(loop_.over && loop_.over());
      if (!begins) {
        end_ = begun_;
      } else if (loop_.begin) {
        loop_.begin(begun_);
      }
      return begins;
    } catch (...) {
      // As if the turn itself had thrown: those in front of it come first.
      state_[begun_++] = {true, std::current_exception()};
      end_ = begun_;
      take_those_done();
      return false;
    }
  }

  void take_those_done() {
    while (taken_ < end_ && state_[taken_].done) {
      const bool taken = tried([&] {
        if (loop_.wanted && !loop_.wanted(taken_)) return false;
        if (state_[taken_].failure) std::rethrow_exception(state_[taken_].failure);
        loop_.take(taken_);
        return true;
      });
      if (!taken) {
        end_ = std::min(end_.load(), taken_);
        return;
      }
      ++taken_;
    }
    drop_what_is_not_wanted();
  }

  // Drops turns that have begun, wait for one in front of them and are no longer wanted.
  void drop_what_is_not_wanted() {
    if (!loop_.wanted) return;
    for (std::size_t turn = taken_; turn < std::min(begun_, end_.load()); ++turn) {
      if (tried([&] { return loop_.wanted(turn); })) continue;
      end_ = std::min(end_.load(), turn);
    }
  }

  const InOrder& loop_;
  bool beside_others_ = false;
  std::mutex mutex_;              // of all that follows
  std::atomic<std::size_t> end_;  // no turn from here on is taken
  std::size_t begun_ = 0, taken_ = 0;
  std::vector<State> state_;
  std::exception_ptr failure_;
};

}  // namespace

void set_loop_threads(int threads) {
  if (threads == 0) threads = threads_of_environment();
  if (threads == 0) threads = std::min(usable_processors(), kMostOwnThreads);
  allowed = std::clamp(threads, 1, kMostLoopThreads);
}

int loop_threads() {
  return allowed;
}

void run_in_order(std::size_t count, const InOrder& loop) {
  int threads = inside_a_turn ? 1 : loop_threads();
  if (loop.most_threads > 0) threads = std::min(threads, loop.most_threads);
  Loop(count, loop).run(std::min(static_cast<std::size_t>(threads), std::max<std::size_t>(count, 1)));
}

}  // namespace automap
