#include "plan/planners/question.h"

namespace automap::planners {

std::unique_ptr<pipeline::Problem> problem_of(const Question& question, const pipeline::ProblemOptions& options,
                                              int replicas) {
  const int width = options.width;
  const machine::Cluster all = width == 1 ? question.cluster : machine::replicas_of(question.cluster, width);
  return std::make_unique<pipeline::Problem>(width == 1 ? question.profile() : profile_at(question.profile(), width),
                                             replicas > 0 ? first_devices(all, replicas) : all, options);
}

}  // namespace automap::planners
