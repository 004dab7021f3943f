// A pipeline plan: where the instructions and the devices are cut into stages, and how each stage runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pipeline/work_order.h"

namespace automap::pipeline {

// A schedule: the order of work of every group (docs/cost-model.md). The numbers are persisted, do not change them.
//
// Alternating: K_s forwards, then a backward and a forward in turn. V, the exact solver and the bounds cover only
// these.
//   k1f1b: min(M, S-s+1)   k1f1bOverlap: min(M, 2(S-s)+1)   kGpipe: M
//   kAdaptive: chosen for the plan, M >= K_1 >= ... >= K_S >= 1, limited by memory alone
// Ordered: any other lists of work (work_order.h), which can only be simulated.
//   kEager: a backward whenever one can begin, else a forward while fewer than K_s are in flight
//   kInterleaved, kZbH1, kZbV: of even groups, after Megatron-LM and zero bubble   kSearched: the plan's own lists
enum class Schedule : std::uint8_t {
  k1f1b = 0,
  k1f1bOverlap = 1,
  kAdaptive = 2,
  kGpipe = 3,
  kEager = 4,
  kInterleaved = 5,
  kZbH1 = 6,
  kSearched = 7,
  kZbV = 8
};

const char* to_string(Schedule schedule);  // "1f1b", "1f1b-overlap", "adaptive", "gpipe", "eager", ...
std::optional<Schedule> parse_schedule(std::string_view name);
std::vector<Schedule> all_schedules();
std::vector<Schedule> alternating_schedules();
bool is_alternating(Schedule schedule);
// True if K_s of every stage is all that a plan of this schedule says about its order: alternating ones and kEager.
bool says_in_flight(Schedule schedule);

// The placement of the parts of a schedule's plans, and whether their backward is two passes.
struct ScheduleShape {
  int chunks = 1;  // parts for each group; 0: as many as the plan says
  Placement placement = Placement::kRoundRobin;
  bool split_backward = false;
};
// The shape that the schedule prescribes. nullopt for kSearched, whose plans have a shape of their own.
std::optional<ScheduleShape> shape_of(Schedule schedule);
// The shape that the plan's schedule prescribes, in words, when the plan breaks it: "one part for each group, round
// robin, and a backward in two passes"; empty when the plan keeps it.
struct Plan;
std::string shape_expected(const Plan& plan);
// The reason why the schedule has no lists for so many micro-batches: "interleaved 1F1B wants a multiple of the 4
// stages as micro-batches, not 6"; empty: it has.
std::string micro_batches_fault(Schedule schedule, int stages, int micro_batches);
std::string schedule_names();     // "1f1b, 1f1b-overlap, ...", for messages
std::string alternating_names();  // those of alternating_schedules()

// The most micro-batches that stage s = 1..S may have in flight under an alternating schedule, whatever memory says:
// K_s of the schedules that fix it, M for kAdaptive. Problem::in_flight() has K_s of a stage.
int in_flight(Schedule schedule, int num_stages, int stage, int micro_batches);

struct Plan {
  // Stage s = 1..S holds instructions cuts[s-2]+1 .. cuts[s-1] and devices device_cuts[s-2]+1 .. device_cuts[s-1],
  // with 0 before the first entry and n (D) after the last: S-1 strictly increasing entries each. With several parts
  // for each stage (`chunks`) the cuts are those of the parts, S * chunks - 1.
  std::vector<int> cuts;         // 1 .. n-1
  std::vector<int> device_cuts;  // 1 .. D-1
  Schedule schedule = Schedule::k1f1b;
  // The variant of each stage, as an index into Problem's variants, [S]; empty: the first everywhere.
  std::vector<std::uint8_t> variants = {};
  // K_s, [S], non-increasing; empty: as the schedule prescribes, and for kAdaptive and kEager as many as memory allows.
  // Other ordered schedules have none.
  std::vector<int> warmup = {};
  // For ordered schedules only: the number of model parts on each stage's devices, where the parts lie, and kSearched's
  // own lists (never null there).
  int chunks = 1;
  Placement placement = Placement::kRoundRobin;
  bool split_backward = false;
  std::shared_ptr<const WorkOrder> order = nullptr;

  int num_stages() const { return num_parts() / chunks; }
  int num_parts() const { return static_cast<int>(cuts.size()) + 1; }
  int variant(int stage) const { return variants.empty() ? 0 : variants[static_cast<std::size_t>(stage - 1)]; }
  bool operator==(const Plan& other) const {
    const bool same_order = order == other.order || (order && other.order && *order == *other.order);
    return cuts == other.cuts && device_cuts == other.device_cuts && schedule == other.schedule &&
           variants == other.variants && warmup == other.warmup && chunks == other.chunks &&
           placement == other.placement && split_backward == other.split_backward && same_order;
  }
};

}  // namespace automap::pipeline
