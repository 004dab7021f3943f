// automap-search placement.
#include <chrono>
#include <cmath>
#include <limits>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/systems/placement/plan_json.h"
#include "plan/systems/placement/workload_json.h"
#include "search/commands.h"
#include "search/placement_input.h"

namespace automap::search {

using namespace placement;

namespace {

struct PlacementOptions {
  PlacementInputOptions input;
  std::string given, output, memory, save_workload;
  std::string objective = "throughput";
  int accelerators = 0, cpus = 0;
  double time_s = 120;
  placement::Request request;
  bool json = false;
};

void declare_placement(OptionTable* table, PlacementOptions* options) {
  table->example("automap-search placement fixtures/placement/branches.json",
                 "the best contiguous placement of a small graph, proven");
  table->example(
      "automap-search placement fixtures/placement/training.json --accelerators 3 --memory 3GiB -o plan.json",
      "with backward nodes, on another machine; store the plan");
  table->example("automap-search placement fixtures/hlo/vgg19.hlo.gz --cluster config-a --granularity layers",
                 "of a model: its layers as a pipeline of single devices");
  table->example(
      "automap-search placement fixtures/placement/branches.json --objective latency --algorithm greedy --json",
      "the time of one sample alone, as JSON");
  options->input.declare_input(table);
  table->group("Machine");
  options->input.declare_machine(table);
  table->add(&options->accelerators, "accelerators", "how many there are")
      .range(0, kMostDevices)
      .metavar("K")
      .shown_default("as the workload or the cluster says");
  table->add(&options->cpus, "cpus", "CPU cores")
      .range(0, kMostDevices)
      .metavar("L")
      .shown_default("as the workload says; none");
  table->add(&options->memory, "memory", "of an accelerator, such as 16GiB; off: no limit")
      .no_file()
      .metavar("SIZE|off")
      .shown_default("as the workload or the cluster says");
  table->group("Search");
  table
      ->add(&options->objective, "objective",
            "throughput: the least time per sample of a pipeline; latency: the least time of one sample alone")
      .choices({"throughput", "latency"})
      .traits(kInProvenance);
  table->add(&options->request.algorithm, "algorithm", algorithm_help())
      .choices(algorithm_names())
      .traits(kInProvenance);
  table
      ->add(&options->given, "placement",
            "judge this one instead of searching: a plan of the kind placement, or a result of the authors' programs")
      .reads_file()
      .metavar("FILE");
  table->add_seconds(&options->time_s, "time", "of an integer programme or Scotch; another run may come further")
      .range(0.001, 86400)
      .traits(kInProvenance);
  table->add(&options->request.milp.gap, "gap", "an integer programme ends within this share of its bound")
      .range(0, 1)
      .metavar("SHARE")
      .traits(kInProvenance);
  table->add(&options->request.pieces, "pieces", "milp-noncontiguous with latency: of each accelerator, at most")
      .range(1, 16)
      .metavar("Q")
      .advanced()
      .traits(kInProvenance);
  table->add(&options->request.max_ideals, "max-ideals", "dp: above these the graph is too wide")
      .range(1, 10000000)
      .metavar("N")
      .advanced()
      .traits(kInProvenance);
  table->add(&options->request.orders, "orders", "dpl: of the graph")
      .range(1, 1000)
      .metavar("N")
      .advanced()
      .traits(kInProvenance);
  table->add(&options->request.restarts, "restarts", "local-search")
      .range(1, 100000)
      .metavar("N")
      .advanced()
      .traits(kInProvenance);
  table->add(&options->request.seed, "seed", "of what is random (local-search)")
      .metavar("N")
      .advanced()
      .traits(kInProvenance);
  table->group("Output");
  table->add(&options->output, "output", "write the plan (automap.plan/1 JSON, kind placement)")
      .writes_file()
      .shorthand('o')
      .metavar("FILE");
  table
      ->add(&options->save_workload, "save-workload",
            "write the workload as JSON of msr-fiddle/dnn-partitioning, on the machine asked for")
      .writes_file()
      .metavar("FILE");
  table->epilog(
      "Exit codes: 0 a placement, 2 wrong usage or no solver, 3 bad input or output, 4 nothing fits or nothing was "
      "found.");
  table->add_common(&options->json);
}

void set_machine(const OptionTable& table, const PlacementOptions& options, Workload* workload) {
  if (table.source_of("accelerators") != "default") workload->accelerators = options.accelerators;
  if (table.source_of("cpus") != "default") workload->cpus = options.cpus;
  if (options.memory == "off") {
    workload->memory_bytes = std::numeric_limits<double>::infinity();
  } else if (!options.memory.empty()) {
    workload->memory_bytes = parse_bytes(options.memory, "--memory");
  }
}

// "conv1 .. fc", of the nodes on a device in a topological order.
std::string first_and_last(const Workload& workload, const std::vector<int>& order, const Placement& placement, int d) {
  std::vector<int> here;
  for (const int v : order) {
    if (placement.device[static_cast<std::size_t>(v)] == d) here.push_back(v);
  }
  if (here.empty()) return "-";
  const auto name = [&](int v) {
    const Node& node = workload.nodes[static_cast<std::size_t>(v)];
    return node.name.empty() ? std::to_string(node.id) : shorten(node.name, 30);
  };
  return name(here.front()) + (here.size() > 1 ? " .. " + name(here.back()) : "");
}

std::string placement_device_table(const Workload& workload, const placement::Answer& answer) {
  FittedTable table({{"device", FittedTable::Align::kLeft},
                     {"nodes", FittedTable::Align::kRight, 30},
                     {"first .. last", FittedTable::Align::kLeft, 80, 16},
                     {"compute", FittedTable::Align::kRight, 50},
                     {"in", FittedTable::Align::kRight, 40},
                     {"out", FittedTable::Align::kRight, 40},
                     {"load"},
                     {"memory", FittedTable::Align::kRight, 60}});
  const std::vector<placement::DeviceLoad> loads = device_loads(workload, answer.placement);
  const std::vector<int> order = topological_order(workload);
  int empty = 0;
  for (int d = 0; d < workload.devices(); ++d) {
    const placement::DeviceLoad& load = loads[static_cast<std::size_t>(d)];
    int nodes = 0;
    for (const int device : answer.placement.device) nodes += device == d;
    if (nodes == 0) ++empty;
    if (nodes == 0) continue;
    table.add_row({device_name(workload, d), std::to_string(nodes),
                   first_and_last(workload, order, answer.placement, d), format_ms(load.compute_ms),
                   format_ms(load.in_ms), format_ms(load.out_ms), format_ms(load.total_ms()),
                   format_bytes(load.bytes)});
  }
  return table.render("  ") + (empty > 0 ? "  " + std::to_string(empty) + " devices hold nothing\n" : "");
}

std::string placement_report(const Workload& workload, const placement::Request& request,
                             const placement::Answer& answer, const placement::PlanNotes& notes) {
  const bool latency = request.objective == Objective::kLatency, model = notes.made != nullptr;
  std::string out = printable(notes.model) + ": " + std::to_string(workload.size()) + " nodes" +
                    (workload.training() ? ", backward ones among them," : "") + " on " +
                    std::to_string(workload.accelerators) + " accelerators and " + std::to_string(workload.cpus) +
                    " CPU cores\n\n" + placement_device_table(workload, answer) + "\n";
  // The unit of the time: a sample of a workload; for a model the batch that it was exported or profiled with.
  const std::string one = model ? "micro-batch" : "sample", label = model ? "Micro-batch  " : "Per sample   ";
  out += (latency ? "Latency      " : label) + format_ms(answer.value_ms) +
         (latency ? " for one " + one + " alone" : ": the largest load") +
         (model ? ", samples as in the model, " : ", ") + (answer.contiguous ? "contiguous" : "not contiguous") + "\n";
  if (model && notes.made->granularity == Granularity::kLayers) {
    std::string why;
    const auto plan = pipeline_plan(*notes.made, answer.placement, &why);
    out += "As pipeline  " +
           (plan ? std::to_string(plan->num_stages()) + " stages of one device; automap-compare simulates its step"
                 : why) +
           "\n";
  }
  out += "Lower bound  " + format_ms(answer.bound_ms) + " of " + answer.bound_of;
  const double gap = answer.bound_ms > 0 ? answer.value_ms / answer.bound_ms - 1 : 0;
  if (answer.bound_ms > 0) {
    out += gap <= 1e-9 ? "; none is better" : "; this one is at most " + format_percent(gap) + " above the best";
  }
  out += "\nFound by     " + answer.planner + " in " + format_ms(notes.planning_ms);
  if (answer.ideals > 0) {
    out += "; " + format_count(answer.ideals) + " ideals of " + format_count(answer.units) + " units, " +
           format_count(answer.pairs) + " pairs looked at";
  }
  out += "\n";
  if (answer.tried.size() > 1) {
    FittedTable tried({{"planner", FittedTable::Align::kLeft, FittedTable::kNeeded, 16}, {"value"}, {"planned in"}});
    for (const Tried& t : answer.tried) {
      tried.add_row({t.planner, t.value_ms ? format_ms(*t.value_ms) : "none", format_ms(t.planning_ms)});
    }
    out += "\n" + tried.render("  ");
  }
  return out;
}

}  // namespace

int placement_command(int argc, char** argv) {
  PlacementOptions options;
  OptionTable table("search placement", "which device runs which node of a graph (Tarnawski et al., NeurIPS 2020)");
  declare_placement(&table, &options);
  if (!table.parse(argc, argv)) return 0;
  if (options.input.path == "-" && options.given == "-") {
    throw Error(ErrorKind::kUsage, "the input and --placement both want standard input", "give one of them a file");
  }
  OutputFiles files(options.json);
  files.add("-o", options.output);
  files.add("--save-workload", options.save_workload);
  PlacementInput input = options.input.read(table);
  Workload& workload = input.workload;
  set_machine(table, options, &workload);
  if (input.made) input.made->workload = workload;
  check_workload(workload, input.name);
  placement::Request& request = options.request;
  request.objective = options.objective == "latency" ? Objective::kLatency : Objective::kThroughput;
  request.milp.seconds = options.time_s;

  const auto start = std::chrono::steady_clock::now();
  // The first Ctrl-C ends the search with the best so far.
  const StopToken stop;
  Work work(WorkLimits::until([] { return StopToken::stop_requested(); }));
  const placement::Answer answer =
      options.given.empty() ? find_placement(workload, request, &work)
                            : judge_placement(workload, request, load_placement(options.given, workload), "given");
  placement::PlanNotes notes;
  notes.warnings = input.warnings;
  notes.warnings.insert(notes.warnings.end(), answer.warnings.begin(), answer.warnings.end());
  notes.model = input.name;
  notes.algorithm = options.given.empty() ? request.algorithm : "given";
  notes.made = input.made ? &*input.made : nullptr;
  notes.planning_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  notes.provenance = table.provenance();
  notes.provenance.merge(input.provenance);

  const std::string json = to_json_text(workload, request, answer, notes);
  if (files.wanted("--save-workload")) files.write("--save-workload", workload_json_text(workload));
  files.publish(
      json, [&] { return placement_report(workload, request, answer, notes); }, notes.warnings);
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

}  // namespace automap::search
