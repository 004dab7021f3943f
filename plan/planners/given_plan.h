// A plan that a user gives, as read from its file. score.h judges it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"

namespace automap::planners {

struct GivenPlan {
  std::string source;  // the file, for messages
  pipeline::Plan plan;
  std::vector<pipeline::StageVariant> variants;  // [S]
  double micro_batch_samples = 0;                // mb; 0: not said
  int micro_batches = 0;                         // M; 0: not said
  int num_devices = 0;                           // 0: not said
  std::vector<int> devices;                      // which, 0-based, in the order of its stages; empty: the first ones
  std::vector<int> widths;                       // [S] of their replicas
  int num_instructions = 0;                      // 0: not said
  std::string state_of;  // whose training state it was counted with (infer/training_state.h); empty: the module's
  std::string made_for;  // the framework that it was planned for; empty: not said
  std::string model, model_sha256;  // empty: not said
  // The partition of tensors in replicas of several devices: its name in messages, and its value in the file.
  std::vector<std::pair<std::string, Json>> partitions;
  // Options of automap-infer that the plan was made with -> value. Files of version 1 were made with what the papers
  // assume.
  std::map<std::string, std::string> settings;
  std::optional<pipeline::MeasuredStep> measured_step;  // that the times it was made from are corrected by
};

}  // namespace automap::planners
