// Draws a module's layers and the tensors between them, with the stages of a plan.
#pragma once

#include <string>

#include "common/pipeline/plan_json.h"
#include "inspect/layer_graph.h"

namespace automap::inspect {

// An SVG file that needs nothing else, from top to bottom, in the colours of the reader (light or dark). `plan`: null,
// or a plan of this module; throws Error(kData) naming `source` where the module lacks the instructions of its stages.
std::string graph_picture(const LayerGraph& layers, const pipeline::PlanDocument* plan, const std::string& source);

}  // namespace automap::inspect
