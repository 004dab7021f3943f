#include "search/one_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/device_match.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/profile.h"
#include "plan/partition/width_profile.h"
#include "plan/planners/own_device.h"
#include "plan/planners/score.h"
#include "profile/fused_chains.h"
#include "profile/profile_hlo.h"

namespace automap::search {

namespace {

// True if the error is about the question, not about the program.
bool is_about_the_question(const Error& e) {
  return e.kind() == ErrorKind::kUsage || e.kind() == ErrorKind::kData || e.kind() == ErrorKind::kConfig ||
         e.kind() == ErrorKind::kInfeasible;
}

}  // namespace

void CostOptions::declare(OptionTable* table) {
  table
      ->add(
          &attention, "attention",
          "attention and cross-entropy as kernels of libraries (fused), as the module says (as-written), or fused for "
          "f16 and bf16 on devices from A100 on (auto)")
      .choices(profile::attention_modes())
      .traits(kInProvenance);
  table->add(&batch, "batch", "samples per step; auto: those of one micro-batch")
      .no_file()
      .metavar("auto|B")
      .traits(kInProvenance);
  table
      ->add(&micro_batch, "micro-batch",
            "samples that are computed together, over all replicas; auto: the module's own batch")
      .no_file()
      .metavar("auto|N")
      .traits(kInProvenance);
  table
      ->add(&micro_batches, "micro-batches",
            "micro-batches per step, whose gradients are added up: batch = micro-batch * micro-batches; auto: 1")
      .no_file()
      .metavar("auto|M")
      .traits(kInProvenance);
}

planners::StepRequest CostOptions::step() const {
  planners::StepRequest step;
  step.batch = number_or_word(batch, "batch", "auto", 1, 1 << 30);
  step.micro_batch = number_or_word(micro_batch, "micro-batch", "auto", 1, 1 << 30);
  step.micro_batches = number_or_word(micro_batches, "micro-batches", "auto", 1, planners::kMostGivenMicroBatches);
  return step;
}

bool is_width(const machine::Cluster& cluster, int devices) {
  try {
    machine::replicas_of(cluster, devices);
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    return false;
  }
}

OneCost::OneCost(const LoadedModel& loaded, const ModelOptions& model, const PricingOptions& pricing,
                 const CostOptions& asked, machine::Cluster cluster, bool sequence_parallel)
    : loaded_(loaded),
      variables_(model.variables),
      attention_(asked.attention),
      step_(asked.step()),
      cluster_(std::move(cluster)),
      sequence_parallel_(sequence_parallel) {
  std::optional<machine::DeviceModel> device;
  try {
    if (!pricing.device.empty()) {
      device = machine::load_device(pricing.device);
      planners::set_device(*device, &cluster_);
    }
    devices_ = profile::cluster_devices(device, cluster_);
  } catch (const Error& e) {
    if (!is_about_the_question(e)) throw;
    why_none_ = e.what();
  }
}

void OneCost::know(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                   const partition::PartitionPlan& plan) {
  if (!why_none_.empty() || model.linkage().shards() == 1) return;
  partition::WidthPlan known{plan, partition::width_parts(model, decided, devices_, cluster_), {}};
  const auto same = std::find_if(widths_.begin(), widths_.end(), [&](const partition::WidthPlan& other) {
    return other.parts.width == known.parts.width;
  });
  if (same != widths_.end()) {
    *same = std::move(known);
  } else {
    widths_.push_back(std::move(known));
  }
  std::sort(widths_.begin(), widths_.end(),
            [](const partition::WidthPlan& a, const partition::WidthPlan& b) { return a.parts.width < b.parts.width; });
  question_.reset();
}

bool OneCost::knows(int width) const {
  return width == 1 || std::any_of(widths_.begin(), widths_.end(),
                                   [&](const partition::WidthPlan& known) { return known.parts.width == width; });
}

void OneCost::set_cluster(const machine::Cluster& cluster) {
  for (std::size_t i = 0; i < cluster_.servers.size(); ++i) cluster_.servers[i].count = cluster.servers[i].count;
  if (question_) question_->cluster = cluster_;
}

void OneCost::make_question() {
  if (question_ || !why_none_.empty()) return;
  try {
    profile::ProfileRequest request;
    request.variables = variables_;
    request.attention = profile::parse_attention_mode(attention_);
    profile::ModelProfile model = partition::profile_with_partitions(*loaded_.module, loaded_.source, request, devices_,
                                                                     cluster_, widths_, {sequence_parallel_});
    partition::round_times(&model.profile);
    pipeline::match_devices(model.profile, cluster_, loaded_.source);
    question_.emplace(std::move(model.profile), cluster_, pipeline::usual_options(), step_);
  } catch (const Error& e) {
    if (!is_about_the_question(e)) throw;
    why_none_ = e.what();
  }
}

planners::StepSize OneCost::size_of(const planners::Question& question) const {
  planners::StepRequest step = question.step;
  if (step.micro_batch == 0 && (step.batch == 0 || step.micro_batches == 0)) {
    step.micro_batch = pipeline::own_samples(question.profile());
  }
  if (step.batch == 0 && step.micro_batches == 0) step.micro_batches = 1;
  return planners::step_sizes(step, question.profile(), pipeline::Replicas::kWhole).front();
}

std::optional<planners::StepSize> OneCost::step_size() {
  make_question();
  if (!question_) return std::nullopt;
  return size_of(*question_);
}

partition::CountedCost OneCost::of(int dp, int tp, int zero, const planners::StepSize* other) {
  partition::CountedCost out;
  if (!is_width(cluster_, tp)) {
    out.why_none = std::to_string(tp) + " devices that hold tensors in parts are counted inside one server of " +
                   cluster_.name + ", or over several whole servers that are alike, and neither is so many";
    return out;
  }
  make_question();
  if (!question_) {
    out.why_none = why_none_;
    return out;
  }
  planners::Question question = *question_;
  planners::StepRequest& step = question.step;
  const planners::StepSize size = other == nullptr ? size_of(question) : *other;
  if (std::fmod(size.samples, dp) != 0) {
    out.why_none = plural(dp, "replica") + " do not divide the " + format_count(std::llround(size.samples)) +
                   " samples of a micro-batch";
    if (other == nullptr && (step_.batch > 0 || step_.micro_batch > 0)) {
      throw Error(ErrorKind::kUsage, out.why_none, "give a --micro-batch that they divide");
    }
    return out;
  }
  step.batch = 0;
  step.micro_batch = static_cast<std::int64_t>(size.samples);
  step.micro_batches = size.micro_batches;
  planners::Layout layout;
  layout.dp = dp;
  layout.tp = tp;
  layout.micro_batch_size = step.micro_batch / dp;
  layout.variant.zero = dp > 1 ? zero : 0;
  try {
    const planners::ScoredPlan scored = planners::score_layout(layout, question);
    if (!scored.infeasible.empty() && scored.missing_bytes <= 0) {
      out.why_none = scored.infeasible;
      return out;
    }
    partition::PlanCost cost;
    cost.layout = layout.text();
    cost.micro_batch_samples = size.samples;
    cost.micro_batches = size.micro_batches;
    cost.step_ms = scored.step_ms;
    cost.simulated_step_ms = scored.simulated_step_ms;
    cost.memory_bytes = pipeline::memory_of(scored.placed).front();
    cost.capacity_bytes = scored.placed.stages.front().group().capacity_bytes;
    out.cost = std::move(cost);
  } catch (const Error& e) {
    if (!is_about_the_question(e)) throw;
    out.why_none = e.what();
  }
  return out;
}

}  // namespace automap::search
