// The event simulation of one 1F1B step: the time of a plan under strict 1F1B order, with every link direction a FIFO
// resource of its own, and, behind a stage's last backward, the rest of its gradient sync, then its optimizer. Plans
// are ranked by it in the end.
#pragma once

#include "common/pipeline/cost.h"

namespace automap::pipeline {

// The step in ms. Order on stage s: K_s forwards, then (B, F) alternately, then the remaining backwards (strict
// 1F1B); forward and backward messages travel on separate FIFO links (full duplex). A plain recurrence: O(M S).
double simulate_step_ms(const PipelineTimes& times, int micro_batches, Schedule schedule);
// An adaptive plan without a warm-up is simulated with one that is chosen quickly (warmup.h).
double simulate_step_ms(const Problem& problem, const Plan& plan);

// The same with all that happens in it, for pictures (timeline.h) and for the test that replays it with an event queue.
struct StageInterval {
  int stage = 0;        // 1-based
  int micro_batch = 0;  // 1-based
  bool backward = false;
  double start_ms = 0, end_ms = 0;
};
struct RecordedStep {
  std::vector<StageInterval> work;      // by stage, then time
  std::vector<StageInterval> messages;  // by the stage that sends them, then time; backward: to the stage in front
  // [S] the ends of a stage's last backward, of the rest of its gradient sync, and of its optimizer.
  struct End {
    double backward_ms = 0, sync_ms = 0, all_ms = 0;
  };
  std::vector<End> ends;
  double step_ms = 0;
};
RecordedStep record_step(const PipelineTimes& times, int micro_batches, Schedule schedule);

}  // namespace automap::pipeline
