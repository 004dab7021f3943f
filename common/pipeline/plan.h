// A pipeline plan: where the instructions and the devices are cut into stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automap::pipeline {

// How many micro-batches a stage starts before its first backward (docs/cost-model.md):
// k1f1b: min(M, S-s+1); k1f1bOverlap: min(M, 2(S-s)+1). The numbers are persisted, do not change them.
enum class Schedule : std::uint8_t { k1f1b = 0, k1f1bOverlap = 1 };

const char* to_string(Schedule schedule);  // "1f1b", "1f1b-overlap"

// K_s for stage s = 1..S.
int in_flight(Schedule schedule, int num_stages, int stage, int micro_batches);

struct Plan {
  // Stage s = 1..S holds instructions cuts[s-2]+1 .. cuts[s-1] and devices device_cuts[s-2]+1 .. device_cuts[s-1],
  // with 0 before the first entry and n (D) after the last: S-1 strictly increasing entries each.
  std::vector<int> cuts;         // 1 .. n-1
  std::vector<int> device_cuts;  // 1 .. D-1
  Schedule schedule = Schedule::k1f1b;

  int num_stages() const { return static_cast<int>(cuts.size()) + 1; }
  bool operator==(const Plan& other) const {
    return cuts == other.cuts && device_cuts == other.device_cuts && schedule == other.schedule;
  }
};

}  // namespace automap::pipeline
