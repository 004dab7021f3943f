// A pipeline plan in the form that frameworks take: one mesh of stages, replicas and the devices of a replica.
// to_type.h writes everything from this alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/architecture/model.h"
#include "common/machine/cluster.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/plan_json.h"
#include "plan/planners/frameworks.h"

namespace automap::emit {

// The layers of one part of the model (one part for each stage and chunk), by the names of the module.
struct FrameworkStage {
  std::vector<std::string> layers;   // that begin in it, in the model's order
  std::vector<std::string> modules;  // those of them that hold variables
};

// A server of the cluster that a plan uses.
struct UsedServer {
  int number = 1;            // of the cluster's servers, from 1
  int has = 0;               // devices
  std::vector<int> devices;  // of them that the plan stands on, from 0, in its order
};

struct FrameworkPlan {
  const planners::Framework* framework = nullptr;
  std::string model;
  architecture::ModelSizes sizes;  // of a model that was described
  int stages = 1, replicas = 1, width = 1;
  int chunks = 1;                  // parts of the model on each stage's devices
  std::vector<int> stage_of_part;  // [S chunks], from 0
  int devices() const { return stages * replicas * width; }
  int zero = 0;                 // of replicas beyond one
  std::vector<bool> recompute;  // [S]
  bool recompute_any() const;
  bool sequence_parallel = false;  // what lies between split products of a replica is split, too
  bool overlap = false;            // gradients are summed beside the last backward
  pipeline::Schedule schedule = pipeline::Schedule::k1f1b;
  // The order of work of each stage's devices; empty: that of the framework's own schedule of this name.
  pipeline::WorkOrder order;
  int micro_batches = 1;
  std::int64_t samples = 1;  // of one micro-batch in one replica
  std::int64_t batch() const { return samples * replicas * micro_batches; }
  std::vector<UsedServer> servers;  // in the plan's order; empty: not known
  // Its devices, from 0; empty: the first of the cluster.
  std::vector<int> chosen_devices;
  std::vector<FrameworkStage> parts;  // [S chunks]; empty: one stage, or not known
  std::vector<std::string> stacks;    // the model's numbered stacks of layers; empty: not known
  // The variables, and along which dimension the devices of a replica hold them in parts; -1: whole. Empty: a replica
  // is one device, or not known.
  std::vector<std::pair<std::string, int>> split;
  bool shares_variables = false;  // stages hold the same variables, and sum their gradients
};

// The number of used devices in each server.
std::vector<int> used_of_servers(const FrameworkPlan& plan);

// True if the numbers are from, from + 1, ...; and the numbers as "2, 3".
bool are_first(const std::vector<int>& numbers, int from = 0);
std::string numbers_text(const std::vector<int>& numbers, const char* between = ", ");

// The reason why a framework cannot run a plan, or cannot be told it: the end of "NAME cannot run ...", and a hint.
struct Inexpressible {
  std::string what;  // empty: it is expressed
  std::string hint;
};

// Facts about a plan beside its document.
struct PlanFacts {
  const pipeline::LayerSplit* layers = nullptr;  // what stands at its cuts; null: they do not all lie between layers
  const machine::Cluster* cluster = nullptr;     // null: not known
  bool sequence_parallel = true;                 // --sequence-parallel is not off
};

// The sizes of a model as the provenance of its plan keeps them: model_published, model_sequence, model_layers, ...
void keep_sizes(const architecture::ModelSizes& sizes, pipeline::PlanDocument* document);

// Fills `out` and returns an empty Inexpressible, or the part of the plan that the framework (by its table) cannot run.
Inexpressible framework_plan(const planners::Framework& framework, const pipeline::PlanDocument& document,
                             const PlanFacts& facts, FrameworkPlan* out);

// The framework's form of a plan of even groups beside the document's own (`corner`: interleaved 1F1B); facts.layers
// stand at its chunk_cuts.
Inexpressible framework_plan(const planners::Framework& framework, const pipeline::PlanDocument& document,
                             const pipeline::PlanCorner& corner, const PlanFacts& facts, FrameworkPlan* out);

// The number of layers of the model's one stack in each part. Each part but the first must begin with a layer of it,
// or, the last ones, with the part of the model right behind it. `why`: why this is not so, as the end of "cannot run
// ...".
struct StackCounts {
  std::vector<int> counts;  // [S chunks]
  int layers = 0;           // of all
  std::string why;
};
StackCounts stack_counts(const FrameworkPlan& plan);

// The modules of each stage as PyTorch calls them ("h.5"). `layers` is a name with "{i}" for the number of a layer of
// the model's stack, from 0; empty: as the model has it. `why`: no such names, as above.
struct ModulePaths {
  std::vector<std::vector<std::string>> stages;  // [S chunks]
  Inexpressible why;
  std::string note;  // what is left to see to, a sentence; empty: nothing
};
enum class ModuleNames {
  kPaths,  // paths of PyTorch alone
  kAny     // what is no path stands as the model has it
};
ModulePaths module_paths(const FrameworkPlan& plan, const std::string& layers, ModuleNames names = ModuleNames::kPaths);

}  // namespace automap::emit
