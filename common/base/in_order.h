// Runs the turns of a loop on several threads with the same results, to the bit, as on one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace automap {

// Threads that a loop may use, the caller's included: 1 until a program says otherwise. 0: as many as OMP_NUM_THREADS
// says, else as there are processors for this process, at most kMostOwnThreads: each has memory of its own.
constexpr int kMostLoopThreads = 4096, kMostOwnThreads = 16;
void set_loop_threads(int threads);
int loop_threads();

// True once nobody will take the turn's result, so that it may end early, with any result.
class Dropped {
 public:
  Dropped(const std::atomic<std::size_t>& end, std::size_t turn) : end_(end), turn_(turn) {}
  bool operator()() const { return turn_ >= end_.load(std::memory_order_relaxed); }

 private:
  const std::atomic<std::size_t>& end_;
  std::size_t turn_;
};

struct InOrder {
  // No more threads than these; 0: as many as loops may use.
  int most_threads = 0;
  // True if turn i is still wanted after the turns taken so far; once it is not, it stays so, and neither is any turn
  // behind it. Conditions on a clock belong in `over`. Empty: every turn is wanted.
  std::function<bool(std::size_t)> wanted;
  // True if no turn may begin any more because the time is over. Turns that have begun are still taken. Empty: never.
  std::function<bool()> over;
  // Records the known state when turn i begins; runs beside none of these functions but `work`. Empty: nothing.
  std::function<void(std::size_t)> begin;
  // The turn itself: runs beside others, and leaves its result where `take` finds it by i.
  std::function<void(std::size_t, const Dropped&)> work;
  // One after the other in the order of i.
  std::function<void(std::size_t)> take;
};

// Does what this loop does, to the same end:
//   for (i = 0; i < count && wanted(i) && !over(); ++i) { begin(i); work(i); take(i); }
// Turns begin before those in front of them are taken; those that turn out not to be wanted are dropped. A turn that
// throws ends the loop as it would there. Inside a turn that runs beside others a loop
// runs on that turn's thread alone.
void run_in_order(std::size_t count, const InOrder& loop);

// Does what this loop does, to the same end:
//   for (i = 0; i < count; ++i) state = step(i, state);
// Steps run ahead on the state that is known when they begin, and once more where it has changed until their turn: for
// states that seldom change, as the least of what was found so far. State: copied, and compared by ==.
template <typename State, typename Step>
State fold_in_order(std::size_t count, State state, const Step& step) {
  struct Turn {
    State before, after;
    std::exception_ptr failure;
  };
  std::vector<std::optional<Turn>> turns(count);
  InOrder loop;
  loop.begin = [&](std::size_t i) { turns[i].emplace(Turn{state, state, nullptr}); };
  loop.work = [&](std::size_t i, const Dropped&) {
    try {
      turns[i]->after = step(i, turns[i]->before);
    } catch (...) {
      turns[i]->failure = std::current_exception();
    }
  };
  loop.take = [&](std::size_t i) {
    Turn turn = *std::exchange(turns[i], std::nullopt);
    if (!(turn.before == state)) {
      turn.after = state;  // what was made in vain goes first
      state = step(i, state);
    } else if (turn.failure) {
      std::rethrow_exception(turn.failure);
    } else {
      state = std::move(turn.after);
    }
  };
  run_in_order(count, loop);
  return state;
}

}  // namespace automap
