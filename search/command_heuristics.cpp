// automap-search heuristics: a training step's graph divided among devices by compiler heuristics.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/machine/cluster.h"
#include "plan/systems/heuristics/plan_json.h"
#include "plan/systems/heuristics/training_graph.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"

namespace automap::search {

using namespace heuristics;

namespace {

constexpr const char* kUpdate = "update";
constexpr const char* kPasses = "passes";
constexpr std::size_t kMostScenarios = 100;
constexpr double kMostNoise = 3, kMostSlow = 1000;
constexpr double kLoss = 0.01;                          // less is not worth a sentence
constexpr OptionTraits kOfAssistants = kFirstOwnTrait;  // without --assistants nothing looks at it

struct HeuristicsOptions {
  ModelOptions model;
  std::string cluster = "config-a", device, colocate = kUpdate, noise = "0,0.1,0.3,0.5", slow = "1,1.5,2,4", output;
  int devices = 0;
  bool assistants = false, json = false;
  heuristics::Request request;
  AssistantRequest runtime;

  void declare(OptionTable* table) {
    table->example("automap-search heuristics fixtures/hlo/vgg19.hlo.gz --cluster config-a",
                   "a device for every kernel of a step; what each heuristic came to");
    table->example(
        "automap-search heuristics fixtures/hlo/t5_6_6.hlo.gz --devices 8 --heuristic multilevel -o plan.json",
        "one heuristic, on one server; the plan to a file");
    table->example(
        "automap-search heuristics fixtures/hlo/tiny_mlp.hlo --devices 4 --assistants --slow 1,2 --noise 0,0.3",
        "what scheduling assistants are worth when a device is slow and times are noisy");
    model.declare(table);
    table->group("Machines");
    table->add(&cluster, "cluster", "a preset or a JSON file").reads_file().metavar("CLUSTER").traits(kInProvenance);
    table->add(&devices, "devices", "use the first N devices only")
        .range(0, soap::kMostDevices)
        .metavar("N")
        .shown_default("all")
        .traits(kInProvenance);
    table->add(&device, "device", "reference device for the times: a name or a file")
        .reads_file()
        .metavar("DEVICE")
        .shown_default("the cluster's first")
        .traits(kInProvenance);
    table->group("Search");
    std::vector<std::string> names{kAllHeuristics};
    for (const std::string& name : heuristic_names()) names.push_back(name);
    table->add(&request.heuristic, "heuristic", "all, the best of which counts, or one of them; " + heuristic_help())
        .choices(names)
        .traits(kInProvenance);
    table
        ->add_flag(&request.acyclic, "acyclic",
                   "only divisions where no way through the forward pass comes back to a device that it has left")
        .traits(kInProvenance);
    table
        ->add(&colocate, "colocate",
              "what must be on one device: update: a weight, its optimizer state and its update; passes: a layer's "
              "backward tasks with its forward one, too")
        .choices({kUpdate, kPasses})
        .traits(kInProvenance);
    table->group("Scheduling assistants");
    table
        ->add_flag(&assistants, "assistants",
                   "run the plan where times are not as predicted: as planned, with assistants, planned anew")
        .traits(kInProvenance);
    table->add(&noise, "noise", "deviations of the logarithm of tasks' times, commas between")
        .no_file()
        .metavar("SIGMAS")
        .traits(kInProvenance | kOfAssistants);
    table->add(&slow, "slow", "how many times as long the busiest device takes, commas between")
        .no_file()
        .metavar("FACTORS")
        .traits(kInProvenance | kOfAssistants);
    table->add(&runtime.runs, "runs", "with noise of its own each; means are reported")
        .range(1, 1000)
        .metavar("N")
        .traits(kInProvenance | kOfAssistants);
    table->add(&runtime.seed, "seed", "of the noise").metavar("N").traits(kInProvenance | kOfAssistants);
    table
        ->add(&runtime.theta_share, "theta",
              "what moving a task must gain, and how late it must be, as a share of the step")
        .range(1e-9, 1)
        .metavar("SHARE")
        .advanced()
        .traits(kInProvenance | kOfAssistants);
    table->add(&runtime.rules.tau, "tau", "a device pushes tasks away when it is so much slower than predicted")
        .range(0, 1000)
        .metavar("SHARE")
        .advanced()
        .traits(kInProvenance | kOfAssistants);
    table->group("Output");
    table->add(&output, "output", "write the plan (automap.plan/1 JSON, kind heuristics)")
        .writes_file()
        .shorthand('o')
        .metavar("FILE");
    table->epilog(
        "Exit codes: 0 a plan, 2 wrong usage or cluster file, 3 bad input or output, 4 no device can hold it.");
    table->add_common(&json);
  }
};

// "0,0.1,0.3" -> numbers within [least, most].
std::vector<double> parse_numbers(const std::string& text, const std::string& option, double least, double most) {
  std::vector<double> out;
  for (const std::string& part : split_at_commas(text)) {
    double value = 0;
    const char* const end = part.data() + part.size();
    const auto [rest, status] = std::from_chars(part.data(), end, value);
    if (status != std::errc() || rest != end || !(value >= least && value <= most)) {
      throw Error(ErrorKind::kUsage, option + ": found '" + part + "', expected numbers from " + format_number(least) +
                                         " to " + format_number(most) + ", commas between");
    }
    out.push_back(value);
  }
  if (out.size() > kMostScenarios) {
    throw Error(ErrorKind::kUsage, option + ": found " + std::to_string(out.size()) + " numbers, expected at most " +
                                       std::to_string(kMostScenarios));
  }
  return out;
}

std::string candidate_table(const heuristics::Answer& answer) {
  FittedTable table({{"heuristic", FittedTable::Align::kLeft},
                     {"largest load", FittedTable::Align::kRight, 60},
                     {"unrefined", FittedTable::Align::kRight, 20},
                     {"cut", FittedTable::Align::kRight, 50},
                     {"imbalance", FittedTable::Align::kRight, 40},
                     {"step"},
                     {"devices", FittedTable::Align::kRight, 45},
                     {"planned in", FittedTable::Align::kRight, 30},
                     {"", FittedTable::Align::kLeft}});
  for (std::size_t i = 0; i < answer.candidates.size(); ++i) {
    const Candidate& c = answer.candidates[i];
    table.add_row({c.name, format_ms(c.cost.load_ms), format_ms(c.rough.load_ms), format_bytes(c.cost.cut_bytes),
                   format_percent(c.imbalance), format_ms(c.makespan_ms), std::to_string(c.devices_used),
                   format_ms(c.planning_ms),
                   i == answer.best ? "chosen"
                   : c.fits         ? ""
                                    : "does not fit"});
  }
  return table.render("  ");
}

std::string heuristics_device_table(const WorkGraph& graph, const Machine& machine, const Candidate& best) {
  FittedTable table({{"device"},
                     {"tasks", FittedTable::Align::kRight, 20},
                     {"compute", FittedTable::Align::kRight, 50},
                     {"messages", FittedTable::Align::kRight, 40},
                     {"load"},
                     {"memory"}});
  const std::vector<heuristics::DeviceLoad> loads = device_loads(hypergraph_of(graph), machine, best.devices);
  std::vector<int> tasks(loads.size(), 0);
  for (const Task& task : graph.tasks) ++tasks[at(best.devices[at(task.unit)])];
  for (std::size_t d = 0; d < loads.size(); ++d) {
    if (tasks[d] == 0) continue;
    table.add_row({std::to_string(d + 1), std::to_string(tasks[d]), format_ms(loads[d].compute_ms),
                   format_ms(loads[d].message_ms), format_ms(loads[d].total_ms()),
                   format_bytes(loads[d].memory_bytes)});
  }
  return table.render("  ");
}

std::string scenario_table(const std::vector<ScenarioResult>& results) {
  FittedTable table({{"noise"},
                     {"slow"},
                     {"static"},
                     {"assisted"},
                     {"planned anew", FittedTable::Align::kRight, 50},
                     {"with feedback", FittedTable::Align::kRight, 40},
                     {"tasks moved", FittedTable::Align::kRight, 20}});
  for (const ScenarioResult& r : results) {
    table.add_row({format_number(r.scenario.sigma), format_number(r.scenario.slow) + "x", format_ms(r.static_ms),
                   format_ms(r.assisted_ms), format_ms(r.oracle_ms), format_ms(r.feedback_ms), format_number(r.moved)});
  }
  return table.render("  ");
}

// A sentence for the rows where assisted takes longer than static by more than kLoss; nothing where there are none.
std::string where_assistants_lose(const std::vector<ScenarioResult>& results) {
  const auto loss = [](const ScenarioResult& r) { return r.assisted_ms / r.static_ms - 1; };
  const auto count = std::count_if(results.begin(), results.end(), [&](const auto& r) { return loss(r) > kLoss; });
  if (count == 0) return "";
  const ScenarioResult& worst = *std::max_element(results.begin(), results.end(),
                                                  [&](const auto& a, const auto& b) { return loss(a) < loss(b); });
  return "  Assistants lose in " + std::to_string(count) + " of " + std::to_string(results.size()) +
         " rows: assisted takes up to " + format_percent(loss(worst)) + " longer than static (noise " +
         format_number(worst.scenario.sigma) + ", slow " + format_number(worst.scenario.slow) + "x).\n";
}

std::string heuristics_report(const TrainingGraph& model, const Machine& machine, const heuristics::Answer& answer,
                              const heuristics::PlanNotes& notes) {
  const Candidate& best = answer.candidates[answer.best];
  std::string out = printable(notes.model) + " on " + std::to_string(machine.num_devices()) + " devices of " +
                    printable(notes.cluster) + ": " + format_count(model.graph.size()) + " tasks in " +
                    format_count(model.graph.units()) + " units" + (model.training ? "" : " (inference)") + "\n\n";
  out += "Largest load   " + format_ms(best.cost.load_ms) + " by " + best.name + "; none is below " +
         format_ms(answer.bound_ms) + "\n";
  out += "Step           " + format_ms(best.makespan_ms) + " simulated; computing alone " +
         format_ms(model.graph.total_ms()) + " on one device\n";
  out += "Between        " + format_bytes(best.cost.cut_bytes) + " cross between devices per step\n\n";
  out += candidate_table(answer) + "\n" + heuristics_device_table(model.graph, machine, best);
  if (!notes.scenarios.empty()) {
    out += "\nDevice " + std::to_string(straggler_of(model.graph, machine, best.devices) + 1) +
           " slow, times noisy; means of " + std::to_string(notes.assistants.runs) + " runs\n" +
           scenario_table(notes.scenarios) + where_assistants_lose(notes.scenarios);
  }
  out += "\nThis design is ours: of 1906.08168 only the abstract was at hand; nothing here reproduces its numbers.\n";
  return out;
}

}  // namespace

int heuristics_command(int argc, char** argv) {
  HeuristicsOptions options;
  OptionTable table("search heuristics", "compiler heuristics that divide a training step's graph among devices");
  options.declare(&table);
  if (!table.parse(argc, argv)) return 0;
  const auto begun = std::chrono::steady_clock::now();
  options.runtime.sigmas = parse_numbers(options.noise, "--noise", 0, kMostNoise);
  options.runtime.slows = parse_numbers(options.slow, "--slow", 1, kMostSlow);
  for (const std::string& option : table.names_with(kOfAssistants)) {
    if (!options.assistants && table.source_of(option) == "flag") {
      throw Error(ErrorKind::kUsage, "--" + option + " is of scheduling assistants, which were not asked for",
                  "add --assistants");
    }
  }
  OutputFiles files(options.json);
  files.add("-o", options.output);
  const machine::Cluster cluster = machine::load_cluster(options.cluster);
  const machine::DeviceModel device = profile::reference_device(options.device, cluster);
  const Machine machine(cluster, options.devices);

  const LoadedStep loaded = load_training_step(options.model);
  const TrainingGraph model = training_graph_of(loaded.module->graph, loaded.step, device,
                                                options.colocate == kPasses ? Colocate::kPasses : Colocate::kUpdate);
  const heuristics::Answer answer = find_division(model.graph, machine, options.request);
  heuristics::PlanNotes notes;
  notes.model = loaded.name;
  notes.cluster = cluster.name;
  notes.training = model.training;
  notes.assistants = options.runtime;
  if (options.assistants) {
    notes.scenarios = compare_assistants(model.graph, machine, answer.candidates[answer.best], options.request.acyclic,
                                         options.runtime);
  }
  notes.warnings = loaded.step.warnings;
  notes.warnings.insert(notes.warnings.end(), model.warnings.begin(), model.warnings.end());
  notes.planning_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
  notes.provenance = plan_provenance(loaded, cluster, device, table);

  const std::string json = to_json_text(model.graph, machine, options.request, answer, notes);
  files.publish(
      json, [&] { return heuristics_report(model, machine, answer, notes); }, notes.warnings);
  return 0;
}

}  // namespace automap::search
