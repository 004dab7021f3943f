#include "plan/planners/question.h"

namespace automap::planners {

BesidePlan any_beside() {
  BesidePlan beside;
  for (const pipeline::Schedule schedule : pipeline::all_schedules()) {
    if (!is_alternating(schedule)) beside.schedules.push_back(schedule);
  }
  beside.mixed_widths = true;
  return beside;
}

std::unique_ptr<pipeline::Problem> problem_of(const Question& question, const StepSize& size,
                                              pipeline::ProblemOptions options) {
  options.micro_batches = size.micro_batches;
  options.micro_batch_samples = size.samples;
  options.group_size = size.group_size;
  options.width = size.width;
  return std::make_unique<pipeline::Problem>(
      size.width == 1 ? question.profile() : profile_at(question.profile(), size.width),
      replicas_of(question.cluster, size), options);
}

}  // namespace automap::planners
