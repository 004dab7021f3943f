#include "infer/nearest_plan.h"

#include <utility>
#include <vector>

#include "common/base/cli.h"
#include "infer/document.h"
#include "plan/planners/answer.h"
#include "plan/systems/rivals/published.h"

namespace automap::infer {
namespace {

NearestPlan plan_for(planners::Question& question, const PlanInput& input, bool explored, bool sequence_parallel,
                     const emit::EmitOptions& options) {
  NearestPlan out;
  const planners::Answer answer = planners::answer(question, rivals::kinds_beside(explored), {});
  if (!answer.one_width.found()) {
    out.why = answer.notes.infeasible;
    return out;
  }
  pipeline::PlanDocument document = document_of(question, answer, input, std::nullopt, {});
  document.to_type = to_type(document, question, answer.plan().placed, *question.framework, sequence_parallel, options);
  if (document.to_type->cannot.empty()) {
    out.document = std::move(document);
  } else {
    out.why = std::string(question.framework->name) + " cannot run " + document.to_type->cannot;
  }
  return out;
}

}  // namespace

NearestPlan nearest_plan(planners::Question question, const PlanInput& input, bool explored, bool sequence_parallel,
                         const emit::EmitOptions& options) {
  question.request.cancelled = StopToken::stop_requested;
  NearestPlan near = plan_for(question, input, explored, sequence_parallel, options);
  if (near.document || StopToken::stop_requested() || question.request.stages > 0) return near;
  question.request.stages = 1;
  near = plan_for(question, input, explored, sequence_parallel, options);
  near.one_stage = true;
  return near;
}

}  // namespace automap::infer
