#include "infer/kernels_alone.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/machine/link_kinds.h"
#include "infer/document.h"
#include "infer/input.h"
#include "plan/planners/answer.h"
#include "plan/planners/relaxed_rules.h"
#include "plan/systems/rivals/published.h"

namespace automap::infer {

std::optional<pipeline::PlanDocument::Relaxed> kernels_alone(const KernelsAlone& asked, double step_ms) {
  const double left_s = asked.request.time_limit_s - asked.spent_ms / 1e3;
  if (!can_be_read_again(asked.options.input) || !(left_s > 0)) return std::nullopt;
  machine::Cluster cluster = asked.cluster;
  std::vector<std::string> types;
  const auto is_without = [&](const machine::ServerGroup& servers) {
    const auto device = machine::find_changed_device(machine::device_type(servers.device));
    if (!device || !device->has_fused_attention()) return true;
    const std::string type = machine::device_type(servers.device);
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    return false;
  };
  cluster.servers.erase(std::remove_if(cluster.servers.begin(), cluster.servers.end(), is_without),
                        cluster.servers.end());
  if (cluster.servers.empty()) return std::nullopt;
  try {
    const PlanInput input = read_input(asked.options.input, cluster);
    planners::Question question = make_question(asked.options, input.profile, cluster);
    question.request = asked.request;
    question.request.effort = planners::plan_effort(Effort::kQuick);
    question.request.lower_bound = false;
    question.request.time_limit_s = left_s;
    question.request.cancelled = StopToken::stop_requested;
    question.framework = &asked.framework;
    planners::correct(asked.correction, &question);
    const bool all_kinds = explores(asked.options, asked.request);
    const planners::Answer found = planners::answer(question, rivals::kinds_beside(all_kinds));
    if (!found.plan().found()) return std::nullopt;
    const double ms = found.plan().simulated_step_ms;
    if (ms >= step_ms * (1 - planners::kRuleWorthNaming)) return std::nullopt;
    return pipeline::PlanDocument::Relaxed{kWrittenAttention, "a cluster of " + join(types, " and ") + " alone", ms,
                                           true};
  } catch (const Error&) {
    // The question may fit the whole cluster only; and its answer is known already.
    return std::nullopt;
  }
}

}  // namespace automap::infer
