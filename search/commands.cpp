#include "search/commands.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "common/base/child_program.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/base/option_pages.h"
#include "common/base/plugin.h"
#include "common/base/suggest.h"
#include "common/graph/variables.h"
#include "common/machine/cluster.h"
#include "common/machine/cluster_names.h"
#include "profile/description_options.h"
#include "profile/profile_hlo.h"

namespace automap::search {
namespace {

void load_module(const ModelOptions& options, LoadedModule* out) {
  profile::ReadModule read = profile::load_whole_model(options.path, "automap-search needs the model itself, as HLO",
                                                       options.as_is, options.step);
  out->source = input_name(options.path);
  out->form = std::move(read.form);
  out->module = std::make_unique<hlo::HloModule>(std::move(read.module));
  out->name = profile::model_name(out->source, std::string(out->module->graph.name()));
}

// The default cluster that plans are judged on: the paper's servers of 8 V100.
constexpr const char* kDefaultCluster = "config-a";

constexpr const char* kSummary = "which tensors of a training step to split over the devices";

struct Command {
  const char* name;
  const char* says;
  int (*run)(int, char**);
};
constexpr Command kCommands[] = {
    {"opp", "which dimension of which trainable variable to split over the devices", opp_command},
    {"adp", "which dimension of which data input to split (data parallelism)", adp_command},
    {"apply", "write a stored decision, by anyone, onto a module", apply_command},
    {"propagate", "complete a partial decision; explain every step, what is stuck or in conflict", propagate_command},
    {"explore", "the best plan of every kind for a cluster: as automap-infer MODEL --cluster C --explore on",
     explore_command},
    {"pipeline", "Rainbow learning on one model's pipeline: as automap-infer MODEL --cluster C --planner online",
     pipeline_command},
    {"compare", "published systems and ours, side by side: as automap-compare MODEL --cluster C", compare_command},
    {"explain", "why a tensor is split, whole or reduced; which collective, where, how many bytes", explain_command},
    {"placement", "which device runs which operator or layer (Tarnawski et al.): optimal pipelines, latency",
     placement_command},
    {"soap", "every operator split along its own dimensions, on devices of its own (FlexFlow)", soap_command},
    {"heuristics", "a device for every kernel of a step by compiler heuristics; scheduling assistants at run time",
     heuristics_command},
};

std::string help() {
  std::string out = std::string("automap-search: ") + kSummary +
                    "\n\n"
                    "Examples:\n"
                    "  automap-search opp fixtures/hlo/t5_6_6.hlo.gz --shards 8 -o plan.json --emit-hlo sharded.hlo\n"
                    "      split the variables of a T5 over 8 devices; sharded.hlo is for XLA\n"
                    "  automap-search adp fixtures/hlo/vgg19.hlo.gz --shards 8\n"
                    "      split its data instead, and see what that costs\n"
                    "  automap-search propagate fixtures/hlo/tiny_mlp.hlo --shards 4 --set 'params/dense_1/kernel=1'\n"
                    "      one decision, completed to every tensor and explained\n\n"
                    "Usage: automap-search COMMAND MODEL [options]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    const std::string name = command.name;
    out += "  " + name + std::string(12 - name.size(), ' ') + command.says + "\n";
  }
  return out +
         "\nautomap-search COMMAND --help says more. MODEL is HLO in any form (text, binary or JSON protobuf), gzipped "
         "or\nnot; - reads standard input.\n";
}

constexpr const char* kPipelineHelp =
    R"(automap-search pipeline: Rainbow learning on one model's pipeline (Auto-MAP, 3.4 and 4.4)

Examples:
  automap-search pipeline fixtures/hlo/vgg19.hlo.gz --cluster config-a --time 5s
      from the policy that is shipped
  automap-search pipeline fixtures/hlo/vgg19.hlo.gz --cluster config-a --time 5s --radius 3 --from scratch
      the paper's pruning, and no policy to start from

Usage: automap-search pipeline MODEL --cluster C [options]

It is automap-infer MODEL --cluster C --planner online, with all of its options, and --time for its --time-limit.
--from, --radius, --seed, --plays and --search-state are of this search: automap-infer --help-all says what they do.
)";

}  // namespace

int explore_command(int argc, char** argv) {
  std::vector<std::string> program = {"automap-infer"};
  program.insert(program.end(), argv + 1, argv + argc);
  // Help and versions are those of the program that does it.
  if (std::none_of(argv + 1, argv + argc, [](const char* argument) { return std::string(argument) == "--explore"; })) {
    program.insert(program.begin() + 1, {"--explore", "on"});
  }
  become_program(program);
}

