#include "common/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <tuple>

#include "common/base/numbers.h"
#include "common/pipeline/random_problem.h"

namespace automap::pipeline {
namespace {

// The same machine as a discrete-event simulation: stages and link directions are resources, finished work is an event
// that wakes whoever waits. Nothing in common with the recurrence but the order of work on a stage.
class EventSimulation {
 public:
  EventSimulation(const PipelineTimes& times, int micro_batches, Schedule schedule)
      : times_(times), stages_(times.num_stages()) {
    const std::size_t count = static_cast<std::size_t>(stages_);
    machines_.resize(count);
    forward_links_.resize(count);
    backward_links_.resize(count);
    for (int s = 1; s <= stages_; ++s) {
      const int behind = stages_ - s;
      const int k = std::min(micro_batches, schedule == Schedule::k1f1b ? behind + 1 : 2 * behind + 1);
      std::deque<Work>& todo = machines_[at(s)].todo;
      int next_forward = 1, next_backward = 1;
      while (next_forward <= k) todo.push_back({false, next_forward++});
      while (next_backward <= micro_batches) {
        todo.push_back({true, next_backward++});
        if (next_forward <= micro_batches) todo.push_back({false, next_forward++});
      }
    }
  }

  double run() {
    for (int s = 1; s <= stages_; ++s) wake_machine(s);
    double length = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (event.kind == kWorkDone) {
        work_done(event.stage, event.work);
      } else {
        message_arrived(event.stage, event.work, event.kind == kForwardArrived);
      }
      length = std::max(length, now_);
    }
    for (int s = 1; s <= stages_; ++s) {
      EXPECT_TRUE(machines_[at(s)].todo.empty()) << "stage " << s << " never finished";
      length = std::max(length, machines_[at(s)].last_done + times_.allreduce_ms[at(s)]);
    }
    return length;
  }

 private:
  struct Work {
    bool backward;
    int batch;
  };
  enum Kind { kWorkDone, kForwardArrived, kBackwardArrived };
  struct Event {
    double time;
    int sequence;
    Kind kind;
    int stage;  // where the work was done, or where the message has arrived
    Work work;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  struct Machine {
    std::deque<Work> todo;
    bool busy = false;
    double last_done = 0;
    std::map<int, bool> inputs, gradients;  // by micro-batch: is here
  };
  struct Link {
    std::deque<Work> waiting;
    bool busy = false;
  };

  static std::size_t at(int s) { return static_cast<std::size_t>(s - 1); }
  void schedule_event(double delay, Kind kind, int stage, Work work) {
    events_.push({now_ + delay, sequence_++, kind, stage, work});
  }

  void wake_machine(int s) {
    Machine& machine = machines_[at(s)];
    if (machine.busy || machine.todo.empty()) return;
    const Work work = machine.todo.front();
    if (!work.backward && s > 1 && !machine.inputs[work.batch]) return;
    if (work.backward && s < stages_ && !machine.gradients[work.batch]) return;
    machine.todo.pop_front();
    machine.busy = true;
    schedule_event(work.backward ? times_.backward_ms[at(s)] : times_.forward_ms[at(s)], kWorkDone, s, work);
  }

  // The link from s to s+1 (forward) or from s+1 to s (backward), named by its lower stage.
  void wake_link(int s, bool backward) {
    Link& link = (backward ? backward_links_ : forward_links_)[at(s)];
    if (link.busy || link.waiting.empty()) return;
    const Work work = link.waiting.front();
    link.waiting.pop_front();
    link.busy = true;
    schedule_event(times_.transfer_ms[at(s)], backward ? kBackwardArrived : kForwardArrived, backward ? s : s + 1,
                   work);
  }

  void work_done(int s, Work work) {
    Machine& machine = machines_[at(s)];
    machine.busy = false;
    machine.last_done = now_;
    if (!work.backward && s < stages_) {
      forward_links_[at(s)].waiting.push_back(work);
      wake_link(s, false);
    }
    if (work.backward && s > 1) {
      backward_links_[at(s - 1)].waiting.push_back(work);
      wake_link(s - 1, true);
    }
    wake_machine(s);
  }

