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
  std::optional<ScheduleShape> shape = ScheduleShape{};
};

const ScheduleRow kSchedules[] = {
    {Schedule::k1f1b, "1f1b", [](int behind, int) { return behind + 1; }},
    {Schedule::k1f1bOverlap, "1f1b-overlap", [](int behind, int) { return 2 * behind + 1; }},
    {Schedule::kAdaptive, "adaptive", [](int, int micro_batches) { return micro_batches; }},
    {Schedule::kGpipe, "gpipe", [](int, int micro_batches) { return micro_batches; }},
    {Schedule::kEager, "eager", nullptr},
    {Schedule::kInterleaved, "interleaved", nullptr, ScheduleShape{0}},
    {Schedule::kZbH1, "zb-h1", nullptr, ScheduleShape{1, Placement::kRoundRobin, true}},
    {Schedule::kSearched, "searched", nullptr, std::nullopt},
    {Schedule::kZbV, "zb-v", nullptr, ScheduleShape{2, Placement::kV, true}},
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

std::optional<ScheduleShape> shape_of(Schedule schedule) {
  return row_of(schedule).shape;
}

std::string shape_expected(const Plan& plan) {
  const std::optional<ScheduleShape> shape = shape_of(plan.schedule);
  if (!shape || ((shape->chunks == 0 || shape->chunks == plan.chunks) && shape->placement == plan.placement &&
                 shape->split_backward == plan.split_backward)) {
    return "";
  }
  const std::string parts = shape->chunks == 0   ? "parts"
                            : shape->chunks == 1 ? "one part for each group"
                                                 : std::to_string(shape->chunks) + " parts for each group";
  return parts + (shape->placement == Placement::kV ? " as a V" : ", round robin") + ", and a backward in " +
         (shape->split_backward ? "two passes" : "one pass");
}

std::string micro_batches_fault(Schedule schedule, int stages, int micro_batches) {
  const std::string found = ", not " + std::to_string(micro_batches);
  if (schedule == Schedule::kInterleaved && micro_batches % stages != 0) {
    return "interleaved 1F1B wants a multiple of the " + std::to_string(stages) + " stages as micro-batches" + found;
  }
  if (schedule == Schedule::kZbV && micro_batches < 2 * stages) {
    return "ZB-V wants at least " + std::to_string(2 * stages) + " micro-batches, twice as many as stages" + found;
  }
  return "";
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
