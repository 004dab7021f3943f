// A question holds all inputs of the planners and is made once: how should this model's step run on this cluster?
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/frameworks.h"
#include "plan/planners/planner.h"
#include "plan/planners/step_sizes.h"

namespace automap::planners {

// Kinds of plans that are looked at beside those of one width under the schedules of the request (which alternate).
struct BesidePlan {
  std::vector<pipeline::Schedule> schedules;  // ordered ones, which become the plan where they are shorter
  // The plan is of that one, however long.
  std::optional<pipeline::Schedule> only = {};
  std::vector<int> chunks = {2, 3, 4};  // v of interleaved 1F1B
  bool split_backward = true;           // searched orders may have the backward in two passes
  bool mixed_widths = false;            // stages of different widths
  bool wants(pipeline::Schedule schedule) const {
    return std::find(schedules.begin(), schedules.end(), schedule) != schedules.end();
  }
};

// Asks for every ordered schedule, and stages of different widths.
BesidePlan any_beside();

struct Question {
  Question() = default;
  // Throws nothing: what does not fit together is refused by who is asked.
  Question(pipeline::Profile model, machine::Cluster on, pipeline::ProblemOptions with = {}, StepRequest of = {},
           PlanRequest within = {})
      : cluster(std::move(on)), options(std::move(with)), step(of), request(std::move(within)) {
    set_profile(std::move(model));
  }

  // The profile of single devices, with every width that is known. Copies of a question share it.
  const pipeline::Profile& profile() const { return profile_->whole; }
  void set_profile(pipeline::Profile profile) { profile_ = std::make_shared<Model>(std::move(profile)); }
  // The profile of replicas of `width` devices, a width that the profile knows. It is made and checked on first use;
  // copies of a question share it. Throws what check_profile throws.
  pipeline::CheckedProfile profile_of(int width) const;

  machine::Cluster cluster;          // of single devices
  pipeline::ProblemOptions options;  // its micro-batches and width are not looked at: they are what is planned
  StepRequest step;
  PlanRequest request;
  BesidePlan beside;
  // Whose plans are looked for, within all of the above (apply_framework). A row: lives for ever.
  const Framework* framework = &any_framework();

 private:
  struct Model {
    explicit Model(pipeline::Profile of) : whole(std::move(of)) {}
    const pipeline::Profile whole;
    std::mutex mutex;
    std::optional<pipeline::CheckedProfile> checked;  // of `whole`; made under the mutex, then only read
  };
  std::shared_ptr<Model> profile_ = std::make_shared<Model>(pipeline::Profile());
};

// The planning problem of one split: on its devices, with replicas of its width.
std::unique_ptr<pipeline::Problem> problem_of(const Question& question, const StepSize& size,
                                              pipeline::ProblemOptions options);
// The same; null where the split has no problem (Error(kUsage)), because it has more samples than times are known for.
std::unique_ptr<pipeline::Problem> possible_problem(const Question& question, const StepSize& size,
                                                    const pipeline::ProblemOptions& options);

}  // namespace automap::planners
