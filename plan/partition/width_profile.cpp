#include "plan/partition/width_profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/graph/variables.h"
#include "common/machine/chosen_devices.h"
#include "plan/partition/widths.h"
#include "profile/attention_heads.h"

namespace automap::partition {
namespace {

// Says in a sentence how the devices of a replica hold its tensors.
std::string sentence(const PartitionPlan& plan, int width, const machine::Cluster& cluster, const WidthChoices& choices,
                     const std::string& not_kept) {
  // Sums that the next operator wants in parts only.
  const auto scattered = static_cast<int>(std::count_if(plan.collectives.begin(), plan.collectives.end(),
                                                        [](const PlanCollective& one) { return one.kept_in_parts; }));
  std::string moved = std::to_string(plan.all_reduces - scattered) + " all-reduces";
  if (scattered > 0) moved += ", " + std::to_string(scattered) + " reduce-scatters";
  if (plan.all_gathers > 0) moved += ", " + std::to_string(plan.all_gathers) + " all-gathers";
  if (plan.all_to_alls > 0) moved += ", " + std::to_string(plan.all_to_alls) + " all-to-alls";
  const bool inside = machine::one_server_holds(cluster, width);
  return std::to_string(width) + " devices" + (inside ? " of one server each" : " each, over several whole servers") +
         ", which hold " + std::to_string(plan.partitioned) + " of " + std::to_string(plan.decided.size()) +
         " variables in parts; " + moved +
         " per micro-batch between them, inside forward and backward (automap-search opp MODEL --shards " +
         std::to_string(width) + (choices.sequence_parallel ? "" : " --sequence-parallel off") +
         (choices.keep_shardings && not_kept.empty() ? " --keep-shardings)" : ")") +
         (not_kept.empty() ? "" : "; of the module's own shardings none is kept: " + not_kept);
}

void round_columns(std::vector<pipeline::DeviceTimes>* of_devices) {
  for (pipeline::DeviceTimes& times : *of_devices) {
    for (auto* table : {&times.forward_ms, &times.backward_ms}) {
      for (std::vector<double>& row : *table) {
        for (double& ms : row) ms = static_cast<float>(ms);
      }
    }
  }
}

}  // namespace

void round_times(pipeline::Profile* profile) {
  round_columns(&profile->times);
  for (pipeline::WidthColumns& width : profile->widths) round_columns(&width.times);
}

profile::ModelProfile profile_with_partitions(const hlo::HloModule& module, const std::string& source,
                                              profile::ProfileRequest request,
                                              const std::vector<machine::DeviceModel>& devices,
                                              const machine::Cluster& cluster, std::vector<WidthPlan> widths,
                                              const WidthChoices& choices) {
  std::map<int, PartitionPlan> partitions;
  std::map<int, std::string> not_kept;
  request.widths.clear();
  for (WidthPlan& found : widths) {
    not_kept.emplace(found.parts.width, std::move(found.not_kept));
    partitions.emplace(found.parts.width, std::move(found.plan));
    request.widths.push_back(std::move(found.parts));
  }
  profile::ModelProfile model = profile::profile_module(module, source, request, devices);
  if (!model.profile.widths.empty()) {
    model.profile.attention_heads = profile::attention_heads(module.graph, pipeline::own_samples(model.profile));
  }
  for (pipeline::WidthColumns& columns : model.profile.widths) {
    const PartitionPlan& plan = partitions.at(columns.width);
    columns.partition = decision_json_text(plan);
    columns.partition_text = sentence(plan, columns.width, cluster, choices, not_kept.at(columns.width));
    columns.servers = cluster.name;
  }
  return model;
}

profile::ModelProfile profile_with_widths(const hlo::HloModule& module, const std::string& source,
                                          profile::ProfileRequest request,
                                          const std::vector<machine::DeviceModel>& devices,
                                          const machine::Cluster& cluster, const std::vector<int>& widths,
                                          const WidthChoices& choices, std::string* why_none) {
  std::vector<WidthPlan> found;
  why_none->clear();
  if (!widths.empty()) {
    std::vector<graph::VariableRequest> variables;
    if (!request.variables.empty()) variables = graph::load_variable_list(request.variables);
    found = plan_widths(module.graph, request.variables.empty() ? nullptr : &variables, devices, cluster, widths,
                        choices, why_none);
    if (!found.empty()) why_none->clear();
  }
  return profile_with_partitions(module, source, std::move(request), devices, cluster, std::move(found), choices);
}

}  // namespace automap::partition
