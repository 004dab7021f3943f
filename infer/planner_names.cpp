// The planners by name.
#include "infer/planner.h"

namespace automap::infer {
namespace {

struct PlannerName {
  PlannerKind planner;
  const char* name;
};

// In the order of PlannerKind, which is that of all_planners().
constexpr PlannerName kNames[] = {
    {PlannerKind::kAuto, "auto"},
    {PlannerKind::kPolicy, "policy"},
    {PlannerKind::kRollouts, "rollouts"},
    {PlannerKind::kExact, "exact"},
    {PlannerKind::kBalanced, "balanced"},
    {PlannerKind::kUniform, "uniform"},
    {PlannerKind::kLocalSearch, "local-search"},
    {PlannerKind::kDataParallel, "data-parallel"},
};

}  // namespace

const char* to_string(PlannerKind planner) {
  return kNames[static_cast<std::size_t>(planner)].name;
}

std::optional<PlannerKind> parse_planner(std::string_view name) {
  for (const PlannerName& row : kNames) {
    if (name == row.name) return row.planner;
  }
  return std::nullopt;
}

std::vector<PlannerKind> all_planners() {
  std::vector<PlannerKind> all;
  for (const PlannerName& row : kNames) all.push_back(row.planner);
  return all;
}

}  // namespace automap::infer
