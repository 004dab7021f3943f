// automap-infer: a pipeline plan for a model on a cluster. Parses, calls, prints.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"
#include "common/base/work.h"
#include "common/pipeline/cluster.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "infer/input.h"
#include "infer/layers.h"
#include "infer/planner.h"
#include "infer/planner_table.h"
#include "infer/report.h"
#include "infer/shipped_policy.h"

namespace {

using namespace automap;
using namespace automap::infer;
using pipeline::PlanDocument;
using pipeline::Schedule;

constexpr double kMemoryTight = 0.95;

struct Options {
  InputOptions input;
  std::string cluster, output, policy;
  pipeline::ProblemOptions problem;
  std::string stages = "auto", schedule = "1f1b", planner = "auto", objective = "auto", grid = "128", value = "full";
  int max_stages = 16, beam = 0;
  bool refine = false, no_refine = false, all_planners = false, planner_table = false, json = false;
  std::string effort = to_string(Effort::kNormal);
  double time_limit_s = std::numeric_limits<double>::infinity();
};

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

void declare(OptionTable& table, Options& o) {
  table.example("automap-infer fixtures/hlo/bert48.hlo.gz --cluster config-c --micro-batches 16",
                "plan the training of BERT-48 on 4 servers of 8 V100");
  table.example("automap-infer fixtures/hlo/vgg19.hlo.gz --cluster config-a --stages 2 --json",
                "exactly two stages, the plan as JSON on standard output");
  table.example("automap-profile fixtures/hlo/gpt2.hlo.gz -o - | automap-infer - --cluster h100-1x8 --all-planners",
                "from a profile, comparing all planners");

  table.group("Input");
  table
      .positional(&o.input.path, "INPUT",
                  "the model: HLO (text, proto, JSON; gzipped or not) or a profile (HDF5, CSV, graph.txt); - reads "
                  "standard input")
      .reads_file()
      .required();
  table.add(&o.input.variables, "variables", "the trainable variables of an HLO input, one per line or JSON")
      .reads_file()
      .metavar("FILE")
      .shown_default("found automatically");
  table.add(&o.input.device, "device", "reference device for the times of an HLO input: a name or a file")
      .reads_file()
      .metavar("DEVICE")
      .shown_default("the cluster's first");

  table.group("Machines and step");
  table.add(&o.cluster, "cluster", "a preset (" + join(pipeline::cluster_preset_names()) + ") or a JSON file")
      .reads_file()
      .metavar("CLUSTER")
      .required();
  table.add(&o.problem.micro_batches, "micro-batches", "micro-batches per step").range(1, 65536).metavar("M");
  table.add_on_off(&o.problem.memory, "memory", "refuse plans that do not fit in the devices' memory");
  table
      .add(&o.problem.state_factor, "state-factor",
           "bytes of training state per byte of weights (4: weight, gradient, two Adam moments)")
      .range(0, 100)
      .advanced();

  table.group("Plan");
  table.add(&o.stages, "stages", "pipeline stages, or auto: the planner chooses").no_file().metavar("auto|S");
  table.add(&o.max_stages, "max-stages", "most stages that auto may choose").range(1, 16).metavar("S");
  table.add(&o.schedule, "schedule", "1f1b-overlap starts more micro-batches early: hides transfers, costs memory")
      .choices({"1f1b", "1f1b-overlap", "auto"});
  table.add_flag(&o.problem.allow_empty_stages, "allow-empty-stages", "allow stages without a trainable variable")
      .advanced();

  table.group("Search");
  std::vector<std::string> planners;
  for (const PlannerKind planner : all_planners()) planners.push_back(to_string(planner));
  if (std::find(planners.begin(), planners.end(), "auto") == planners.end()) planners.insert(planners.begin(), "auto");
  table
      .add(&o.planner, "planner",
           "auto runs them all and takes the best; policy is the trained network's answer, in milliseconds")
      .choices(planners);
  table.add(&o.policy, "policy", "a trained policy to plan with")
      .reads_file()
      .metavar("FILE")
      .shown_default("the one compiled in");
  table.add(&o.objective, "objective", "what the best plan is judged by: the closed form V, or the event simulation")
      .choices({"auto", "value", "simulated"})
      .shown_default("simulated for the planner auto, else value");
  table.add(&o.effort, "effort", "how much to search; counted, so that every machine finds the same plan")
      .choices(effort_names());
  table.add_seconds(&o.time_limit_s, "time-limit", "also stop planning after this time with the best so far")
      .range(0.001, 86400);
  table.add_flag(&o.all_planners, "all-planners", "run every planner and list what each comes to");
  table.add_flag(&o.planner_table, "planner-table", "also run each planner alone: step, gap and milliseconds of each");
  table.add(&o.grid, "grid", "places to cut that policy, rollouts, exact and bound see; all: after every instruction")
      .no_file()
      .metavar("128|all");
  table.add(&o.beam, "beam", "partial plans that policy, rollouts and bound keep; 1 is greedy, 0 each one's own")
      .range(0, 4096)
      .shown_default("1 for policy and rollouts, 16 for bound; auto: both");
  table.add_flag(&o.refine, "refine", "move cuts off the grid by the exact program in a corridor (the default)")
      .advanced();
  table.add_flag(&o.no_refine, "no-refine", "keep cuts on the grid").advanced();
  table.add(&o.value, "value", "paper: the simpler closed form, without what drains behind the bottleneck")
      .choices({"full", "paper"})
      .advanced();

  table.group("Output");
  table.add(&o.output, "output", "also write the plan (automap.plan/1 JSON) to FILE")
      .writes_file()
      .shorthand('o')
      .metavar("FILE");
  table.epilog(
      "Exit codes: 0 a plan, 2 wrong usage or cluster file, 3 bad input or output, 4 nothing fits, 75 interrupted "
      "(what "
      "was found by then is printed).");
  table.add_common(&o.json);
}

// "auto" -> 0, else a whole number in [smallest, largest].
int number_or_word(const std::string& text, const char* option, const char* word, int smallest, int largest) {
  if (text == word) return 0;
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < smallest || value > largest) {
    throw Error(ErrorKind::kUsage, std::string("--") + option + ": found '" + text + "', expected " + word +
                                       " or a whole number from " + std::to_string(smallest) + " to " +
                                       std::to_string(largest));
  }
  return value;
}

