// Draws the line chart of --vary and --compare-clusters: the step and the samples per second over the changed value.
#pragma once

#include <string>

#include "infer/vary_report.h"

namespace automap::infer {

// An SVG file that needs nothing else, in the colours of the reader (light or dark). Values without a plan are crosses
// on the axis that say why. A cluster's name is no number: dots stand side by side, unconnected.
std::string vary_chart(const VariedRows& rows);

}  // namespace automap::infer
