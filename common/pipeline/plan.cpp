#include "common/pipeline/plan.h"

#include <algorithm>

#include "common/base/check.h"

namespace automap::pipeline {
namespace {

// One row per schedule, in the order of its numbers: all that an alternating one is, but for the choice of kAdaptive
// (warmup.h), and the names of the others.
struct ScheduleRow {
  Schedule schedule;
  const char* name;
  // K_s with `behind` stages behind, before it is cut to M. Null: it does not alternate.
  int (*in_flight)(int behind, int micro_batches);
};

constexpr ScheduleRow kSchedules[] = {
    {Schedule::k1f1b, "1f1b", [](int behind, int) { return behind + 1; }},
    {Schedule::k1f1bOverlap, "1f1b-overlap", [](int behind, int) { return 2 * behind + 1; }},
    {Schedule::kAdaptive, "adaptive", [](int, int micro_batches) { return micro_batches; }},
    {Schedule::kGpipe, "gpipe", [](int, int micro_batches) { return micro_batches; }},
    {Schedule::kEager, "eager", nullptr},
    {Schedule::kInterleaved, "interleaved", nullptr},
    {Schedule::kZbH1, "zb-h1", nullptr},
    {Schedule::kSearched, "searched", nullptr},
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

std::vector<Schedule> alternating_schedules() {
  std::vector<Schedule> all;
  for (const ScheduleRow& row : kSchedules) {
    if (is_alternating(row.schedule)) all.push_back(row.schedule);
  }
  return all;
}

bool is_alternating(Schedule schedule) {
  return row_of(schedule).in_flight != nullptr;
}

bool says_in_flight(Schedule schedule) {
  return is_alternating(schedule) || schedule == Schedule::kEager;
}

namespace {

std::string names_of(const std::vector<Schedule>& schedules) {
  std::string names;
  for (const Schedule schedule : schedules) names += std::string(names.empty() ? "" : ", ") + to_string(schedule);
  return names;
}

}  // namespace

std::string schedule_names() {
  return names_of(all_schedules());
}

std::string alternating_names() {
  return names_of(alternating_schedules());
}

int in_flight(Schedule schedule, int num_stages, int stage, int micro_batches) {
  AM_CHECK(is_alternating(schedule));
  return std::min(micro_batches, row_of(schedule).in_flight(num_stages - stage, micro_batches));
}

}  // namespace automap::pipeline
