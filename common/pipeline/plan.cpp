#include "common/pipeline/plan.h"

#include <algorithm>

namespace automap::pipeline {
namespace {

// One row per schedule, in the order of its numbers: all that a schedule is, but for the choice of kAdaptive
// (warmup.h).
struct ScheduleRow {
  Schedule schedule;
  const char* name;
  // K_s with `behind` stages behind, before it is cut to M.
  int (*in_flight)(int behind, int micro_batches);
};

constexpr ScheduleRow kSchedules[] = {
    {Schedule::k1f1b, "1f1b", [](int behind, int) { return behind + 1; }},
    {Schedule::k1f1bOverlap, "1f1b-overlap", [](int behind, int) { return 2 * behind + 1; }},
    {Schedule::kAdaptive, "adaptive", [](int, int micro_batches) { return micro_batches; }},
    {Schedule::kGpipe, "gpipe", [](int, int micro_batches) { return micro_batches; }},
};

const ScheduleRow& row_of(Schedule schedule) {
  return kSchedules[static_cast<std::size_t>(schedule)];
}

}  // namespace

const char* to_string(Schedule schedule) {
  return row_of(schedule).name;
}

std::optional<Schedule> parse_schedule(std::string_view name) {
  for (const ScheduleRow& row : kSchedules) {
    if (name == row.name) return row.schedule;
  }
  return std::nullopt;
}

std::vector<Schedule> all_schedules() {
  std::vector<Schedule> all;
  for (const ScheduleRow& row : kSchedules) all.push_back(row.schedule);
  return all;
}

std::string schedule_names() {
  std::string names;
  for (const ScheduleRow& row : kSchedules) names += std::string(names.empty() ? "" : ", ") + row.name;
  return names;
}

int in_flight(Schedule schedule, int num_stages, int stage, int micro_batches) {
  return std::min(micro_batches, row_of(schedule).in_flight(num_stages - stage, micro_batches));
}

}  // namespace automap::pipeline