PlanRequest make_request(const Options& o) {
  PlanRequest request;
  request.stages = number_or_word(o.stages, "stages", "auto", 1, 16);
  request.max_stages = o.max_stages;
  if (request.stages > 0) request.max_stages = std::max(request.max_stages, request.stages);
  if (o.schedule == "auto") {
    request.schedules = {Schedule::k1f1b, Schedule::k1f1bOverlap};
  } else {
    request.schedules = {o.schedule == "1f1b" ? Schedule::k1f1b : Schedule::k1f1bOverlap};
  }
  request.planner = *parse_planner(o.planner);
  if (o.objective != "auto") request.objective = o.objective == "value" ? Objective::kValue : Objective::kSimulated;
  request.beam = o.beam;
  request.grid = number_or_word(o.grid, "grid", "all", 2, 1 << 20);
  if (o.refine && o.no_refine) throw Error(ErrorKind::kUsage, "--refine and --no-refine exclude each other");
  request.refine = !o.no_refine;
  request.effort = plan_effort(*parse_effort(o.effort));
  request.time_limit_s = o.time_limit_s;
  request.all_planners = o.all_planners;
  return request;
}

PlanDocument make_document(const pipeline::Problem& problem, const PlanInput& input, const pipeline::Cluster& cluster,
                           const PlanRequest& request, const PlanResult& result) {
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

  document.warnings = input.notices;
  if (!at_layers.why_not.empty()) document.warnings.push_back("no cut at whole layers: " + at_layers.why_not);
  if (document.cut_by_time) {
    document.warnings.push_back(StopToken::stop_requested()
                                    ? "stopped by a signal: this is the best plan found so far"
                                    : "the time limit ended the search; a longer --time-limit may find a shorter step");
  }
  for (std::size_t s = 0; s < document.stages.size(); ++s) {
    const pipeline::PlanStage& stage = document.stages[s];
    const double share = stage.memory_bytes / stage.capacity_bytes;
    if (share <= kMemoryTight) continue;
    document.warnings.push_back(
        "stage " + std::to_string(s + 1) + " needs " + format_percent(share) + " of its devices' memory" +
        (share > 1 ? "; it does not fit (--memory off)" : ", which leaves little for what a framework adds"));
  }
  return document;
}