  void message_arrived(int s, Work work, bool forward) {
    const int lower = forward ? s - 1 : s;
    (forward ? forward_links_ : backward_links_)[at(lower)].busy = false;
    wake_link(lower, !forward);
    (forward ? machines_[at(s)].inputs : machines_[at(s)].gradients)[work.batch] = true;
    wake_machine(s);
  }

  const PipelineTimes& times_;
  int stages_;
  double now_ = 0;
  int sequence_ = 0;
  std::vector<Machine> machines_;
  std::vector<Link> forward_links_, backward_links_;
  std::priority_queue<Event> events_;
};

PipelineTimes random_case(CounterRandom& random, int stages) {
  PipelineTimes times = random_times(stages, random);
  const double kind = random.uniform();
  for (int s = 0; s < stages; ++s) {
    const std::size_t i = static_cast<std::size_t>(s);
    if (kind < 0.3) times.allreduce_ms[i] = random.uniform() < 0.5 ? 0 : random.log_uniform(0.01, 50);
    if (kind > 0.8 && random.uniform() < 0.2) times.forward_ms[i] = 0;
    if (kind > 0.8 && random.uniform() < 0.2) times.backward_ms[i] = 0;
    if (s + 1 == stages) continue;
    if (kind > 0.6 && random.uniform() < 0.4) times.transfer_ms[i] = 0;
    if (kind > 0.4 && random.uniform() < 0.2) times.transfer_ms[i] *= 30;
  }
  return times;
}

TEST(Schedule, RecurrenceEqualsAnEventSimulation) {
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 1);
    const int stages = random.integer(1, 9);
    const int micro_batches = random.integer(1, 24);
    const PipelineTimes times = random_case(random, stages);
    for (Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bOverlap}) {
      const double expected = EventSimulation(times, micro_batches, schedule).run();
      const double length = simulate_step_ms(times, micro_batches, schedule);
      ASSERT_NEAR(length, expected, 1e-9 * expected) << stages << " stages, " << micro_batches << " micro-batches";
    }
  }
}

// Of many micro-batches the rounds that are all alike are skipped; the record has every one of them.
TEST(Schedule, ManyMicroBatchesTakeWhatTheirRecordSays) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 5);
    const int stages = random.integer(1, 9);
    const int micro_batches = random.integer(50, 400);
    PipelineTimes times = random_case(random, stages);
    const bool even = random.uniform() < 0.3;
    for (int s = 1; even && s < stages; ++s) {
      times.forward_ms[at(s)] = times.forward_ms[0];
      times.backward_ms[at(s)] = times.backward_ms[0];
    }
    int k = random.integer(1, std::min(micro_batches, 40));
    for (int s = 0; s < stages; ++s) {
      times.in_flight.push_back(k);
      k = random.integer(1, k);
    }
    const double all_rounds = record_step(times, micro_batches, Schedule::kAdaptive).step_ms;
    ASSERT_NEAR(simulate_step_ms(times, micro_batches, Schedule::kAdaptive), all_rounds, 1e-11 * all_rounds);
  }
}

TEST(Schedule, WorkedCases) {
  // One stage: M micro-batches and the all-reduce.
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1}, {2}, {7}, {}}, 5, Schedule::k1f1b), 22);
  // Two equal stages without transfers: the classic (M + S - 1) (F + B).
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1, 1}, {2, 2}, {0, 0}, {0}}, 4, Schedule::k1f1b), 15);
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1, 1}, {2, 2}, {0, 0}, {0}}, 4, Schedule::k1f1bOverlap), 15);
  // M = 1: everything in a row; the first stage's all-reduce starts last, the second one's hides behind B and t.
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1, 2}, {3, 4}, {0.5, 6}, {0.25}}, 1, Schedule::k1f1b), 1 + .25 + 2 + 4 + 6);
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1, 2}, {3, 4}, {5, 6}, {0.25}}, 1, Schedule::k1f1b), 10.5 + 5);
  // 1f1b keeps K_1 = 2 in flight; the round trip 1 + 1 + 1 + 1 + 1 + 1 = 6 exceeds 2 T = 4, so every lap of two stalls
  // by 2: 3 laps of 6 ms for 6 micro-batches, and the last of each lap one T later: 18 + 2. With overlap K_1 = 3 hides
  // it.
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1, 1}, {1, 1}, {0, 0}, {1}}, 6, Schedule::k1f1b), 20);
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1, 1}, {1, 1}, {0, 0}, {1}}, 6, Schedule::k1f1bOverlap), 16);
  // A slow link is a resource: M messages one after the other, there and back.
  EXPECT_DOUBLE_EQ(simulate_step_ms({{1, 1}, {1, 1}, {0, 0}, {10}}, 1, Schedule::k1f1b), 24);
}

