#include "plan/planners/question.h"

#include "common/base/error.h"

namespace automap::planners {

BesidePlan any_beside() {
  BesidePlan beside;
  for (const pipeline::Schedule schedule : pipeline::all_schedules()) {
    if (!is_alternating(schedule)) beside.schedules.push_back(schedule);
  }
  beside.mixed_widths = true;
  return beside;
}

pipeline::CheckedProfile Question::profile_of(int width) const {
  {
    const std::lock_guard<std::mutex> lock(profile_->mutex);
    if (!profile_->checked) profile_->checked.emplace(profile_->whole);
  }
  return profile_->checked->at_width(width).kept_by(profile_);
}

std::unique_ptr<pipeline::Problem> problem_of(const Question& question, const StepSize& size,
                                              pipeline::ProblemOptions options) {
  options.micro_batches = size.micro_batches;
  options.micro_batch_samples = size.samples;
  options.group_size = size.group_size;
  options.width = size.width;
  return std::make_unique<pipeline::Problem>(question.profile_of(size.width), replicas_of(question.cluster, size),
                                             options);
}

std::unique_ptr<pipeline::Problem> possible_problem(const Question& question, const StepSize& size,
                                                    const pipeline::ProblemOptions& options) {
  try {
    return problem_of(question, size, options);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    return nullptr;
  }
}

}  // namespace automap::planners
