// Prints the answer of automap-infer in words and tables for people.
#pragma once

#include <string>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"

namespace automap::infer {

struct ReportOptions {
  bool all_planners = false;           // a line for every planner instead of the runners-up
  int max_stages = 16;                 // what the lower bound speaks about
  double model_batch = 0;              // samples of the module's own batch; 0: unknown
  bool made_here = false;              // the module is made of a description, and of any batch
  std::int64_t masked_attentions = 0;  // profile::ModelWork's
  std::string software;                // what the times are of, where they are not a compiled step's
  bool fused_attention = false;        // nobody asked for the kernels of libraries that it is counted by
  bool details = false;                // all of it is printed
  bool training = true;                // else the model has no backward pass
  bool kinds_asked = false;            // the table of kinds is part of the answer
  bool batch_given = false;            // the samples of a step are what somebody asked for
  std::int64_t batch_rounds = 1;       // a batch that nobody gave is a multiple of it, for the framework's pipelines
  double free_plan_ms = 0;             // of a plan with equal replicas: the step of the best without that; 0: not asked
  int cluster_devices = 0;             // of the whole cluster, used or not
  bool may_use_all = true;             // the framework that is planned for runs on all of them
  std::string framework;               // --for, where it limits plans
  int width = 0;                       // columns of the terminal; 0: lines are as long as they get
  std::string plans_for;               // the framework, and what plans for it hold to; empty: any
};

// The source of the number of samples of a step, when --batch is missing: " (no --batch: 16 times the model's 4)".
std::string batch_rounds_text(const ReportOptions& options);
std::string usual_batch_text(const pipeline::PlanDocument& document, const ReportOptions& options);

// The whole report; ends with a newline. `problem` is the one that the document was made from.
std::string report_text(const pipeline::PlanDocument& document, const pipeline::Problem& problem,
                        const ReportOptions& options);

// The tables that were asked for by name, each behind an empty line; empty: none.
std::string asked_tables_text(const pipeline::PlanDocument& document, const ReportOptions& options);

}  // namespace automap::infer
