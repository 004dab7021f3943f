// The commands of automap-search: opp, adp, apply, propagate, explain, explore, compare, placement, soap, heuristics.
// Each has one table of options and one function.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/architecture/model.h"
#include "common/base/files.h"
#include "common/base/options.h"
#include "common/graph/training_step.h"
#include "common/hlo/hlo_reader.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"

namespace automap::search {

constexpr int kMostShards = 1000000;

// `automap-search COMMAND ...`: runs one of the commands below, answers --help and --version. The body of run_main.
int search_main(int argc, char** argv);

// argv[0] is the command.
int opp_command(int argc, char** argv);
int adp_command(int argc, char** argv);
int apply_command(int argc, char** argv);
int propagate_command(int argc, char** argv);
int explain_command(int argc, char** argv);
int soap_command(int argc, char** argv);
int heuristics_command(int argc, char** argv);
// Goes on as automap-infer, whose explorer it is.
int explore_command(int argc, char** argv);
int pipeline_command(int argc, char** argv);
// Goes on as automap-compare.
int compare_command(int argc, char** argv);
// Places a workload with times, or a model.
int placement_command(int argc, char** argv);

// MODEL and --variables, which every command has.
struct ModelOptions {
  std::string path, variables;
  bool as_is = false;
  architecture::StepOptions step;
  void declare(OptionTable* table);
};

// --cluster and --device: the machines that times and memory are for; --overlap: how a step's times add up.
struct PricingOptions {
  std::string cluster, device;
  bool overlap = false;
  void declare(OptionTable* table);
  // The machines that a stored plan is for, where none are asked for. Where they are not to be had: a warning.
  void as_planned(const OptionTable& table, const std::string& name,
                  const std::map<std::string, std::string>& provenance);
  // The cluster for a plan over so many devices: the default one gets as many servers as that takes.
  machine::Cluster cluster_for(const OptionTable& table, int devices) const;

 private:
  bool planned_ = false;
};

// The module that was read. The graph stays in place when the struct moves.
struct LoadedModule {
  std::string source, name;  // for errors; for people
  std::string form;          // "HLO text", "config.json"
  std::unique_ptr<hlo::HloModule> module;
};

struct LoadedModel : LoadedModule {
  std::unique_ptr<std::vector<graph::VariableRequest>> variables;
  std::unique_ptr<sharding::ShardingModel> model;
};
// Throws as profile::load_model, graph::load_variable_list and ShardingModel::build.
LoadedModel load_sharding_model(const ModelOptions& options, int shards);

// The same for commands that look at the step instead.
struct LoadedStep : LoadedModule {
  graph::TrainingStep step;
};
// Throws as profile::load_model, graph::load_variable_list and graph::analyze_training_step.
LoadedStep load_training_step(const ModelOptions& options);
// The provenance of a plan for the module: programs, model, cluster, reference device, and the values of options that
// are kInProvenance.
std::map<std::string, std::string> plan_provenance(const LoadedModule& loaded, const machine::Cluster& cluster,
                                                   const machine::DeviceModel& device, const OptionTable& table);
// Adds the model and the machines to a plan's provenance.
void note_model(const std::string& form, const std::string& sha256, const machine::Cluster& cluster,
                const machine::DeviceModel& device, std::map<std::string, std::string>* provenance);

// The files that a command writes, opened before the work, so that a file that cannot be written is refused at once;
// nothing is there before commit(), and then all of it.
class OutputFiles {
 public:
  // Throws Error(kUsage) when one of them and --json want standard output, and what AtomicFile throws.
  explicit OutputFiles(bool json) : json_(json) {}
  // `option` names it in errors ("--emit-hlo"); an empty path is no output.
  void add(const std::string& option, const std::string& path);
  bool wanted(const std::string& option) const { return files_.count(option) > 0; }
  bool any() const { return !files_.empty(); }
  // True if a file is written to standard output: then no report is printed.
  bool on_standard_output() const { return on_standard_output_; }
  // True if publish() shows a person the report.
  bool shows_report() const { return !json_ && !on_standard_output_; }
  void write(const std::string& option, const std::string& bytes);
  // Does everything that can fail, so that the report is printed only when nothing has failed.
  void prepare() { outputs_.prepare(); }
  void commit();
  // The end of a command whose answer is a plan: its document to the file of "-o", and printed where --json asks for
  // it; else the report, which is not made where standard output belongs to a file; then the files and the warnings.
  void publish(const std::string& json, const std::function<std::string()>& report,
               const std::vector<std::string>& warnings);

 private:
  bool json_ = false, on_standard_output_ = false;
  OutputSet outputs_;
  std::map<std::string, AtomicFile*> files_;
  std::vector<std::string> paths_;  // in the order given
};

// "on", "off", or bytes: "16GiB", "12.5e9", "800MB" -> bytes. Throws Error(kUsage) naming `option`.
double parse_bytes(const std::string& text, const std::string& option);

}  // namespace automap::search
