// Writes the manifest "automap.programs/2": the inputs and results of a plan's programs.
#pragma once

#include <string>

#include "common/base/json.h"
#include "plan/programs/program_set.h"
#include "plan/programs/step_cut.h"

namespace automap::programs {

// Inputs by their parameter's number ("p3"), values by the node that makes them ("v17").
std::string value_name(const StepCut& cut, graph::NodeId id);

// The programs with the values that they read, make, send and receive, the results, and the holders of the inputs.
// `prefix`: of the files' names.
Json programs_json(const StepCut& cut, const ProgramSet& set, const std::string& prefix, const std::string& ending);

// The step's inputs in the order of the module's parameters.
Json inputs_json(const StepCut& cut);

std::string file_of(const Program& program, const std::string& prefix, const std::string& ending);

}  // namespace automap::programs
