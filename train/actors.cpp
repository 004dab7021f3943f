#include "train/actors.h"

#include <algorithm>
#include <optional>

#include "models/plan_space.h"

namespace automap::train {

models::Played play_problem(const ProblemSource& source, std::uint64_t number, const models::Policy& policy,
                            const models::PlayOptions& options, std::uint64_t seed) {
  const TrainingProblem problem = source.problem(number);
  const pipeline::Problem prepared = problem.parts.problem();
  const int most = std::min({models::kMaxStages, prepared.num_devices(), prepared.num_instructions()});
  models::PlanSpaceOptions space_options;
  space_options.stages = std::min(problem.stages, most);
  space_options.schedule = problem.schedule;
  if (space_options.stages < 2) {
    // Nothing to learn, but the plays count: a run of --episodes ends on any data.
    models::Played played;
    played.plays = played.infeasible = static_cast<std::uint64_t>(options.plays);
    return played;
  }
  std::optional<models::KnownOptimum> known;
  if (problem.optimum) known = models::KnownOptimum{*problem.optimum, problem.optimum_ms};
  return models::play_space(models::PlanSpace(prepared, space_options), number, policy, options, seed,
                            known ? &*known : nullptr);
}

}  // namespace automap::train
