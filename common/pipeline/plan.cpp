#include "common/pipeline/plan.h"

#include <algorithm>

namespace automap::pipeline {

const char* to_string(Schedule schedule) {
  return schedule == Schedule::k1f1b ? "1f1b" : "1f1b-overlap";
}

int in_flight(Schedule schedule, int num_stages, int stage, int micro_batches) {
  const int behind = num_stages - stage;
  return std::min(micro_batches, schedule == Schedule::k1f1b ? behind + 1 : 2 * behind + 1);
}

}  // namespace automap::pipeline
