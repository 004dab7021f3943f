// automap-infer: a pipeline plan for a model on a cluster. Parses, calls, prints.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"
#include "common/base/work.h"
#include "common/machine/cluster.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "infer/believable.h"
#include "infer/input.h"
#include "infer/layers.h"
#include "infer/options.h"
#include "infer/own_device.h"
#include "infer/planner.h"
#include "infer/planner_table.h"
#include "infer/report.h"
#include "infer/score.h"
#include "infer/sensitivity.h"
#include "infer/shipped_policy.h"
#include "infer/step_choice.h"

namespace {

using namespace automap;
using namespace automap::infer;
using pipeline::PlanDocument;
using OwnDevice = std::optional<machine::DeviceModel>;  // of --device

constexpr double kMemoryTight = 0.95;

// What a profile without times at other numbers of samples leaves out.
void warn_of_linear_times(const pipeline::Problem& problem, const pipeline::Profile& profile, PlanDocument& document) {
  if (problem.options().replicas != pipeline::Replicas::kWhole || !profile.times.empty()) return;
  document.warnings.push_back(
      "the profile has no times at other numbers of samples: they are taken as linear, and the optimizer is not "
      "counted "
      "(plan the model itself, or an .h5 profile)");
}

std::vector<std::string> estimates_of(const PlanInput& input, const machine::Cluster& cluster, const OwnDevice& own) {
  std::vector<std::string> lines = expected_errors_text(input.profile, cluster, own);
  if (!input.fused.empty()) {
    lines.push_back("counted as kernels of a library (--attention as-written: as the module says): " + input.fused +
                    "; measured are forward passes with heads of 128 on an H100, the rest is assumed");
  }
  return lines;
}

PlanDocument make_document(const pipeline::Problem& problem, const PlanInput& input, const machine::Cluster& cluster,
                           const OwnDevice& own, const PlanRequest& request, const PlanResult& result) {
  PlanDocument document = describe_plan(problem, input.profile, *result.plan);
  document.cluster = cluster.name;
  document.planner = result.planner;
  document.objective = to_string(result.objective);
  document.planning_ms = result.planning_ms;
  document.found_ms = result.found_ms;
  document.proven_ms = result.proven_ms;
  document.cut_by_time = result.cut_by_time;
  document.lower_bound_ms = result.lower_bound_ms;
  document.lower_bound_method = result.lower_bound_method;
  document.gap = result.gap;
  for (const Alternative& other : result.alternatives) {
    document.alternatives.push_back(
        {other.planner, other.stages, other.step_ms, other.simulated_step_ms, other.planning_ms});
  }
  for (const PlanLimit& limit : result.limits) {
    document.limits.push_back({to_string(limit.kind), limit.stage, limit.ms, limit.share, limit.text});
  }
  LayerOptions layers;
  layers.min_stages = std::max(1, request.stages);
  layers.max_stages = request.stages > 0 ? request.stages : request.max_stages;
  layers.quick = request.planner == PlannerKind::kPolicy || request.planner == PlannerKind::kRollouts;
  if (request.planner == PlannerKind::kPolicy) layers.policy = request.policy.get();
  layers.units = request.effort.layer_units;
  layers.time_limit_s = std::max(0.0, request.time_limit_s - result.planning_ms / 1e3);
  LayerResult at_layers = split_at_layers(problem, input.profile, *result.plan, layers);
  document.layer_split = std::move(at_layers.split);
  document.cut_by_time = document.cut_by_time || at_layers.cut_by_time;

  document.estimates = estimates_of(input, cluster, own);
  document.warnings = input.notices;
  warn_of_linear_times(problem, input.profile, document);
  if (!at_layers.why_not.empty()) document.warnings.push_back("no cut at whole layers: " + at_layers.why_not);
  if (document.cut_by_time) {
    document.warnings.push_back(StopToken::stop_requested()
                                    ? "stopped by a signal: this is the best plan found so far"
                                    : "the time limit ended the search; a longer --time-limit may find a shorter step");
  }
  for (std::size_t s = 0; s < document.stages.size(); ++s) {
    const pipeline::PlanStage& stage = document.stages[s];
    const double share = stage.memory_bytes / stage.capacity_bytes;
    if (share <= 1 && (share <= kMemoryTight || problem.options().memory_reserve >= 1 - kMemoryTight)) continue;
    document.warnings.push_back(
        "stage " + std::to_string(s + 1) + " needs " + format_percent(share) + " of its devices' memory" +
        (share > 1 ? "; it does not fit (--memory off)" : ", which leaves little for what a framework adds"));
  }
  return document;
}

// The document of a plan that was not searched for.
PlanDocument scored_document(const ScoredPlan& scored, const PlanInput& input, const machine::Cluster& cluster,
                             const OwnDevice& own) {
  PlanDocument document = describe_plan(*scored.problem, input.profile, scored.plan);
  document.cluster = cluster.name;
  document.planner = "given";
  document.objective = to_string(Objective::kSimulated);
  for (const PlanLimit& limit : plan_limits(*scored.problem, scored.plan)) {
    document.limits.push_back({to_string(limit.kind), limit.stage, limit.ms, limit.share, limit.text});
  }
  document.estimates = estimates_of(input, cluster, own);
  document.warnings = input.notices;
  warn_of_linear_times(*scored.problem, input.profile, document);
  document.warnings.insert(document.warnings.end(), scored.departures.begin(), scored.departures.end());
  if (scored.missing_bytes > 0) {
    document.warnings.push_back("the plan does not fit: stage " + std::to_string(scored.missing_stage) + " lacks " +
                                format_bytes(scored.missing_bytes) + " on each of its devices");
  } else if (!scored.infeasible.empty()) {
    document.warnings.push_back(scored.infeasible);
  }
  return document;
}

void add_provenance(PlanDocument& document, const OptionTable& table, const PlanInput& input,
                    const machine::Cluster& cluster) {
  auto& provenance = document.provenance;
  provenance["version"] = version();
  provenance["git"] = git_revision();
  provenance["model_form"] = input.form;
  provenance["model_sha256"] = input.profile.source_sha256.empty() ? input.sha256 : input.profile.source_sha256;
  provenance["input_sha256"] = input.sha256;
  provenance["cluster_sha256"] = sha256_hex(to_json_text(cluster));
  provenance["reference_device"] = input.profile.device;
  for (const char* option : {"batch",
                             "micro-batch",
                             "micro-batches",
                             "replicas",
                             "gradient-sync",
                             "bucket-mib",
                             "optimizer",
                             "zero",
                             "recompute",
                             "memory-reserve",
                             "allow-idle-stages",
                             "stages",
                             "max-stages",
                             "schedule",
                             "planner",
                             "objective",
                             "policy",
                             "grid",
                             "beam",
                             "no-refine",
                             "memory",
                             "state-factor",
                             "allow-empty-stages",
                             "value",
                             "attention",
                             "device",
                             "effort",
                             "time-limit"}) {
    std::string key = std::string("option_") + option;
    std::replace(key.begin(), key.end(), '-', '_');
    provenance[key] = table.value_of(option);
  }
}

void print_document(const PlanDocument& document, const pipeline::Problem& problem, const InferOptions& options,
                    const ReportOptions& report, AtomicFile* plan_file, OutputSet& outputs) {
  if (plan_file) plan_file->write(to_json_text(document));
  outputs.prepare();
  if (options.json && options.output != "-") {
    print_exact(to_json_text(document));
  } else if (options.output != "-") {
    print(report_text(document, problem, report));
  }
  outputs.commit();
  for (const std::string& warning : document.warnings) log_warning(warning);
}

void print_sweep(const InferOptions& options, const PlanInput& input, const machine::Cluster& cluster,
                 const pipeline::ProblemOptions& problem_options, SweepRequest request) {
  const StopToken stop;
  request.limits.cancelled = StopToken::stop_requested;
  const Sweep sweep = sweep_layouts(input.profile, cluster, problem_options, make_step(options), request);
  if (options.json) {
    print_exact(sweep_json(sweep));
  } else {
    print(sweep_text(sweep.layouts));
  }
  for (const std::string& warning : input.notices) log_warning(warning);
  if (sweep.left_out > 0) {
    log_warning(std::to_string(sweep.left_out) + " more layouts were not looked at: the time was over");
  }
}

int infer_main(int argc, char** argv) {
  InferOptions options;
  OptionTable table("infer", "find a pipeline plan for training a model on a cluster, and how good it is");
  declare_options(table, options);
  if (!table.parse(argc, argv)) return 0;
  PlanRequest request_as_given = make_request(options);
  check_mode(table, options);
  // Before the input is read, so that a wrong plan is refused at once.
  std::optional<GivenPlan> given;
  std::vector<std::string> departures;
  if (!options.plan.empty()) {
    given = read_plan_file(options.plan);
    departures = take_settings(*given, table);
    options.input.attention_asked = table.source_of("attention") != given->source;
  }
  const StageOverrides overrides = make_overrides(table, options);
  std::optional<Layout> layout;
  if (!options.layout.empty()) layout = parse_layout(options.layout, overrides);
  // What cannot be written is refused before the work.
  OutputSet outputs;
  AtomicFile* const plan_file = options.output.empty() ? nullptr : &outputs.add(options.output);
  machine::Cluster cluster = machine::load_cluster(options.cluster);
  if (!options.device.empty()) {
    options.input.device = machine::load_device(options.device);
    set_device(*options.input.device, &cluster);
  }
  // Before the input is read, so that a wrong policy is refused at once.
  if (!options.policy.empty()) {
    request_as_given.policy = load_policy(options.policy);
  } else if (request_as_given.planner == PlannerKind::kPolicy) {
    request_as_given.policy = shipped_policy(request_as_given.objective.value_or(Objective::kValue));
  }
  // The report on a terminal names no hashes.
  const bool documented = options.json || !options.output.empty();
  options.input.sha256 = documented || given;
  const PlanInput input = read_input(options.input, cluster);
  if (given) check_model(*given, input);
  log_verbose(input.form + ": " + format_count(input.profile.size()) + " forward instructions");

  const pipeline::ProblemOptions problem_options = make_problem_options(options, input.profile);
  if (options.sweep) {
    print_sweep(options, input, cluster, problem_options, make_sweep(table, options));
    return StopToken::stop_requested() ? kExitStoppedEarly : 0;
  }
  ReportOptions report;
  report.all_planners = options.all_planners;
  report.model_batch = input.profile.micro_batch_size;
  report.cluster_devices = cluster.num_devices();
  if (given || layout) {
    const StepRequest step = make_step(options);
    const ScoredPlan scored =
        layout ? score_layout(*layout, input.profile, cluster, problem_options, step)
               : score_given(std::move(*given), input.profile, cluster, problem_options, step, overrides);
    PlanDocument document = scored_document(scored, input, cluster, options.input.device);
    document.warnings.insert(document.warnings.end(), departures.begin(), departures.end());
    if (documented) add_provenance(document, table, input, cluster);
    print_document(document, *scored.problem, options, report, plan_file, outputs);
    return scored.infeasible.empty() ? 0 : exit_code(ErrorKind::kInfeasible);
  }

  StepPlan planned;
  const StopToken stop;
  {
    PlanRequest request = request_as_given;
    Progress progress("planning", static_cast<std::uint64_t>(request.effort.units), "");
    request.progress = [&](std::int64_t done, std::int64_t) { progress.update(static_cast<std::uint64_t>(done)); };
    request.cancelled = StopToken::stop_requested;
    planned = plan_step(input.profile, cluster, problem_options, make_step(options), request);
  }
  const pipeline::Problem& problem = *planned.problem;
  PlanResult& result = planned.result;
  if (!result.plan) {
    if (StopToken::stop_requested()) throw Error(ErrorKind::kStopped, "stopped by a signal before a plan was found");
    throw Error(
        ErrorKind::kInfeasible, result.infeasible,
        result.least_memory_bytes > 0 || !result.devices_divide ? ""
        : result.cut_by_time || result.cut_by_effort
            ? "the search came to no end: ask for --effort thorough, fewer stage counts (--stages), or every planner"
            : "allow other stage counts, every planner, or --allow-empty-stages");
  }

  PlanDocument document = make_document(problem, input, cluster, options.input.device, request_as_given, result);
  document.simulated_bound_ms = planned.simulated_bound_ms;
  const BoundScope scope = planned.bound_scope(cluster.num_devices());
  document.bound_devices = scope.devices;
  document.bound_devices_in_part = scope.devices_in_part;
  if (!planned.why_fewer.empty()) {
    document.warnings.push_back("uses " + std::to_string(document.num_devices) + " of " +
                                std::to_string(cluster.num_devices()) + " devices: " + planned.why_fewer);
  }
  if (options.sensitivity && !StopToken::stop_requested()) {
    PlanRequest request = request_as_given;
    request.cancelled = StopToken::stop_requested;
    request.lower_bound = false;
    document.sensitivity = plan_sensitivity(input.profile, cluster, problem_options, make_step(options), request,
                                            planned, expected_errors(input.profile, cluster));
    if (StopToken::stop_requested()) {
      document.warnings.push_back("--sensitivity was stopped by a signal after " +
                                  std::to_string(document.sensitivity.size()) + " of its cases");
    }
  }
  // Who asked to stop does not wait for every planner in turn.
  if (options.planner_table && !StopToken::stop_requested()) {
    PlanRequest request = request_as_given;
    request.cancelled = StopToken::stop_requested;
    document.planner_table = compare_planners(problem, request);
  }
  if (documented) add_provenance(document, table, input, cluster);
  report.free_plan_ms = planned.free_plan_ms;
  print_document(document, problem, options, report, plan_file, outputs);
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, infer_main);
}
