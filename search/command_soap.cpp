// automap-search soap: FlexFlow's search on one model and cluster.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/base/work.h"
#include "common/machine/cluster.h"
#include "common/pipeline/plan_reader.h"
#include "plan/emit/emit_soap.h"
#include "plan/partition/partition_search.h"
#include "plan/systems/soap/memory.h"
#include "plan/systems/soap/operators.h"
#include "plan/systems/soap/search.h"
#include "plan/systems/soap/soap_plan.h"
#include "plan/systems/soap/task_graph.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"

namespace automap::search {

using namespace soap;

namespace {

constexpr const char* kAllStarts = "all";
constexpr const char* kDataParallel = "data-parallel";
constexpr const char* kExpert = "expert";
constexpr const char* kRandom = "random";
constexpr std::uint32_t kStartStream = 0x50aa;
constexpr std::size_t kMostOperatorRows = 60;

struct SoapOptions {
  ModelOptions model;
  std::string cluster = "config-a", device, start = kAllStarts, plan, placement = to_string(soap::Placement::kRange),
              effort = to_string(Effort::kNormal), output, emit_hlo;
  int devices = 0;
  double time_s = std::numeric_limits<double>::infinity(), beta = kDefaultBeta;
  std::uint64_t seed = 0;
  bool fit = false, json = false;

