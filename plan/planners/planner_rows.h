// The table of planners says what each one is called, needs and does. A new planner needs its number (planner.h) and
// its row with its function (planner_rows.cpp).
#pragma once

#include <vector>

#include "plan/planners/planner.h"

namespace automap::planners {

class Planning;
struct Turn;

struct PlannerRow {
  PlannerKind kind;
  const char* name;
  bool needs_policy;  // without a trained network it has no turn
  // Goes from stage to stage with a network or without, greedy or with a beam: answers at once, and plans at most
  // models::kMaxStages stages. `auto` asks one of these twice.
  bool walks;
  bool only_asked;  // has no turn in `auto` or beside others
  // The share of the work of `auto` after which this planner's turn ends and the next planner's begins.
  double until;
  // Tells `planning` of the plans it finds. Null: `auto`, which asks the others.
  void (*propose)(Planning& planning, Turn& turn);
};

// The rows in the order in which `auto` asks them, the cheapest first; `auto` itself is in front.
const std::vector<PlannerRow>& planner_rows();
const PlannerRow& row_of(PlannerKind planner);

}  // namespace automap::planners
