// A plan that somebody gives, as its file says it: one of ours (automap.plan/2, /1) or a minimal one, a JSON object
// with cuts and device_cuts (docs/formats/plan.md). Nothing is judged here; score.h does.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json_object.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "infer/input.h"

namespace automap::infer {

struct GivenPlan {
  std::string source;  // the file, for messages
  pipeline::Plan plan;
  std::vector<pipeline::StageVariant> variants;  // [S]
  double micro_batch_samples = 0;                // mb; 0: not said
  int micro_batches = 0;                         // M; 0: not said
  int num_devices = 0;                           // 0: not said
  std::vector<int> widths;                       // [S] of their replicas
  int num_instructions = 0;                      // 0: not said
  std::string model, model_sha256;               // empty: not said
  // How replicas of several devices hold the tensors: what it is called in messages, and what was said of it.
  std::vector<std::pair<std::string, Json>> partitions;
  // Options of automap-infer that the plan was made with -> value. Files of version 1 were made with what the papers
  // assume.
  std::map<std::string, std::string> settings;
};

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
