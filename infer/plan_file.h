// Reads given plan files: ours (automap.plan/3, /2, /1) or minimal ones, a JSON object with cuts and device_cuts
// (docs/formats/plan.md).
#pragma once

#include <string>
#include <vector>

#include "infer/input.h"
#include "plan/planners/given_plan.h"

namespace automap::infer {

using planners::GivenPlan;

// "-" = standard input, gzipped or not. Throws Error(kData) naming the file, the key, what was found and expected:
// neither kind of plan, lists of different lengths, cuts that do not rise, K that rises, exceeds M or contradicts the
// schedule, words that are none.
GivenPlan read_plan_file(const std::string& path);

// Throws Error(kData) naming both when the plan was made for another model than the input, by its forward instructions
// or by its hash; what a file does not say is not compared.
void check_model(const GivenPlan& given, const PlanInput& input);

// Plans are counted with the partition that is found for the input's links. Throws Error(kData) naming the key when a
// partition of the file names a tensor that the input's does not have, or leaves one out; returns a sentence for every
// width whose partition is another one.
std::vector<std::string> check_partitions(const GivenPlan& given, const pipeline::Profile& profile);

}  // namespace automap::infer