void add_provenance(PlanDocument& document, const OptionTable& table, const PlanInput& input,
                    const pipeline::Cluster& cluster) {
  auto& provenance = document.provenance;
  provenance["version"] = version();
  provenance["git"] = git_revision();
  provenance["model_form"] = input.form;
  provenance["model_sha256"] = input.profile.source_sha256.empty() ? input.sha256 : input.profile.source_sha256;
  provenance["input_sha256"] = input.sha256;
  provenance["cluster_sha256"] = sha256_hex(to_json_text(cluster));
  provenance["reference_device"] = input.profile.device;
  for (const char* option :
       {"stages", "max-stages", "schedule", "planner", "objective", "policy", "grid", "beam", "no-refine", "memory",
        "state-factor", "allow-empty-stages", "value", "effort", "time-limit"}) {
    std::string key = std::string("option_") + option;
    std::replace(key.begin(), key.end(), '-', '_');
    provenance[key] = table.value_of(option);
  }
}

int infer_main(int argc, char** argv) {
  Options options;
  OptionTable table("infer", "find a pipeline plan for training a model on a cluster, and how good it is");
  declare(table, options);
  if (!table.parse(argc, argv)) return 0;
  PlanRequest request_as_given = make_request(options);
  // What cannot be written is refused before the work.
  OutputSet outputs;
  AtomicFile* const plan_file = options.output.empty() ? nullptr : &outputs.add(options.output);
  const pipeline::Cluster cluster = pipeline::load_cluster(options.cluster);
  // Before the input is read, so that a wrong policy is refused at once.
  if (!options.policy.empty()) {
    request_as_given.policy = load_policy(options.policy);
  } else if (request_as_given.planner == PlannerKind::kPolicy) {
    request_as_given.policy = shipped_policy(request_as_given.objective.value_or(Objective::kValue));
  }
  const PlanInput input = read_input(options.input, cluster);
  const pipeline::Problem problem(input.profile, cluster, options.problem);
  log_verbose(input.form + ": " + format_count(input.profile.size()) + " forward instructions");

  PlanResult result;
  const StopToken stop;
  {
    PlanRequest request = request_as_given;
    Progress progress("planning", static_cast<std::uint64_t>(request.effort.units), "");
    request.progress = [&](std::int64_t done, std::int64_t) { progress.update(static_cast<std::uint64_t>(done)); };
    request.cancelled = StopToken::stop_requested;
    result = make_plan(problem, request);
  }
  if (!result.plan) {
    if (StopToken::stop_requested()) throw Error(ErrorKind::kStopped, "stopped by a signal before a plan was found");
    throw Error(
        ErrorKind::kInfeasible, result.infeasible,
        result.least_memory_bytes > 0 ? ""
        : result.cut_by_time || result.cut_by_effort
            ? "the search came to no end: ask for --effort thorough, fewer stage counts (--stages), or every planner"
            : "allow other stage counts, every planner, or --allow-empty-stages");
  }

  PlanDocument document = make_document(problem, input, cluster, request_as_given, result);
  // Who asked to stop does not wait for every planner in turn.
  if (options.planner_table && !StopToken::stop_requested()) {
    PlanRequest request = request_as_given;
    request.cancelled = StopToken::stop_requested;
    document.planner_table = compare_planners(problem, request);
  }
  add_provenance(document, table, input, cluster);
  const std::string json = to_json_text(document);
  if (plan_file) plan_file->write(json);
  outputs.prepare();
  if (options.json && options.output != "-") {
    print_exact(json);
  } else if (options.output != "-") {
    ReportOptions report;
    report.all_planners = options.all_planners;
    report.micro_batch_size = input.profile.micro_batch_size;
    print(report_text(document, problem, report));
  }
  outputs.commit();
  for (const std::string& warning : document.warnings) log_warning(warning);
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, infer_main);
}
