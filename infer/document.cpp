#include "infer/document.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/cli.h"
#include "common/base/files.h"
#include "common/base/text_table.h"
#include "common/base/work.h"
#include "common/machine/cluster_names.h"
#include "common/pipeline/placed_work.h"
#include "infer/utilization.h"
#include "plan/planners/believable.h"
#include "plan/planners/layers.h"
#include "plan/planners/leaner.h"

namespace automap::infer {
namespace {

using pipeline::PlanCorner;
using pipeline::PlanDocument;
using planners::Answer;
using planners::Candidate;
using planners::Question;

constexpr double kMemoryTight = 0.95;
constexpr double kWorthSaying = 0.005;  // that a plan of another kind is shorter

// Warns of the effects that a profile without times at other numbers of samples leaves out.
void warn_of_linear_times(const Question& question, const pipeline::PlacedPlan& placed, PlanDocument* document) {
  const pipeline::Replicas replicas = placed.problem().options().replicas;
  if (replicas != pipeline::Replicas::kWhole || !question.profile().times.empty()) return;
  document->warnings.push_back(
      "the profile has no times at other numbers of samples: they are taken as linear, and the optimizer is not "
      "counted "
      "(plan the model itself, or an .h5 profile)");
}

// A module that computes its forward pass again is planned as it is: what it says is no property of the model.
void warn_of_repeated_work(const Question& question, const PlanInput& input, PlanDocument* document) {
  constexpr double kWorthNaming = 0.1;
  const double share = std::min(1.0, input.work.repeated_share());
  if (share < kWorthNaming) return;
  const double saved = share * question.profile().forward_fraction;
  document->warnings.push_back(
      "the module computes " + format_percent(share) +
      " of its forward pass again in the backward pass (jax.checkpoint, torch.utils.checkpoint), and plans and bounds "
      "are about that: without it a step would take about " +
      format_ms(document->simulated_step_ms * (1 - saved)) + ", and keep more in memory");
}

std::vector<std::string> estimates_of(const Question& question, const PlanInput& input, const OwnDevice& own) {
  std::vector<std::string> lines = planners::expected_errors_text(question.profile(), question.cluster, own);
  if (!input.fused.empty()) {
    lines.push_back("counted as kernels of a library (--attention as-written: as the module says): " + input.fused +
                    "; measured are forward passes with heads of 128 on an H100, the rest is assumed");
  }
  return lines;
}

// Describes the partition of tensors over a replica's devices, once for each width.
void describe_replicas(const pipeline::Profile& profile, PlanDocument* document) {
  const std::vector<int> widths = document->stage_widths();
  for (const pipeline::WidthColumns& columns : profile.widths) {
    if (std::find(widths.begin(), widths.end(), columns.width) == widths.end()) continue;
    document->partitions.push_back(columns.partition);
    document->inside_replicas.push_back(
        (document->mixed_widths() ? "of " + std::to_string(columns.width) + " devices: " : "") +
        columns.partition_text);
  }
}

// The fields of every document, however the plan came about.
PlanDocument described(const Question& question, const pipeline::PlacedPlan& placed, const PlanInput& input,
                       const OwnDevice& own) {
  PlanDocument document = describe_plan(placed, question.profile());
  if (placed.num_stages() > 1) {
    const double bound = any_order_bound_ms(work_times(placed), document.micro_batches);
    // A plan that does not fit is in no memory that orders could keep to.
    if (bound <= document.simulated_step_ms) document.order_bound_ms = bound;
  }
  document.cluster = question.cluster.name;
  for (const planners::PlanLimit& limit : planners::plan_limits(placed)) {
    document.limits.push_back({to_string(limit.kind), limit.stage, limit.ms, limit.share, limit.text});
  }
  describe_replicas(question.profile(), &document);
  document.utilization = utilization_of(input, question.cluster, placed.device_numbers(), document.batch(),
                                        document.simulated_step_ms, recomputed_share(placed, question.profile()));
  const planners::ExpectedErrors errors = planners::expected_errors(input.profile, question.cluster);
  if (errors.compute_more > 0) {
    document.expected_least_ms = document.simulated_step_ms / (1 + errors.compute_less);
    document.expected_most_ms = document.simulated_step_ms * (1 + errors.compute_more);
  }
  document.estimates = estimates_of(question, input, own);
  emit::keep_sizes(input.sizes, &document);
  document.warnings = input.notices;
  warn_of_repeated_work(question, input, &document);
  warn_of_linear_times(question, placed, &document);
  const std::string no_layers = no_layers_text(*question.framework, question.profile());
  if (!no_layers.empty()) document.warnings.push_back(no_layers);
  return document;
}

void warn_of_memory(const pipeline::ProblemOptions& options, PlanDocument* document) {
  for (std::size_t s = 0; s < document->stages.size(); ++s) {
    const pipeline::PlanStage& stage = document->stages[s];
    const double share = stage.memory_bytes / stage.capacity_bytes;
    if (share <= 1 && (share <= kMemoryTight || options.memory_reserve >= 1 - kMemoryTight)) continue;
    document->warnings.push_back(
        "stage " + std::to_string(s + 1) + " needs " + format_percent(share) + " of its devices' memory" +
        (share > 1 ? "; it does not fit (--memory off)" : ", which leaves little for what a framework adds"));
  }
}

// Describes the search for the plan, and its bounds.
void describe_search(const Answer& answer, const machine::Cluster& cluster, PlanDocument* document) {
  const planners::SearchNotes& notes = answer.notes;
  document->planner = answer.plan().found_by;
  document->objective = to_string(notes.objective);
  document->planning_ms = notes.planning_ms;
  document->found_ms = notes.found_ms;
  document->proven_ms = notes.proven_ms;
  document->cut_by_time = notes.cut_by_time;
  document->online = notes.online;
  for (const planners::Alternative& other : notes.alternatives) {
    document->alternatives.push_back(
        {other.planner, other.stages, other.step_ms, other.simulated_step_ms, other.planning_ms});
  }
  for (const planners::WidthAlternative& other : answer.widths) {
    document->widths.push_back({other.width, other.stages, other.step_ms, other.simulated_step_ms});
  }
  const bool ordered = answer.ordered_is_plan();
  const planners::Bounds& about = ordered ? answer.any_order : answer.mixed ? answer.any_widths : answer.bounds;
  const planners::Bounds& other = answer.mixed ? answer.bounds : answer.any_widths;
  document->lower_bound_ms = about.value_ms;
  document->simulated_bound_ms = about.simulated_ms;
  document->lower_bound_method = about.method;
  document->gap = about.value_ms > 0 ? document->step_ms / about.value_ms - 1 : 0;
  if (!answer.widths.empty() && !ordered) {
    document->bounded = answer.mixed ? pipeline::BoundedWidths::kAny : pipeline::BoundedWidths::kOne;
    document->other_bounds = {other.value_ms, other.simulated_ms, other.method};
  }
  const planners::BoundScope scope = answer.bounds.scope(cluster);
  document->bound_all_devices = scope.all;
  document->bound_devices = scope.devices;
  document->bound_devices_in_part = scope.devices_in_part;
}

// Describes the properties that all plans share that the bounds cover.
void describe_premises(const Question& question, const Answer& answer, const PlanInput& input, PlanDocument* document) {
  PlanDocument::BoundPremises& premises = document->premises;
  const planners::PlanRequest& request = question.request;
  std::set<int> widths;
  std::set<double> samples;
  for (const planners::StepSize& size : answer.bounds.considered) {
    widths.insert(size.width);
    samples.insert(size.samples);
  }
  premises.widths.assign(widths.begin(), widths.end());
  premises.micro_batch_samples.assign(samples.begin(), samples.end());
  if (answer.ordered_is_plan()) {
    premises.schedules.emplace_back("any");
  } else {
    for (const pipeline::Schedule schedule : request.schedules) premises.schedules.emplace_back(to_string(schedule));
  }
  premises.least_stages = std::max(1, request.stages);
  premises.most_stages = request.stages > 0 ? request.stages : request.max_stages;
  premises.rules = planners::rules_of(question);
  if (input.written_attention) premises.rules.emplace_back(kWrittenAttention);
  for (const planners::RelaxedRule& one : answer.relaxed) {
    document->relaxed.push_back({one.rule, one.options, one.simulated_ms, one.possible});
  }
}

PlanCorner corner_of(const Question& question, const PlanInput& input, const Candidate& one, const std::string& name) {
  PlanCorner corner;
  corner.name = name;
  corner.fits = one.found();
  corner.why = one.why;
  corner.left_out = one.left_out;
  corner.memory_bytes = one.memory_bytes;
  corner.capacity_bytes = one.capacity_bytes;
  if (!one.found()) return corner;
  corner.layout = one.layout;
  corner.stages = one.num_stages();
  corner.devices = one.num_devices();
  corner.width = one.width();
  corner.micro_batch_samples = one.size.samples;
  corner.micro_batches = one.size.micro_batches;
  corner.step_ms = one.step_ms;
  corner.simulated_step_ms = one.simulated_step_ms;
  const bool around = one.placed.plan.placement == pipeline::Placement::kRoundRobin;
  if ((one.ordered() && around) || !one.of_one_width()) corner.chunk_cuts = one.placed.plan.cuts;
  if (!one.of_one_width()) {
    for (const pipeline::PlacedStage& stage : one.placed.stages) {
      corner.stage_widths.push_back(stage.width());
      corner.stage_devices.push_back((stage.d1 - stage.d0) * stage.width());
    }
  }
  corner.utilization = utilization_of(input, question.cluster, one.devices(), one.size.batch(),
                                      corner.simulated_step_ms, recomputed_share(one.placed, question.profile()));
  return corner;
}

// The best of every kind, the shortest first.
void list_kinds(const Question& question, const PlanInput& input, const Answer& answer, PlanDocument* document) {
  if (answer.kinds.empty()) return;
  std::vector<PlanCorner>& corners = document->corners;
  corners.push_back(corner_of(question, input, answer.plan(), "this plan"));
  for (const Candidate& one : answer.kinds) corners.push_back(corner_of(question, input, one, one.kind));
  std::stable_sort(corners.begin(), corners.end(), [](const PlanCorner& a, const PlanCorner& b) {
    return std::make_pair(!a.fits, a.simulated_step_ms) < std::make_pair(!b.fits, b.simulated_step_ms);
  });
  // The cost of the leaner plan is stated already.
  const auto best = std::find_if(corners.begin(), corners.end(), [&](const PlanCorner& corner) {
    return answer.leaner.empty() || corner.left_out != planners::kLeanerTaken;
  });
  if (best->fits && best->simulated_step_ms < document->simulated_step_ms * (1 - kWorthSaying)) {
    document->warnings.push_back("a step of \"" + best->name + "\" is " +
                                 format_percent(1 - best->simulated_step_ms / document->simulated_step_ms) +
                                 " shorter than this plan's, but " +
                                 (best->left_out.empty() ? "plans were judged by V" : best->left_out));
  }
}

}  // namespace

bool of_written_attention(const PlanDocument& document) {
  const std::vector<std::string>& rules = document.premises.rules;
  return std::find(rules.begin(), rules.end(), kWrittenAttention) != rules.end();
}

PlanDocument document_of(const Question& question, const Answer& answer, const PlanInput& input, const OwnDevice& own,
                         std::vector<std::string> within) {
  const int cluster_devices = question.cluster.num_devices();
  PlanDocument document = described(question, answer.plan().placed, input, own);
  describe_search(answer, question.cluster, &document);
  describe_premises(question, answer, input, &document);
  document.bound_within = std::move(within);
  planners::LayerResult at_layers = split_at_layers(question, answer);
  document.layer_split = std::move(at_layers.split);
  document.cut_by_time = document.cut_by_time || at_layers.cut_by_time;
  if (!at_layers.why_not.empty()) document.warnings.push_back("no cut at whole layers: " + at_layers.why_not);
  if (document.cut_by_time) {
    document.warnings.push_back(StopToken::stop_requested()
                                    ? "stopped by a signal: this is the best plan found so far"
                                    : "the time limit ended the search; a longer --time-limit may find a shorter step");
  }
  if (!answer.leaner.empty()) document.warnings.push_back(answer.leaner);
  warn_of_memory(question.options, &document);
  list_kinds(question, input, answer, &document);
  if (!answer.why_fewer.empty() && document.num_devices < cluster_devices) {
    document.warnings.push_back("uses " + std::to_string(document.num_devices) + " of " +
                                std::to_string(cluster_devices) + " devices: " + answer.why_fewer);
  }
  return document;
}

PlanDocument document_of(const Question& question, const planners::ScoredPlan& scored, const PlanInput& input,
                         const OwnDevice& own) {
  PlanDocument document = described(question, scored.placed, input, own);
  document.planner = "given";
  document.layer_split = planners::as_layer_split(scored.placed, question.profile());
  document.objective = to_string(planners::Objective::kSimulated);
  document.warnings.insert(document.warnings.end(), scored.departures.begin(), scored.departures.end());
  if (scored.missing_bytes > 0) {
    document.warnings.push_back("the plan does not fit: stage " + std::to_string(scored.missing_stage) + " lacks " +
                                format_bytes(scored.missing_bytes) + " on each of its devices");
  } else if (!scored.infeasible.empty()) {
    document.warnings.push_back(scored.infeasible);
  }
  return document;
}

pipeline::PlanToType to_type(const PlanDocument& document, const planners::Question& question,
                             const pipeline::PlacedPlan& placed, const planners::Framework& framework,
                             bool sequence_parallel, const emit::EmitOptions& options) {
  const std::optional<pipeline::LayerSplit> layers = planners::layers_at_cuts(question.profile(), placed.plan.cuts);
  emit::PlanFacts facts;
  facts.layers = layers ? &*layers : nullptr;
  facts.cluster = &question.cluster;
  facts.sequence_parallel = sequence_parallel;
  return emit::to_type(framework, document, facts, options);
}

void add_provenance(PlanDocument& document, const OptionTable& table, const PlanInput& input,
                    const machine::Cluster& cluster) {
  auto& provenance = document.provenance;
  provenance["version"] = version();
  provenance["git"] = git_revision();
  provenance["model_form"] = input.taken.empty() ? input.form : input.form + ": " + input.taken;
  provenance["model_sha256"] = input.profile.source_sha256.empty() ? input.sha256 : input.profile.source_sha256;
  provenance["input_sha256"] = input.sha256;
  provenance["cluster_sha256"] = sha256_hex(to_json_text(cluster));
  const std::string word = table.value_of("cluster");
  if (!machine::cluster_by_name(word)) provenance["cluster_file"] = word;
  provenance["reference_device"] = input.profile.device;
  for (const std::string& option : table.names_with(kInProvenance)) {
    std::string key = "option_" + option;
    std::replace(key.begin(), key.end(), '-', '_');
    provenance[key] = table.value_of(option);
  }
  if (document.measured_step && table.source_of("measured-step") != "default") {
    provenance["option_measured_step"] = table.value_of("measured-step");
    provenance["option_layout"] = table.value_of("layout");
  }
  if (table.source_of("measured") != "default") provenance["option_measured"] = table.value_of("measured");
  if (table.source_of("software") != "default") provenance["option_software"] = table.value_of("software");
}

}  // namespace automap::infer