int pipeline_command(int argc, char** argv) {
  std::vector<std::string> program = {"automap-infer", "--planner", "online"};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      print(kPipelineHelp);
      return 0;
    }
    // A search that learns is limited by time: --time is automap-infer's --time-limit.
    const bool time = argument == "--time" || argument.compare(0, 7, "--time=") == 0;
    program.push_back(time ? "--time-limit" + argument.substr(6) : argument);
  }
  become_program(program);
}

int compare_command(int argc, char** argv) {
  std::vector<std::string> program = {"automap-compare"};
  program.insert(program.end(), argv + 1, argv + argc);
  become_program(program);
}

int search_main(int argc, char** argv) {
  std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "--help-all" || (name == "help" && argc == 2)) {
    print(help());
    return 0;
  }
  if (name == "--version") {
    print(version_report("automap-search"));
    return 0;
  }
  if (const std::optional<std::string> form = argc == 3 ? page_form(argc, argv) : std::nullopt) {
    std::vector<std::pair<std::string, std::string>> commands;
    for (const Command& command : kCommands) commands.emplace_back(command.name, command.says);
    print_exact(commands_as(*form, "automap-search", kSummary, commands));
    return 0;
  }
  std::string help_flag = "--help";
  std::vector<char*> arguments(argv + std::min(argc, 1), argv + argc);
  if (name == "help") {
    name = argv[2];
    arguments = {argv[2], help_flag.data()};
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(static_cast<int>(arguments.size()), arguments.data());
    names.push_back(command.name);
  }
  const std::string near = closest_name(name, names);
  throw Error(ErrorKind::kUsage,
              name.empty() ? "missing command" : (name[0] == '-' ? "unknown option " : "unknown command ") + name,
              near.empty() ? "one of " + join(names) + "; see automap-search --help" : "did you mean " + near + "?");
}

void ModelOptions::declare(OptionTable* table) {
  table->group("Input");
  table
      ->positional(
          &path, "MODEL",
          "HLO in any form (text, binary or JSON protobuf), gzipped or not, a config.json, or a published model's "
          "name; - reads standard input")
      .reads_file()
      .required();
  profile::declare_description(*table, &step);
  table
      ->add_flag(&as_is, "as-is",
                 "take a module that XLA or shard_map has partitioned already as what it is, one device's part")
      .advanced();
  table->add(&variables, "variables", "the trained parameters, one per line or JSON")
      .reads_file()
      .metavar("FILE")
      .shown_default("found by data flow");
}

void PricingOptions::declare(OptionTable* table) {
  cluster = kDefaultCluster;
  table->group("Machines");
  table->add(&cluster, "cluster", "a preset (" + join(machine::cluster_preset_names()) + ") or a JSON file")
      .reads_file()
      .suggestions(machine::cluster_preset_names())
      .metavar("CLUSTER")
      .traits(kInProvenance);
  table->add(&device, "device", "reference device for the times: a name or a file")
      .reads_file()
      .metavar("DEVICE")
      .shown_default("the cluster's first")
      .traits(kInProvenance);
  table
      ->add_flag(&overlap, "overlap",
                 "estimate the step with collectives beside compute that does not wait for them, instead of added up")
      .traits(kInProvenance);
}

void PricingOptions::as_planned(const OptionTable& table, const std::string& name,
                                const std::map<std::string, std::string>& provenance) {
  if (table.source_of("cluster") != "default") return;
  const auto noted = [&](const char* key) {
    const auto found = provenance.find(key);
    return found == provenance.end() ? std::string() : found->second;
  };
  const std::string asked = noted("option_cluster").empty() ? name : noted("option_cluster");
  if (asked.empty()) return;
  std::string why = "is no preset and no file here";
  // A name inside a file opens regular files alone: nothing that waits.
  const auto is_at_hand = [](const std::string& file, const std::vector<std::string>& names) {
    std::error_code none;
    return std::find(names.begin(), names.end(), file) != names.end() || std::filesystem::is_regular_file(file, none);
  };
  const auto is_named = [](const std::string& text) {
    try {
      return machine::cluster_by_name(text).has_value();
    } catch (const Error&) {
      return false;
    }
  };
  if (is_named(asked) || is_at_hand(asked, {})) {
    try {
      const std::string sha256 = sha256_hex(to_json_text(machine::load_cluster(asked)));
      const std::string planned = noted("cluster_sha256");
      if (planned.empty() || planned == sha256) {
        cluster = asked;
        planned_ = true;
        const std::string planned_device = noted("option_device");
        if (table.source_of("device") == "default" && is_at_hand(planned_device, machine::device_names_and_aliases()))
          device = planned_device;
        return;
      }
      why = "has changed since";
    } catch (const Error& e) {
      why = std::string("cannot be read: ") + e.what();
    }
  }
  log_warning("the plan's cluster " + asked + " " + why + ": times are for " + cluster +
              "; --cluster FILE says which others");
}

