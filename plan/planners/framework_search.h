// Finds the plan of a step among those that a framework expresses (frameworks.h).
//
// Some properties of plans hold for all stages together, but the planners choose stage by stage. So the question is
// asked once for each such property: one stage, or several with one ZeRO level and with or without recomputation, or,
// where stages have equal numbers of layers, each number of stages. Where plans are cut between layers, the planners
// see one position for each layer; their plans are then priced on the instructions again, and the exact solver moves
// the cuts from layer to layer there. The shortest is the plan.
//
// Bounds are of the question that apply_framework leaves, asked of any framework, over all cuts: the framework's plans
// are among its plans.
#pragma once

#include "plan/planners/step_choice.h"

namespace automap::planners {

// Searches like search_step, for a question whose framework limits plans. Without a plan result.infeasible names the
// property of other frameworks' plans that this framework lacks.
StepPlan search_for_framework(const Question& question);

}  // namespace automap::planners