  void declare(OptionTable* table) {
    table->example("automap-search soap fixtures/hlo/vgg19.hlo.gz --cluster config-b",
                   "split every operator by samples, space or channels, on devices of its own");
    table->example("automap-search soap fixtures/hlo/t5_6_6.hlo.gz --cluster config-a --time 5s -o plan.json",
                   "search for 20 seconds; the strategy to a file");
    table->example("automap-search soap fixtures/hlo/t5_6_6.hlo.gz --cluster config-a --plan plan.json --effort quick",
                   "what a strategy takes, and what can be made of it");
    table->example("automap-search soap fixtures/hlo/tiny_mlp.hlo --devices 8 --emit-hlo sharded.hlo",
                   "only what is one mesh, and the module for XLA");
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
    table->add(&start, "start", "where chains begin")
        .choices({kAllStarts, kDataParallel, kExpert, kRandom})
        .traits(kInProvenance);
    table->add(&plan, "plan", "a strategy to begin with, too: automap.plan/1 JSON of kind soap")
        .reads_file()
        .metavar("FILE")
        .traits(kInProvenance);
    table
        ->add(&placement, "placement",
              "range: an operator's parts stand on devices in a row; any: each on any device, as in the paper (a far "
              "larger space); mesh: every operator on all devices, as XLA can have it")
        .choices(
            {to_string(soap::Placement::kRange), to_string(soap::Placement::kAny), to_string(soap::Placement::kMesh)})
        .traits(kInProvenance);
    table->add_flag(&fit, "fit", "count what is above the devices' memory as 1 ms per MB, so that what is found fits")
        .traits(kInProvenance);
    table->add(&beta, "beta", "how seldom a longer step is taken: e^-(beta x its share of data parallelism's)")
        .range(1e-6, 1e9)
        .traits(kInProvenance);
    table->add(&effort, "effort", "how much to search; counted, so that every machine finds the same plan")
        .choices(effort_names())
        .traits(kInProvenance);
    table->add_seconds(&time_s, "time", "search for so long instead, or until nothing better came for half of it")
        .range(0.001, 86400)
        .traits(kInProvenance);
    table->add(&seed, "seed", "of proposals and random starts").metavar("N").traits(kInProvenance);
    table->group("Output");
    table->add(&output, "output", "write the plan (automap.plan/1 JSON)").writes_file().shorthand('o').metavar("FILE");
    table
        ->add(&emit_hlo, "emit-hlo",
              "write the module with sharding annotations, as XLA runs it; searches --placement mesh unless another is "
              "given")
        .writes_file()
        .metavar("FILE");
    table->epilog("Exit codes: 0 a plan, 2 wrong usage, cluster file or no single mesh, 3 bad input or output.");
    table->add_common(&json);
  }
};

std::vector<Start> starts_of(const SoapOptions& options, const Space& space, const Proposals& proposals,
                             const std::string& plan_text) {
  std::vector<Start> out;
  const auto wanted = [&](const char* name) { return options.start == kAllStarts || options.start == name; };
  if (!options.plan.empty()) {
    out.push_back(
        {"the plan given", parse_soap_strategy(plan_text, input_name(options.plan), space, proposals.devices())});
  }
  if (wanted(kDataParallel)) out.push_back({"data parallel", data_parallel(space, proposals.devices())});
  if (wanted(kExpert)) out.push_back({"expert", expert(space, proposals.devices())});
  if (wanted(kRandom)) {
    Rng rng(options.seed, kStartStream, 0);
    out.push_back({"random", random_start(space, proposals, &rng)});
  }
  return out;
}

std::string devices_text(const std::vector<std::int32_t>& devices) {
  const auto number = [](std::int32_t device) { return std::to_string(device + 1); };
  bool row = true;
  for (std::size_t i = 1; i < devices.size(); ++i) row = row && devices[i] == devices[i - 1] + 1;
  if (devices.size() == 1) return number(devices[0]);
  if (row) return number(devices.front()) + "-" + number(devices.back());
  std::string out;
  for (const std::int32_t device : devices) out += (out.empty() ? "" : ",") + number(device);
  return out;
}

std::string degree_text(const Operator& op, const Config& config, DimKind kind) {
  std::string out;
  for (std::size_t d = 0; d < op.dims.size(); ++d) {
    if (op.dims[d].kind == kind && config.degrees[d] > 1)
      out += (out.empty() ? "" : "x") + std::to_string(config.degrees[d]);
  }
  return out.empty() ? "-" : out;
}

std::string faster(double other_ms, double ms) {
  return format_number(ms > 0 ? other_ms / ms : 1) + "x as fast";
}

// "fits: 11.2 GiB of 16 GiB on device 3, the fullest (...)".
std::string soap_memory_text(const SoapPlan& plan) {
  const DeviceMemory& most = plan.memory[static_cast<std::size_t>(plan.fullest.device)];
  return (plan.fits() ? "fits: " : "needs ") + format_bytes(plan.fullest.bytes) + " of " +
         format_bytes(plan.fullest.capacity_bytes) + " on device " + std::to_string(plan.fullest.device + 1) +
         ", the fullest (weights " + format_bytes(most.weight_bytes) + ", gradients " +
         format_bytes(most.gradient_bytes) + ", optimizer " + format_bytes(most.slot_bytes) + ", kept " +
         format_bytes(most.kept_bytes) + ")";
}

std::string soap_memory_warning(const SoapPlan& plan, bool fit) {
  return "the strategy " + soap_memory_text(plan) +
         (fit ? ": nothing that fits was found" : "; --fit looks for one that fits");
}

std::string soap_report(const SoapPlan& plan, const ModelSpace& model) {
  std::string out = printable(plan.model) + " on " + std::to_string(plan.devices) + " devices of " +
                    printable(plan.cluster) + ": " + std::to_string(model.space.size()) + " operators\n\n";
  out += "Step time      " + format_ms(plan.step_ms) + " simulated; data parallel " + format_ms(plan.data_parallel_ms) +
         " (" + faster(plan.data_parallel_ms, plan.step_ms) + "), expert " + format_ms(plan.expert_ms) + " (" +
         faster(plan.expert_ms, plan.step_ms) + ")\n";
  out += "Over links     " + format_bytes(plan.moved_bytes) + " per step; data parallel " +
         format_bytes(plan.data_parallel_moved_bytes) + "\n";
  out += "Memory         " + soap_memory_text(plan) + "\n";
  out += "Found          from " +
         plan.planner.substr(plan.planner.find("from ") == std::string::npos ? 0 : plan.planner.find("from ") + 5) +
         ", " + format_count(plan.proposals) + " proposals" +
         (plan.local_optimum ? "; no other configuration of one operator is shorter" : "") + "\n";
  const std::string why = emit::why_no_mesh(model.space, plan.strategy, plan.devices);
  out += "For XLA        " + (why.empty() ? "one mesh: --emit-hlo writes it" : "no single mesh: " + why) + "\n";
  FittedTable chains({{"chain from", FittedTable::Align::kLeft},
                      {"start", FittedTable::Align::kRight, 60},
                      {"best"},
                      {"proposals", FittedTable::Align::kRight, 50},
                      {"accepted", FittedTable::Align::kRight, 20},
                      {"best at", FittedTable::Align::kRight, 30},
                      {"ended", FittedTable::Align::kLeft, 40, 14}});
  for (const ChainResult& chain : plan.chains) {
    chains.add_row({chain.start, format_ms(chain.start_ms), format_ms(chain.best_ms), format_count(chain.proposals),
                    format_count(chain.accepted), format_count(chain.best_at),
                    chain.settled ? "nothing better for half of its budget" : "budget spent"});
  }
  if (!chains.empty()) out += "\n" + chains.render("  ");
  FittedTable table({{"operators", FittedTable::Align::kRight, 40},
                     {"layer", FittedTable::Align::kLeft, FittedTable::kNeeded, 16},
                     {"first", FittedTable::Align::kLeft, 30, 14},
                     {"samples"},
                     {"attributes", FittedTable::Align::kRight, 60},
                     {"parameters", FittedTable::Align::kRight, 70},
                     {"devices", FittedTable::Align::kLeft, FittedTable::kNeeded, 10}});
  std::size_t rows = 0;
  for (std::size_t i = 0, end = 0; i < plan.strategy.size(); i = end) {
    // Neighbours that are split alike.
    const auto cells = [&](std::size_t k) {
      const Operator& op = model.space.operators[k];
      const Config& config = plan.strategy[k];
      return std::vector<std::string>{degree_text(op, config, DimKind::kSample),
                                      degree_text(op, config, DimKind::kAttribute),
                                      degree_text(op, config, DimKind::kParameter), devices_text(config.devices)};
    };
    const std::vector<std::string> own = cells(i);
    for (end = i + 1; end < plan.strategy.size() && cells(end) == own;) ++end;
    if (rows++ >= kMostOperatorRows) continue;
    const Operator& op = model.space.operators[i];
    table.add_row({std::to_string(end - i), shorten(op.layer, 32), shorten(op.name, 28), own[0], own[1], own[2],
                   shorten(own[3], 24)});
  }
  out += "\nDegrees, in the order of the step (neighbours that are split alike in one row)\n" + table.render("  ");
  if (rows > kMostOperatorRows)
    out += "  ... " + std::to_string(rows - kMostOperatorRows) + " rows more: --json has all\n";
  return out;
}

}  // namespace

int soap_command(int argc, char** argv) {
  SoapOptions options;
  OptionTable table("search soap", "split every operator along its own dimensions, on devices of its own (FlexFlow)");
  options.declare(&table);
  if (!table.parse(argc, argv)) return 0;
  const auto begun = std::chrono::steady_clock::now();
  OutputFiles files(options.json);
  files.add("-o", options.output);
  files.add("--emit-hlo", options.emit_hlo);
  if (files.wanted("--emit-hlo") && table.source_of("placement") == "default")
    options.placement = to_string(soap::Placement::kMesh);
  const machine::Cluster cluster = machine::load_cluster(options.cluster);
  const machine::DeviceModel device = profile::reference_device(options.device, cluster);
  const MachineLinks links(cluster, options.devices);
  const std::string plan_text = options.plan.empty() ? "" : read_file(options.plan, pipeline::kMaxPlanBytes);

  const LoadedStep loaded = load_training_step(options.model);
  const ModelSpace model = operators_of(loaded.module->graph, loaded.step, device);
  const Proposals proposals(model.space, links.num_devices(), *parse_placement(options.placement));
  const std::vector<Start> starts = starts_of(options, model.space, proposals, plan_text);

  StopToken stop;
  const bool timed = std::isfinite(options.time_s);
  WorkLimits limits;
  limits.units = timed ? WorkLimits::kNoEnd : partition::search_units(*parse_effort(options.effort));
  limits.seconds = options.time_s;
  limits.cancelled = [] { return StopToken::stop_requested(); };
  Work work(limits);
  SearchOptions search_options;
  search_options.beta = options.beta;
  search_options.seed = options.seed;
  search_options.fit = options.fit;
  search_options.seconds = timed ? options.time_s : 0;
  SearchResult found = soap::search(model.space, links, proposals, starts, search_options, work);

  SoapPlan plan;
  plan.model = loaded.name;
  plan.cluster = cluster.name;
  plan.devices = links.num_devices();
  plan.planner = "mcmc from " + found.found_by;
  plan.step_ms = found.step_ms;
  plan.data_parallel_ms = found.data_parallel_ms;
  plan.expert_ms = found.expert_ms;
  plan.moved_bytes = bytes_moved(model.space, found.strategy, links);
  plan.data_parallel_moved_bytes = bytes_moved(model.space, data_parallel(model.space, links.num_devices()), links);
  plan.same_devices = same_devices_everywhere(found.strategy);
  plan.memory = memory_of(model.space, found.strategy, links);
  plan.fullest = fullest_of(plan.memory, links);
  plan.strategy = std::move(found.strategy);
  plan.chains = std::move(found.chains);
  plan.proposals = found.proposals;
  plan.local_optimum = found.local_optimum;
  plan.cut_by_time = timed || work.stopped();
  plan.warnings = loaded.step.warnings;
  plan.warnings.insert(plan.warnings.end(), model.warnings.begin(), model.warnings.end());
  if (!plan.fits()) plan.warnings.push_back(soap_memory_warning(plan, options.fit));
  plan.planning_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
  plan.provenance = plan_provenance(loaded, cluster, device, table);
  plan.provenance["option_variables"] = options.model.variables;
  if (!plan_text.empty()) plan.provenance["plan_sha256"] = sha256_hex(plan_text);

  const std::string json = to_json_text(plan, model.space);
  if (files.wanted("--emit-hlo"))
    files.write("--emit-hlo", emit::emit_soap_hlo(loaded.step, model, plan.strategy, plan.devices));
  files.publish(
      json, [&] { return soap_report(plan, model); }, plan.warnings);
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

}  // namespace automap::search
