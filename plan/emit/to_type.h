// The words that a person types to run a plan in a framework: the arguments of its launcher, or the files that it
// reads. One row for each framework of the frameworks' table (plan/planners/frameworks.h), which says what it can run;
// automap-emit writes them, and automap-infer ends its report with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "plan/emit/framework_plan.h"
#include "plan/emit/versions.h"

namespace automap::emit {

struct EmittedFile {
  std::string beside;  // "" of the main file; else what it is, and its kind: "stages.py" is ds_stages.py of ds.json
  std::string text;
  std::string what() const { return beside.substr(0, beside.find('.')); }  // "stages"
};
// The path of a file beside the main file: a name that Python can import.
std::string path_beside(const std::string& main_path, const std::string& beside);

struct Emitted {
  std::vector<std::string> launch;     // the words in front of the arguments: "torchrun --nnodes 2 ... pretrain_gpt.py"
  std::vector<std::string> arguments;  // of the framework, one word each, without quotes
  std::vector<EmittedFile> files;      // the first holds the arguments, in the framework's own form
  std::string with_file;               // what is typed instead of them where they stand in FILE: "$(cat FILE)"
  bool needs_file = false;             // the arguments leave out what only FILE can say
  std::vector<std::string> missing;    // what is left to do, one sentence each
  Inexpressible cannot;                // beyond what the frameworks' table says; the rest is empty then
};

struct EmitOptions {
  std::string layers;  // --layers: what the model calls the layers of its stack, "h.{i}"
  FrameworkVersion version = {};
  std::string file = "FILE";  // where the main file is written, for what names those beside it
};

// True if the framework has an emitter: all but `any`.
bool emits(const planners::Framework& framework);
std::vector<std::string> emitted_frameworks();  // their names
Emitted emit_for(const FrameworkPlan& plan, const EmitOptions& options);

// The name of the user's own program, for frameworks that are used by one.
constexpr const char* kUsersProgram = "train.py";

// The words for the end of a report, and the `to_type` of its JSON.
pipeline::PlanToType to_type(const planners::Framework& framework, const pipeline::PlanDocument& document,
                             const PlanFacts& facts, const EmitOptions& options = {});
// The same for people, in a few lines. `plan_file`: the file that the plan is written to; empty: none. With `details`
// it also says what the user has to do. `step_ms`: of the plan, to compare with the plan that is told instead.
std::string to_type_text(const pipeline::PlanToType& told, const std::string& plan_file, double step_ms, bool details);

// The reason why the framework runs no pipeline of ours of a model, and a hint: nothing but plans of one stage can be
// typed then. Empty: it does.
Inexpressible pipeline_fault(const planners::Framework& framework, const architecture::ModelSizes& sizes);

// The framework whose words the user of a module knows: of a module that JAX made maxtext, of one of PyTorch
// torchtitan, which train decoders, and of other models jax and torch; null: not known.
const planners::Framework* framework_of(const graph::Graph& graph, bool decoder);

// One file for each framework (megatron.cpp, ...).
Emitted emit_megatron(const FrameworkPlan& plan, const FrameworkVersion& version);
Emitted emit_torchtitan(const FrameworkPlan& plan, const EmitOptions& options);
// The name that MaxText has for a published model ("llama3.1-405b" for "llama3-405b"); empty: none.
std::string maxtext_name(const std::string& published);
// The reason why MaxText's pipelines of a published model are none of ours, and a hint; empty: they are.
Inexpressible maxtext_pipeline_fault(const architecture::ModelSizes& sizes);
Emitted emit_maxtext(const FrameworkPlan& plan, const FrameworkVersion& version);
Emitted emit_deepspeed(const FrameworkPlan& plan, const EmitOptions& options);
Emitted emit_torch(const FrameworkPlan& plan, const std::string& layers);
Emitted emit_jax_mesh(const FrameworkPlan& plan);

// The note on a plan whose gradients are summed behind the backward pass, for frameworks that cannot be told to do so.
constexpr const char* kSumsBeside =
    "a plan for --gradient-sync overlap: gradients are summed beside the backward pass here";

// What is left to do begins so where a word of the line, N, stands for it, which nothing runs without.
constexpr const char* kFillIn = "N is the ";

// "torchrun --nnodes 2 --nproc-per-node 8", and the missing words where there are several servers, or they are not
// known.
std::vector<std::string> torchrun_words(const FrameworkPlan& plan, std::vector<std::string>* missing);

// The servers of the cluster that are used, where they are not the first ones in their order, and their devices, where
// they are not the first ones, or are some of many and the program `takes_all` that it sees: a sentence each.
std::vector<std::string> server_texts(const FrameworkPlan& plan);
std::vector<std::string> device_texts(const FrameworkPlan& plan, bool takes_all = false);

}  // namespace automap::emit
