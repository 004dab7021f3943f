// Prices an answer of opp and adp by the cost that plans of all kinds have, as a layout of one stage
// (plan/planners/score.h), with the columns of the very partition that is reported.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/mesh_plan.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/plan_cost.h"
#include "plan/partition/widths.h"
#include "plan/planners/question.h"
#include "plan/planners/step_sizes.h"
#include "search/commands.h"

namespace automap::search {

// The options for counting a step's kernels and samples, in automap-infer's words.
struct CostOptions {
  std::string attention = "auto", batch = "auto", micro_batch = "auto", micro_batches = "auto";
  void declare(OptionTable* table);
  // Throws Error(kUsage). Nothing asked: one micro-batch, the module's own.
  planners::StepRequest step() const;
};

// True if replicas of so many devices stand inside the servers of a cluster.
bool is_width(const machine::Cluster& cluster, int devices);

class OneCost {
 public:
  // `loaded` must stay alive. Throws Error(kUsage) for wrong options.
  OneCost(const LoadedModel& loaded, const ModelOptions& model, const PricingOptions& pricing, const CostOptions& asked,
          machine::Cluster cluster, bool sequence_parallel);

  // Sets the partition of replicas of as many devices as `model` is split over, in place of the known one.
  void know(const sharding::ShardingModel& model, const sharding::Propagation& decided,
            const partition::PartitionPlan& plan);
  bool knows(int width) const;
  // dp replicas of tp devices, which were made known. Throws Error(kUsage) where the samples that were asked for cannot
  // be so. `other`: not those, but so many.
  partition::CountedCost of(int dp, int tp, int zero, const planners::StepSize* other = nullptr);
  // Samples of a micro-batch, and micro-batches of a step, as asked for; nothing where there is no cost.
  std::optional<planners::StepSize> step_size();
  // The same over other numbers of the cluster's servers.
  void set_cluster(const machine::Cluster& cluster);

 private:
  void make_question();
  planners::StepSize size_of(const planners::Question& question) const;

  const LoadedModel& loaded_;
  const std::string variables_, attention_;
  const planners::StepRequest step_;
  machine::Cluster cluster_;
  const bool sequence_parallel_;
  std::vector<machine::DeviceModel> devices_;
  std::vector<partition::WidthPlan> widths_;
  std::optional<planners::Question> question_;  // of what is known
  std::string why_none_;                        // why there can be none
};

}  // namespace automap::search
