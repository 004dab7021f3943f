// Asks the question that a plan answered again for a framework: finds the nearest plan that it can run, and the cost of
// the change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/plan_json.h"
#include "infer/input.h"
#include "infer/options.h"
#include "infer/software.h"
#include "plan/emit/to_type.h"
#include "plan/planners/question.h"

namespace automap::emit {

struct AskedAgain {
  infer::PlanInput input;
  std::optional<planners::Question> question;  // none where the cluster is not known
  std::vector<std::string> command;            // automap-infer's words for it
  const infer::Software* software = nullptr;   // that the framework runs in
  bool explored = false;
};

// Reads the model as it was read for the plan. `cluster_word`: the name of the cluster on a command line. Throws
// Error(kData) where it is another model than the plan's.
AskedAgain ask_again(const pipeline::PlanDocument& document, const std::string& source, const std::string& model,
                     const std::optional<machine::Cluster>& cluster, const std::string& cluster_word,
                     const planners::Framework& framework);

// A sentence for the hint of an error: the nearest plan, its length beside that of `document`, and how to get it; or
// why there is none.
std::string nearest_text(const AskedAgain& again, const pipeline::PlanDocument& document, const EmitOptions& options);

}  // namespace automap::emit
