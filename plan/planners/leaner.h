// Chooses, among plans of about the same length, the one that leaves the most memory free.
#pragma once

#include <string>
#include <vector>

#include "common/base/work.h"
#include "plan/planners/candidate.h"

namespace automap::planners {

// Steps whose lengths differ by less are equally long: the leaner plan is the better one.
constexpr double kSameLength = 0.001;
// A plan that fills more of its devices' usable memory than kFull gives way to one that is this little longer and fills
// less than kRoomy: what a framework adds is not known that well.
constexpr double kLittleLonger = 0.01;
constexpr double kFull = 0.95, kRoomy = 0.85;
// The text of Candidate::left_out for a shorter candidate that gave way to a leaner plan.
constexpr const char* kLeanerTaken = "it fills more memory, and the leaner of plans as long is taken";

struct LeanerPlan {
  Candidate plan;
  std::string text;  // what that costs; empty: nothing that is worth saying
};

// Returns a leaner plan in place of `plan`, which is of one width: one of `others`, or `plan` with other variants of
// stages, as the question asks and its framework allows. Nothing: none is leaner.
std::optional<LeanerPlan> leaner_plan(const Question& question, const Candidate& plan,
                                      const std::vector<Candidate>& others, Work& work);

}  // namespace automap::planners
