#include "common/pipeline/schedule.h"

#include <algorithm>

#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

struct NoRecord {
  void work(const StageInterval&) const {}
  void message(const StageInterval&) const {}
  void end(const RecordedStep::End&) const {}
};

struct Recorder {
  RecordedStep* step;
  void work(const StageInterval& one) const { step->work.push_back(one); }
  void message(const StageInterval& one) const { step->messages.push_back(one); }
  void end(const RecordedStep::End& one) const { step->ends.push_back(one); }
};

// Strict 1F1B as a recurrence. Stage s works through F_1 .. F_K, B_1, F_K+1, B_2, ..., so what runs there just before
// F(s, m), m > K_s, is B(s, m - K_s), and before B(s, j) it is F(s, j + K_s - 1) or, once there are no more forwards,
// B(s, j - 1). Round r = 1 .. M + K_1 - 1 therefore computes F(s, r) down the pipeline and then B(s, r - K_s + 1) up
// it: K_s does not grow with s, so everything either needs comes from this round or an earlier one.
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
  thread_local std::vector<StageState> states;
  thread_local std::vector<double> arrivals;  // [S x M]: backward message of (s, j) has come to stage s
  states.assign(count, StageState());
  if (arrivals.size() < count * batches) arrivals.resize(count * batches);
  for (int s = 0; s < stages; ++s) {
    states[static_cast<std::size_t>(s)].in_flight = times.in_flight.empty()
                                                        ? in_flight(schedule, stages, s + 1, micro_batches)
                                                        : times.in_flight[static_cast<std::size_t>(s)];
  }

  const int rounds = micro_batches + states[0].in_flight - 1;
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
