#include "plan/planners/effort.h"

namespace automap::planners {

PlanEffort plan_effort(Effort effort) {
  PlanEffort normal;
  normal.units = 2'000'000'000;
  normal.local_search_evaluations = 6000;
  normal.polish_evaluations = 4000;
  normal.explore_evaluations = 20000;
  normal.even_moves = 300;
  normal.order_tries = 40;
  normal.order_starts = 8;
  normal.layer_units = 1'000'000'000;
  PlanEffort other = normal;
  switch (effort) {
    case Effort::kNormal: break;
    case Effort::kQuick:
      other.units /= 8;
      other.local_search_evaluations /= 8;
      other.polish_evaluations /= 4;
      other.explore_evaluations /= 8;
      other.even_moves = other.even_moves * 2 / 3;
      other.order_tries /= 2;
      other.layer_units /= 8;
      break;
    case Effort::kThorough:
      other.units *= 10;
      other.local_search_evaluations *= 10;
      other.polish_evaluations *= 4;
      other.explore_evaluations *= 10;
      other.even_moves *= 4;
      other.order_tries *= 5;
      other.order_starts *= 4;
      other.layer_units *= 10;
      break;
  }
  return other;
}

}  // namespace automap::planners
