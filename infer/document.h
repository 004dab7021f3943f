// Makes the plan document (common/pipeline/plan_json.h) of an answer or of a given plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/machine/device.h"
#include "common/pipeline/plan_json.h"
#include "infer/input.h"
#include "plan/emit/to_type.h"
#include "plan/planners/answer.h"
#include "plan/planners/question.h"
#include "plan/planners/score.h"

namespace automap::infer {

using OwnDevice = std::optional<machine::DeviceModel>;  // of --device

// A premise of bounds (PlanInput::written_attention), and whether it is one of these.
constexpr const char* kWrittenAttention = "what attention keeps is counted as written on every device";
bool of_written_attention(const pipeline::PlanDocument& document);

// The document of an answer that has a plan. `within`: the given options that exclude plans, which the bounds do not
// cover.
pipeline::PlanDocument document_of(const planners::Question& question, const planners::Answer& answer,
                                   const PlanInput& input, const OwnDevice& own, std::vector<std::string> within);
// The document of a given plan.
pipeline::PlanDocument document_of(const planners::Question& question, const planners::ScoredPlan& scored,
                                   const PlanInput& input, const OwnDevice& own);

// The text to type to run the plan in that framework. `sequence_parallel`: --sequence-parallel is not off.
pipeline::PlanToType to_type(const pipeline::PlanDocument& document, const planners::Question& question,
                             const pipeline::PlacedPlan& placed, const planners::Framework& framework,
                             bool sequence_parallel, const emit::EmitOptions& options = {});

// Adds the inputs and options that the document was made from.
void add_provenance(pipeline::PlanDocument& document, const OptionTable& table, const PlanInput& input,
                    const machine::Cluster& cluster);

}  // namespace automap::infer