machine::Cluster PricingOptions::cluster_for(const OptionTable& table, int devices) const {
  machine::Cluster out = machine::load_cluster(cluster);
  if (planned_ || table.source_of("cluster") != "default" || out.num_devices() >= devices) return out;
  machine::ServerGroup& servers = out.servers.front();
  out.servers.resize(1);
  servers.count = (devices + servers.devices - 1) / servers.devices;
  log_info("no --cluster: times are for " + std::to_string(servers.count) + " servers as those of " + out.name);
  return out;
}

LoadedModel load_sharding_model(const ModelOptions& options, int shards) {
  LoadedModel out;
  sharding::ModelOptions model;
  model.shards = shards;
  // Before the model, which may be large.
  if (!options.variables.empty()) {
    out.variables = std::make_unique<std::vector<graph::VariableRequest>>(graph::load_variable_list(options.variables));
    model.variables = out.variables.get();
  }
  load_module(options, &out);
  out.model = std::make_unique<sharding::ShardingModel>(sharding::ShardingModel::build(out.module->graph, model));
  return out;
}

LoadedStep load_training_step(const ModelOptions& options) {
  LoadedStep out;
  std::vector<graph::VariableRequest> variables;
  // Before the model, which may be large.
  if (!options.variables.empty()) variables = graph::load_variable_list(options.variables);
  load_module(options, &out);
  graph::TrainingStepOptions step_options;
  if (!options.variables.empty()) step_options.variables = &variables;
  out.step = graph::analyze_training_step(out.module->graph, step_options);
  return out;
}

std::map<std::string, std::string> plan_provenance(const LoadedModule& loaded, const machine::Cluster& cluster,
                                                   const machine::DeviceModel& device, const OptionTable& table) {
  std::map<std::string, std::string> out = table.provenance();
  note_model(loaded.form, loaded.module->sha256, cluster, device, &out);
  return out;
}

void note_model(const std::string& form, const std::string& sha256, const machine::Cluster& cluster,
                const machine::DeviceModel& device, std::map<std::string, std::string>* provenance) {
  auto& out = *provenance;
  out["model_form"] = form;
  out["model_sha256"] = sha256;
  out["cluster_sha256"] = sha256_hex(to_json_text(cluster));
  out["reference_device"] = device.name;
}

void OutputFiles::add(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  if (path == "-" && json_) {
    throw Error(ErrorKind::kUsage, "--json and " + option + " - both want standard output", "give one of them a file");
  }
  if (path == "-") on_standard_output_ = true;
  paths_.push_back(path);
  files_[option] = &outputs_.add(path);
}

void OutputFiles::write(const std::string& option, const std::string& bytes) {
  files_.at(option)->write(bytes);
}

void OutputFiles::commit() {
  outputs_.commit();
  for (const std::string& path : paths_) {
    if (path != "-") log_info("wrote " + path);
  }
}

void OutputFiles::publish(const std::string& json, const std::function<std::string()>& report,
                          const std::vector<std::string>& warnings) {
  if (wanted("-o")) write("-o", json);
  prepare();
  if (json_) {
    print_exact(json);
  } else if (shows_report()) {
    print_report(report());
  }
  commit();
  for (const std::string& warning : warnings) log_warning(warning);
}

double parse_bytes(const std::string& text, const std::string& option) {
  static const std::pair<const char*, double> kUnits[] = {{"", 1},
                                                          {"B", 1},
                                                          {"kB", 1e3},
                                                          {"MB", 1e6},
                                                          {"GB", 1e9},
                                                          {"TB", 1e12},
                                                          {"KiB", 1024.0},
                                                          {"MiB", 1024.0 * 1024},
                                                          {"GiB", 1024.0 * 1024 * 1024},
                                                          {"TiB", 1024.0 * 1024 * 1024 * 1024}};
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  if (status == std::errc() && std::isfinite(value) && value > 0) {
    for (const auto& [name, scale] : kUnits) {
      if (unit == name) return value * scale;
    }
  }
  throw Error(ErrorKind::kUsage, option + ": found '" + text + "', expected on, off or a size such as 16GiB or 800MB");
}

}  // namespace automap::search
