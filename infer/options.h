// The options of automap-infer, and what they ask for.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "common/base/options.h"
#include "common/base/work.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "infer/input.h"
#include "infer/planner.h"
#include "infer/step_choice.h"

namespace automap::infer {

struct InferOptions {
  InputOptions input;
  std::string cluster, output, policy, plan, layout;
  bool sweep = false;
  pipeline::ProblemOptions problem;
  std::string batch = "auto", micro_batch = "auto", micro_batches = "auto", replicas = "whole",
              gradient_sync = "overlap";
  std::string zero = "auto", recompute = "auto", state_factor = "auto";
  bool optimizer = true, allow_idle_stages = false;
  double bucket_mib = 25, memory_reserve = 10;
  std::string stages = "auto", schedule = "adaptive", planner = "auto", objective = "auto", grid = "128",
              value = "full";
  int max_stages = 16, beam = 0;
  bool refine = false, no_refine = false, all_planners = false, planner_table = false, json = false;
  std::string effort = to_string(Effort::kNormal);
  double time_limit_s = std::numeric_limits<double>::infinity();
};

// Declares them; they are filled in when the table parses.
void declare_options(OptionTable& table, InferOptions& options);

// What was asked for. Throw Error(kUsage) naming the option and what was expected.
StepRequest make_step(const InferOptions& options);
pipeline::ProblemOptions make_problem_options(const InferOptions& options, const pipeline::Profile& profile);
PlanRequest make_request(const InferOptions& options);

}  // namespace automap::infer