TEST(Schedule, IntervalsAreTheStrictOrderAndExplainTheLength) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 2);
    const int stages = random.integer(1, 8);
    const int micro_batches = random.integer(1, 20);
    const PipelineTimes times = random_case(random, stages);
    const Schedule schedule = random.uniform() < 0.5 ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    const std::vector<StageInterval> intervals = record_step(times, micro_batches, schedule).work;
    ASSERT_EQ(intervals.size(), static_cast<std::size_t>(2 * stages * micro_batches));
    std::map<std::tuple<int, int, bool>, StageInterval> at;
    for (const StageInterval& interval : intervals) {
      at[{interval.stage, interval.micro_batch, interval.backward}] = interval;
      const std::size_t i = static_cast<std::size_t>(interval.stage - 1);
      const double work = interval.backward ? times.backward_ms[i] : times.forward_ms[i];
      ASSERT_NEAR(interval.end_ms - interval.start_ms, work, 1e-9 * (1 + interval.end_ms));
    }
    ASSERT_EQ(at.size(), intervals.size());
    // The step ends with some stage's last backward and its all-reduce.
    double expected = 0;
    for (int s = 1; s <= stages; ++s) {
      expected =
          std::max(expected, at[{s, micro_batches, true}].end_ms + times.allreduce_ms[static_cast<std::size_t>(s - 1)]);
    }
    ASSERT_NEAR(simulate_step_ms(times, micro_batches, schedule), expected, 1e-11 * expected);
    for (std::size_t i = 1; i < intervals.size(); ++i) {
      if (intervals[i].stage != intervals[i - 1].stage) continue;
      ASSERT_GE(intervals[i].start_ms, intervals[i - 1].end_ms - 1e-9) << "two operations at once on one stage";
    }
    for (int s = 1; s <= stages; ++s) {
      const int k = in_flight(schedule, stages, s, micro_batches);
      for (int m = 1; m <= micro_batches; ++m) {
        // Never more than K_s micro-batches between forward and backward, and messages take their time.
        if (m > k) {
          ASSERT_GE((at[{s, m, false}].start_ms), (at[{s, m - k, true}].end_ms - 1e-9));
        }
        ASSERT_GE((at[{s, m, true}].start_ms), (at[{s, m, false}].end_ms - 1e-9));
        if (s == stages) continue;
        const double t = times.transfer_ms[static_cast<std::size_t>(s - 1)];
        ASSERT_GE((at[{s + 1, m, false}].start_ms), (at[{s, m, false}].end_ms + t - 1e-9));
        ASSERT_GE((at[{s, m, true}].start_ms), (at[{s + 1, m, true}].end_ms + t - 1e-9));
      }
    }
  }
}

TEST(Schedule, OfAPlanEqualsTheOneOfItsTimes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomProblem made = random_problem(seed);
    const Problem problem = made.problem();
    CounterRandom random(seed, 3);
    const Plan plan = random_plan(problem, random.integer(1, 8), Schedule::k1f1bOverlap, random);
    EXPECT_EQ(simulate_step_ms(problem, plan),
              simulate_step_ms(pipeline_times(problem, plan), problem.micro_batches(), plan.schedule));
  }
}

}  // namespace
}  // namespace automap::pipeline
