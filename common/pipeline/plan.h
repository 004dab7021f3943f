// A pipeline plan: where the instructions and the devices are cut into stages, and how each stage runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automap::pipeline {

// How many micro-batches a stage starts before its first backward, K_s (docs/cost-model.md). The numbers are persisted,
// do not change them.
//   k1f1b: min(M, S-s+1)   k1f1bOverlap: min(M, 2(S-s)+1)   kGpipe: M
//   kAdaptive: chosen for the plan, M >= K_1 >= ... >= K_S >= 1, limited by memory alone
enum class Schedule : std::uint8_t { k1f1b = 0, k1f1bOverlap = 1, kAdaptive = 2, kGpipe = 3 };

const char* to_string(Schedule schedule);  // "1f1b", "1f1b-overlap", "adaptive", "gpipe"
std::optional<Schedule> parse_schedule(std::string_view name);
std::vector<Schedule> all_schedules();
std::string schedule_names();  // "1f1b, 1f1b-overlap, adaptive, gpipe", for messages

// The most micro-batches that stage s = 1..S may have in flight under the schedule, whatever memory says: K_s of the
// schedules that fix it, M for kAdaptive. Problem::in_flight() has K_s of a stage.
int in_flight(Schedule schedule, int num_stages, int stage, int micro_batches);

struct Plan {
  // Stage s = 1..S holds instructions cuts[s-2]+1 .. cuts[s-1] and devices device_cuts[s-2]+1 .. device_cuts[s-1],
  // with 0 before the first entry and n (D) after the last: S-1 strictly increasing entries each.
  std::vector<int> cuts;         // 1 .. n-1
  std::vector<int> device_cuts;  // 1 .. D-1
  Schedule schedule = Schedule::k1f1b;
  // Which of Problem's stage variants each stage is, [S]; empty: the first everywhere.
  std::vector<std::uint8_t> variants = {};
  // K_s, [S], non-increasing; empty: what the schedule says, and for kAdaptive as many as memory allows.
  std::vector<int> warmup = {};

  int num_stages() const { return static_cast<int>(cuts.size()) + 1; }
  int variant(int stage) const { return variants.empty() ? 0 : variants[static_cast<std::size_t>(stage - 1)]; }
  bool operator==(const Plan& other) const {
    return cuts == other.cuts && device_cuts == other.device_cuts && schedule == other.schedule &&
           variants == other.variants && warmup == other.warmup;
  }
};

}  // namespace automap::pipeline
