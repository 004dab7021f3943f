#include "common/pipeline/schedule.h"

#include <algorithm>
#include <cmath>

#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

struct NoRecord {
  static constexpr bool kSkips = true;
  void work(const StageInterval&) const {}
  void message(const StageInterval&) const {}
  void end(const RecordedStep::End&) const {}
};

struct Recorder {
  static constexpr bool kSkips = false;  // every round is of the picture
  RecordedStep* step;
  void work(const StageInterval& one) const { step->work.push_back(one); }
  void message(const StageInterval& one) const { step->messages.push_back(one); }
  void end(const RecordedStep::End& one) const { step->ends.push_back(one); }
};

// Fewer rounds are not worth telling whether they are alike; times that differ by so much of the step so far are the
// same but for rounding.
constexpr int kRoundsWorthSkipping = 48;
constexpr double kSameRound = 4e-15;

// Strict 1F1B as a recurrence. Stage s works through F_1 .. F_K, B_1, F_K+1, B_2, ..., so what runs there just before
// F(s, m), m > K_s, is B(s, m - K_s), and before B(s, j) it is F(s, j + K_s - 1) or, once there are no more forwards,
// B(s, j - 1). Round r = 1 .. M + K_1 - 1 therefore computes F(s, r) down the pipeline and then B(s, r - K_s + 1) up
// it: K_s does not grow with s, so everything either needs comes from this round or an earlier one.
//
// Every time is a maximum of sums of earlier ones, so that once all times of a round, and of as many before it as a
// backward message may wait, are those of the round before plus the same time, they stay so until the forwards end.
// Those rounds are skipped: with many micro-batches they are nearly all.
template <typename Record>
double simulate(const PipelineTimes& times, int micro_batches, Schedule schedule, const Record& record) {
  const int stages = times.num_stages();
  const std::size_t count = static_cast<std::size_t>(stages);
  const std::size_t batches = static_cast<std::size_t>(micro_batches);
  struct StageState {
    double free_ms = 0;      // the stage is done with its last operation
    double forward_ms = 0;   // the link to the next stage is free
    double backward_ms = 0;  // the link to the previous stage is free
    int in_flight = 0;
  };
  // Reused between calls: plans are simulated by the hundred thousand.
  thread_local std::vector<StageState> states, before;
  thread_local std::vector<double> arrivals;  // [S x M]: backward message of (s, j) has come to stage s
  states.assign(count, StageState());
  if (arrivals.size() < count * batches) arrivals.resize(count * batches);
  for (int s = 0; s < stages; ++s) {
    states[static_cast<std::size_t>(s)].in_flight = times.in_flight.empty()
                                                        ? in_flight(schedule, stages, s + 1, micro_batches)
                                                        : times.in_flight[static_cast<std::size_t>(s)];
  }

  int longest_wait = 0;  // rounds that a backward message may wait
  for (std::size_t s = 0; s + 1 < count; ++s) {
    longest_wait = std::max(longest_wait, states[s].in_flight - states[s + 1].in_flight);
  }
  // From this round on every stage computes a forward and a backward.
  const int steady = states[0].in_flight;
  const bool may_skip = Record::kSkips && micro_batches - steady > longest_wait + kRoundsWorthSkipping;
  int alike = 0;  // rounds in a row that took each stage and link as long as the round before took all of them
  double before_ms = 0;
  if (may_skip) before.assign(count, StageState());

  int rounds = micro_batches + states[0].in_flight - 1;
  for (int round = 1; round <= rounds; ++round) {
    if (round <= micro_batches) {
      double arrival = 0;
      for (std::size_t s = 0; s < count; ++s) {
        StageState& state = states[s];
        const double start = std::max(state.free_ms, arrival);
        state.free_ms = start + times.forward_ms[s];
        record.work({static_cast<int>(s) + 1, round, false, start, state.free_ms});
        if (s + 1 < count) {
          const double sent = std::max(state.forward_ms, state.free_ms);
          state.forward_ms = sent + times.transfer_ms[s];
          record.message({static_cast<int>(s) + 1, round, false, sent, state.forward_ms});
          arrival = state.forward_ms;
        }
      }
    }
    for (std::size_t s = count; s-- > 0;) {
      StageState& state = states[s];
      const int batch = round - state.in_flight + 1;
      if (batch < 1 || batch > micro_batches) continue;
      const std::size_t j = static_cast<std::size_t>(batch - 1);
      const double start = s + 1 < count ? std::max(state.free_ms, arrivals[s * batches + j]) : state.free_ms;
      state.free_ms = start + times.backward_ms[s];
      record.work({static_cast<int>(s) + 1, batch, true, start, state.free_ms});
      if (s > 0) {
        const double sent = std::max(state.backward_ms, state.free_ms);
        state.backward_ms = sent + times.transfer_ms[s - 1];
        record.message({static_cast<int>(s) + 1, batch, true, sent, state.backward_ms});
        arrivals[(s - 1) * batches + j] = state.backward_ms;
      }
    }
    if (!may_skip || round < steady || round >= micro_batches) continue;
    const double took_ms = states[0].free_ms - before[0].free_ms;
    const double rounding = kSameRound * states[0].free_ms;
    bool same = std::abs(took_ms - before_ms) <= rounding;
    for (std::size_t s = 0; s < count; ++s) {
      const auto as_long = [&](double now, double then) { return std::abs(now - then - took_ms) <= rounding; };
      same = same && as_long(states[s].free_ms, before[s].free_ms);
      if (s + 1 < count) same = same && as_long(states[s].forward_ms, before[s].forward_ms);
      if (s > 0) same = same && as_long(states[s].backward_ms, before[s].backward_ms);
      before[s] = states[s];
    }
    before_ms = took_ms;
    alike = same ? alike + 1 : 0;
    if (alike <= longest_wait) continue;
    // As if the step had that many micro-batches fewer, and had begun that much later.
    const int skipped = micro_batches - round;
    const double later_ms = skipped * took_ms;
    for (std::size_t s = 0; s < count; ++s) {
      StageState& state = states[s];
      state.free_ms += later_ms;
      state.forward_ms += later_ms;
      state.backward_ms += later_ms;
      if (s + 1 == count) continue;
      for (int batch = round - state.in_flight + 2; batch <= round - states[s + 1].in_flight + 1; ++batch) {
        arrivals[s * batches + static_cast<std::size_t>(batch - 1)] += later_ms;
      }
    }
    micro_batches = round;
    rounds -= skipped;
  }
  double length = 0;
  for (std::size_t s = 0; s < count; ++s) {
    const double sync = times.sync_left_ms.empty() ? times.allreduce_ms[s] : times.sync_left_ms[s];
    const double synced = states[s].free_ms + sync;
    const double end = synced + (times.optimizer_ms.empty() ? 0 : times.optimizer_ms[s]);
    record.end({states[s].free_ms, synced, end});
    length = std::max(length, end);
  }
  return length;
}

}  // namespace

double simulate_step_ms(const PipelineTimes& times, int micro_batches, Schedule schedule) {
  return simulate(times, micro_batches, schedule, NoRecord());
}

double simulate_step_ms(const Problem& problem, const Plan& plan) {
  thread_local PipelineTimes times;
  pipeline_times(problem, plan, times);
  if (plan.schedule == Schedule::kAdaptive && plan.warmup.empty()) return quick_warmup(problem, plan, times);
  return simulate_step_ms(times, problem.micro_batches(), plan.schedule);
}

RecordedStep record_step(const PipelineTimes& times, int micro_batches, Schedule schedule) {
  RecordedStep step;
  step.step_ms = simulate(times, micro_batches, schedule, Recorder{&step});
  for (std::vector<StageInterval>* intervals : {&step.work, &step.messages}) {
    // Stable: of work that takes no time, too, the order is the stage's.
    std::stable_sort(intervals->begin(), intervals->end(), [](const StageInterval& a, const StageInterval& b) {
      if (a.stage != b.stage) return a.stage < b.stage;
      if (a.start_ms != b.start_ms) return a.start_ms < b.start_ms;
      return a.end_ms < b.end_ms;
    });
  }
  return step;
}

}  // namespace automap::pipeline
