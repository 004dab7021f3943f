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
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "infer/believable.h"
#include "infer/explorer.h"
#include "infer/input.h"
#include "infer/options.h"
#include "infer/own_device.h"
#include "infer/report.h"
#include "infer/score.h"
#include "infer/sensitivity.h"
#include "plan/planners/layers.h"
#include "plan/planners/least_change.h"
#include "plan/planners/planner.h"
#include "plan/planners/planner_table.h"
#include "plan/planners/shipped_policy.h"
#include "plan/planners/step_choice.h"

namespace {

using namespace automap;
using namespace automap::infer;
using pipeline::PlanDocument;
using OwnDevice = std::optional<machine::DeviceModel>;  // of --device

constexpr double kMemoryTight = 0.95;
constexpr double kWorthSaying = 0.005;  // that a plan of another kind is shorter
// Plans that fill a device so far may be what memory left of longer ones.
constexpr double kMemoryDecides = 0.9;

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

// How the devices of a replica hold its tensors, once for each width.
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

void list_limits(const pipeline::PlacedPlan& placed, PlanDocument* document) {
  document->limits.clear();
  for (const planners::PlanLimit& limit : planners::plan_limits(placed)) {
    document->limits.push_back({to_string(limit.kind), limit.stage, limit.ms, limit.share, limit.text});
  }
}

void warn_of_memory(const pipeline::Problem& problem, PlanDocument* document) {
  for (std::size_t s = 0; s < document->stages.size(); ++s) {
    const pipeline::PlanStage& stage = document->stages[s];
    const double share = stage.memory_bytes / stage.capacity_bytes;
    if (share <= 1 && (share <= kMemoryTight || problem.options().memory_reserve >= 1 - kMemoryTight)) continue;
    document->warnings.push_back(
        "stage " + std::to_string(s + 1) + " needs " + format_percent(share) + " of its devices' memory" +
        (share > 1 ? "; it does not fit (--memory off)" : ", which leaves little for what a framework adds"));
  }
}

// What the search came to: of one width, or of several where that is shorter.
struct Found {
  planners::StepPlan planned;  // the best of one width
  Exploration explored;
  pipeline::PlacedPlan placed;
  bool mixed() const { return explored.mixed.has_value(); }
};

// How the plan was found, and what bounds it.
void describe_search(const Found& found, PlanDocument* document) {
  const planners::PlanResult& result = found.planned.result;
  const pipeline::LowerBound& any = found.explored.any_widths;
  document->planner = result.planner;
  document->objective = to_string(result.objective);
  document->planning_ms = result.planning_ms;
  document->found_ms = result.found_ms;
  document->proven_ms = result.proven_ms;
  document->cut_by_time = result.cut_by_time;
  document->online = result.online;
  document->lower_bound_ms = result.lower_bound_ms;
  document->lower_bound_method = result.lower_bound_method;
  document->gap = result.gap;
  document->simulated_bound_ms = found.planned.simulated_bound_ms;
  if (!found.planned.widths.empty()) {
    document->bounded = pipeline::BoundedWidths::kOne;
    document->other_bounds = {any.ms, any.ms, any.method};
  }
  for (const planners::Alternative& other : result.alternatives) {
    document->alternatives.push_back(
        {other.planner, other.stages, other.step_ms, other.simulated_step_ms, other.planning_ms});
  }
  if (!found.mixed()) return;
  document->planner = "stages of different widths";
  document->found_ms = found.explored.mixed_found_ms;
  document->proven_ms = 0;
  document->bounded = pipeline::BoundedWidths::kAny;
  document->other_bounds = {result.lower_bound_ms, found.planned.simulated_bound_ms, result.lower_bound_method};
  document->lower_bound_ms = document->simulated_bound_ms = any.ms;
  document->lower_bound_method = any.method;
  document->gap = any.ms > 0 ? document->step_ms / any.ms - 1 : 0;
}

// Of one width, or of several where the plan is and that is shorter.
planners::LayerResult split_at_layers(const Found& found, const PlanInput& input,
                                      const planners::PlanRequest& request) {
  planners::LayerOptions layers;
  layers.min_stages = std::max(1, request.stages);
  layers.max_stages = request.stages > 0 ? request.stages : request.max_stages;
  layers.quick = answers_at_once(request.planner);
  if (request.planner == planners::PlannerKind::kPolicy) layers.policy = request.policy.get();
  layers.units = request.effort.layer_units;
  layers.time_limit_s = std::max(0.0, request.time_limit_s - found.planned.result.planning_ms / 1e3);
  const pipeline::Problem& problem = *found.planned.problem;
  planners::LayerResult at_layers =
      planners::split_at_layers(problem, input.profile, *found.planned.result.plan, layers);
  if (at_layers.split) {
    for (int& cut : at_layers.split->device_cuts) cut *= problem.options().width;
    at_layers.split->widths.assign(at_layers.split->cuts.size() + 1, problem.options().width);
  }
  if (!found.mixed()) return at_layers;
  const planners::MixedChoice& mixed = *found.explored.mixed;
  planners::LayerResult of_several = planners::split_mixed_at_layers(*mixed.problem, input.profile, mixed.plan);
  of_several.cut_by_time = at_layers.cut_by_time;
  const bool longer = !of_several.split ||
                      (at_layers.split && at_layers.split->simulated_step_ms < of_several.split->simulated_step_ms);
  return longer && at_layers.split ? at_layers : of_several;
}

PlanDocument make_document(const Found& found, const PlanInput& input, const machine::Cluster& cluster,
                           const OwnDevice& own, const planners::PlanRequest& request) {
  PlanDocument document = describe_plan(found.placed, input.profile);
  document.cluster = cluster.name;
  describe_search(found, &document);
  list_limits(found.placed, &document);
  planners::LayerResult at_layers = split_at_layers(found, input, request);
  document.layer_split = std::move(at_layers.split);
  document.cut_by_time = document.cut_by_time || at_layers.cut_by_time;

  describe_replicas(input.profile, &document);
  document.estimates = estimates_of(input, cluster, own);
  document.warnings = input.notices;
  warn_of_linear_times(found.placed.problem(), input.profile, document);
  if (!at_layers.why_not.empty()) document.warnings.push_back("no cut at whole layers: " + at_layers.why_not);
  if (document.cut_by_time) {
    document.warnings.push_back(StopToken::stop_requested()
                                    ? "stopped by a signal: this is the best plan found so far"
                                    : "the time limit ended the search; a longer --time-limit may find a shorter step");
  }
  warn_of_memory(found.placed.problem(), &document);
  return document;
}

// The document of a plan that was not searched for.
PlanDocument scored_document(const ScoredPlan& scored, const PlanInput& input, const machine::Cluster& cluster,
                             const OwnDevice& own) {
  PlanDocument document = describe_plan(scored.placed, input.profile);
  document.cluster = cluster.name;
  document.planner = "given";
  document.objective = to_string(planners::Objective::kSimulated);
  list_limits(scored.placed, &document);
  describe_replicas(input.profile, &document);
  document.estimates = estimates_of(input, cluster, own);
  document.warnings = input.notices;
  warn_of_linear_times(scored.placed.problem(), input.profile, document);
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
                             "max-width",
                             "sequence-parallel",
                             "whole-loops",
                             "schedule",
                             "planner",
                             "objective",
                             "policy",
                             "from",
                             "radius",
                             "seed",
                             "plays",
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

// One call of the program: what was asked for, and what was read for it.
struct Call {
  InferOptions options;
  OptionTable table{"infer", "find a pipeline plan for training a model on a cluster, and how good it is"};
  planners::PlanRequest request;
  std::optional<GivenPlan> given;
  std::vector<std::string> departures;  // from what `given` was made with
  StageOverrides overrides;
  std::optional<Layout> layout;
  OutputSet outputs;
  AtomicFile* plan_file = nullptr;  // of the outputs
  machine::Cluster cluster;
  PlanInput input;
  pipeline::ProblemOptions problem_options;
  // The report on a terminal names no hashes.
  bool documented() const { return options.json || !options.output.empty(); }
};

void read_plan_or_layout(Call& call) {
  InferOptions& options = call.options;
  if (!options.plan.empty()) {
    call.given = read_plan_file(options.plan);
    call.departures = take_settings(*call.given, call.table);
    options.input.attention_asked = call.table.source_of("attention") != call.given->source;
    options.input.sequence_parallel_asked = call.table.source_of("sequence-parallel") != call.given->source;
  }
  call.overrides = make_overrides(call.table, options);
  if (!options.layout.empty()) call.layout = parse_layout(options.layout, call.overrides);
  // What is asked about is looked at.
  if (call.given) options.input.max_width = *std::max_element(call.given->widths.begin(), call.given->widths.end());
  if (call.layout) options.input.max_width = call.layout->tp;
}

void read_machines(Call& call) {
  InferOptions& options = call.options;
  call.cluster = machine::load_cluster(options.cluster);
  if (!options.device.empty()) {
    options.input.device = machine::load_device(options.device);
    set_device(*options.input.device, &call.cluster);
  }
}

void read_policy(Call& call) {
  planners::PlanRequest& request = call.request;
  if (request.planner == planners::PlannerKind::kOnline) {
    const std::string& from = call.options.from;
    if (from != "shipped" && from != "scratch") request.policy = planners::load_policy(from);
  } else if (!call.options.policy.empty()) {
    request.policy = planners::load_policy(call.options.policy);
  } else if (request.planner == planners::PlannerKind::kPolicy) {
    request.policy = planners::shipped_policy(request.objective.value_or(planners::Objective::kValue));
  }
}

void read_model(Call& call) {
  call.options.input.sha256 = call.documented() || call.given;
  call.input = read_input(call.options.input, call.cluster);
  if (call.given) {
    check_model(*call.given, call.input);
    const std::vector<std::string> others = check_partitions(*call.given, call.input.profile);
    call.departures.insert(call.departures.end(), others.begin(), others.end());
  }
  log_verbose(call.input.form + ": " + format_count(call.input.profile.size()) + " forward instructions");
}

ReportOptions report_options(const Call& call) {
  ReportOptions report;
  report.all_planners = call.options.all_planners;
  report.model_batch = call.input.profile.micro_batch_size;
  report.cluster_devices = call.cluster.num_devices();
  return report;
}

// What the given plan or layout takes; the program's exit code.
int run_score(Call& call) {
  const pipeline::Profile& profile = call.input.profile;
  const planners::StepRequest step = make_step(call.options);
  const ScoredPlan scored = call.layout ? score_layout(*call.layout, profile, call.cluster, call.problem_options, step)
                                        : score_given(std::move(*call.given), profile, call.cluster,
                                                      call.problem_options, step, call.overrides);
  PlanDocument document = scored_document(scored, call.input, call.cluster, call.options.input.device);
  document.warnings.insert(document.warnings.end(), call.departures.begin(), call.departures.end());
  if (call.documented()) add_provenance(document, call.table, call.input, call.cluster);
  print_document(document, scored.placed.problem(), call.options, report_options(call), call.plan_file, call.outputs);
  return scored.infeasible.empty() ? 0 : exit_code(ErrorKind::kInfeasible);
}

planners::StepPlan find_plan(const Call& call) {
  planners::PlanRequest request = call.request;
  Progress progress("planning", static_cast<std::uint64_t>(request.effort.units), "");
  request.progress = [&](std::int64_t done, std::int64_t) { progress.update(static_cast<std::uint64_t>(done)); };
  request.cancelled = StopToken::stop_requested;
  return planners::plan_step(call.input.profile, call.cluster, call.problem_options, make_step(call.options), request);
}

// What would have to change so that a plan fits into memory.
std::string what_would_fit(const Call& call) {
  planners::PlanRequest request = call.request;
  request.cancelled = StopToken::stop_requested;
  std::string text;
  for (const planners::FittingChange& change :
       planners::fitting_changes(call.input.profile, call.cluster, call.problem_options, make_step(call.options),
                                 request, call.options.limit != "all")) {
    text += (text.empty() ? "" : ", or ") + change.what + " (a step of " + format_ms(change.step_ms) + ")";
  }
  return text.empty()
             ? "smaller micro-batches, more or larger devices, or a lighter optimizer (--state-factor) may help"
             : "it would fit with " + text;
}

[[noreturn]] void fail_without_plan(const Call& call, const planners::PlanResult& result) {
  if (StopToken::stop_requested()) throw Error(ErrorKind::kStopped, "stopped by a signal before a plan was found");
  throw Error(
      ErrorKind::kInfeasible, result.infeasible,
      result.least_memory_bytes > 0 ? what_would_fit(call)
      : !result.devices_divide      ? ""
      : result.cut_by_time || result.cut_by_effort
          ? "the search came to no end: ask for --effort thorough, fewer stage counts (--stages), or every planner"
          : std::string("allow ") + (call.request.online.server_radius >= 0 ? "a larger --radius, " : "") +
                "other stage counts, every planner, or --allow-empty-stages");
}

// The options given that leave some plans out, which the bounds are not about then.
std::vector<std::string> narrowing_options(const OptionTable& table) {
  std::vector<std::string> given;
  for (const char* option : {"micro-batch", "micro-batches", "replicas", "limit", "stages", "max-stages", "max-width",
                             "schedule", "zero", "recompute", "sequence-parallel"}) {
    const std::string value = table.value_of(option);
    const bool open = value == "auto" || value == "all" || value == "whole" || value == "adaptive";
    if (table.source_of(option) != "default" && !open) given.push_back(std::string("--") + option + " " + value);
  }
  return given;
}

// What the lower bounds speak about, and the devices that the plan leaves free.
void add_scope(PlanDocument& document, const planners::StepPlan& planned, int cluster_devices,
               std::vector<std::string> within) {
  for (const planners::WidthAlternative& other : planned.widths) {
    document.widths.push_back({other.width, other.stages, other.step_ms, other.simulated_step_ms});
  }
  const planners::BoundScope scope = planned.bound_scope(cluster_devices);
  document.bound_devices = scope.devices;
  document.bound_devices_in_part = scope.devices_in_part;
  document.bound_within = std::move(within);
  if (!planned.why_fewer.empty()) {
    document.warnings.push_back("uses " + std::to_string(document.num_devices) + " of " +
                                std::to_string(cluster_devices) + " devices: " + planned.why_fewer);
  }
}

void add_sensitivity(PlanDocument& document, const Call& call, const Found& found) {
  planners::PlanRequest request = call.request;
  request.cancelled = StopToken::stop_requested;
  request.lower_bound = false;
  const pipeline::Profile& profile = call.input.profile;
  document.sensitivity =
      plan_sensitivity(profile, call.cluster, call.problem_options, make_step(call.options), request, found.planned,
                       found.mixed() ? &*found.explored.mixed : nullptr, expected_errors(profile, call.cluster));
  if (StopToken::stop_requested()) {
    document.warnings.push_back("--sensitivity was stopped by a signal after " +
                                std::to_string(document.sensitivity.size()) + " of its cases");
  }
}

void add_planner_table(PlanDocument& document, const Call& call, const pipeline::Problem& problem) {
  planners::PlanRequest request = call.request;
  request.cancelled = StopToken::stop_requested;
  document.planner_table = planners::compare_planners(problem, request);
  if (!document.mixed_widths()) return;
  const int width = problem.options().width;
  document.warnings.push_back("--planner-table compares plans of one width, of replicas of " + std::to_string(width) +
                              (width == 1 ? " device" : " devices") + ": no planner alone mixes widths");
}

// Quick planners answer at once: there, only where it is asked for.
bool explores(const Call& call) {
  if (call.options.explore != "auto") return call.options.explore == "on";
  if (call.options.beside_asked) return true;
  return call.request.planner == planners::PlannerKind::kAuto && call.options.replicas != "fractional" &&
         call.request.objective.value_or(planners::Objective::kSimulated) == planners::Objective::kSimulated;
}

void warn_of_shorter(PlanDocument& document) {
  const pipeline::PlanCorner& best = document.corners.front();
  if (best.fits && best.simulated_step_ms < document.simulated_step_ms * (1 - kWorthSaying)) {
    document.warnings.push_back(
        "a step of \"" + best.name + "\" is " +
        format_percent(1 - best.simulated_step_ms / document.simulated_step_ms) + " shorter than this plan's" +
        (best.chunk_cuts.empty() ? ": the options leave it out" : ", where a framework can run that"));
  }
}

// Whether memory leaves no plan, or fills a device of it.
bool memory_decides(const planners::StepPlan& planned) {
  if (!planned.result.plan) return planned.result.least_memory_bytes > 0;
  const pipeline::PlacedPlan placed = place(*planned.problem, *planned.result.plan);
  const std::vector<double> bytes = memory_of(placed);
  for (std::size_t s = 0; s < bytes.size(); ++s) {
    if (bytes[s] > kMemoryDecides * placed.stages[s].group().capacity_bytes) return true;
  }
  return false;
}

// What lies between split products is quicker split along the sequence, but copies gathered of it may be kept: where
// memory decides, it is planned whole, too, and the shorter of both plans counts.
planners::StepPlan find_plan_within_memory(Call& call) {
  planners::StepPlan planned = find_plan(call);
  InputOptions& input = call.options.input;
  const bool open = call.table.source_of("sequence-parallel") == "default" && input.sequence_parallel == "auto";
  if (!open || call.input.flops <= 0 || call.input.profile.widths.empty() || input.path == "-" ||
      planners::answers_at_once(call.request.planner) || planned.result.cut_by_time || StopToken::stop_requested() ||
      !memory_decides(planned)) {
    return planned;
  }
  InputOptions off = input;
  off.sequence_parallel = "off";
  PlanInput other = read_input(off, call.cluster);
  std::swap(other, call.input);
  planners::StepPlan whole = find_plan(call);
  if (planned.result.length_ms() <= whole.result.length_ms()) {
    std::swap(other, call.input);
    return planned;
  }
  call.table.set_unless_given("sequence-parallel", "off", "memory");
  return whole;
}

// Searches for a plan; the program's exit code.
int run_search(Call& call) {
  const StopToken stop;
  Found found;
  found.planned = find_plan_within_memory(call);
  planners::StepPlan& planned = found.planned;
  if (!planned.result.plan) fail_without_plan(call, planned.result);
  if (explores(call) && !StopToken::stop_requested()) {
    planners::PlanRequest request = call.request;
    request.cancelled = StopToken::stop_requested;
    found.explored = explore_corners(call.input.profile, call.cluster, call.problem_options, make_step(call.options),
                                     request, call.input.flops, make_beside(call.options), planned);
  }
  found.placed = found.mixed() ? found.explored.mixed->problem->place(found.explored.mixed->plan)
                               : place(*planned.problem, *planned.result.plan);
  PlanDocument document = make_document(found, call.input, call.cluster, call.options.input.device, call.request);
  document.corners = std::move(found.explored.corners);
  if (!document.corners.empty()) warn_of_shorter(document);
  add_scope(document, planned, call.cluster.num_devices(), narrowing_options(call.table));
  // Who asked to stop waits neither for the cases of --sensitivity nor for every planner in turn.
  if (call.options.sensitivity && !StopToken::stop_requested()) add_sensitivity(document, call, found);
  if (call.options.planner_table && !StopToken::stop_requested()) add_planner_table(document, call, *planned.problem);
  if (call.documented()) add_provenance(document, call.table, call.input, call.cluster);
  ReportOptions report = report_options(call);
  report.free_plan_ms = planned.free_plan_ms;
  print_document(document, found.placed.problem(), call.options, report, call.plan_file, call.outputs);
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

int infer_main(int argc, char** argv) {
  Call call;
  InferOptions& options = call.options;
  declare_options(call.table, options);
  if (!call.table.parse(argc, argv)) return 0;
  call.request = make_request(options);
  limit_kinds(call.table, &options, &call.request);
  check_mode(call.table, options);
  ask_for_beside(call.table, &options);
  check_online(call.table, options);
  // Before the input is read, so that a wrong plan is refused at once.
  read_plan_or_layout(call);
  // What cannot be written is refused before the work.
  if (!options.output.empty()) call.plan_file = &call.outputs.add(options.output);
  read_machines(call);
  // Before the input is read, so that a wrong policy is refused at once.
  read_policy(call);
  read_model(call);
  call.problem_options = make_problem_options(options, call.input.profile);
  if (options.sweep) {
    print_sweep(options, call.input, call.cluster, call.problem_options, make_sweep(call.table, options));
    return StopToken::stop_requested() ? kExitStoppedEarly : 0;
  }
  return call.given || call.layout ? run_score(call) : run_search(call);
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, infer_main);
}
