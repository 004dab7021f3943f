// automap-emit: a plan as the arguments and files that a framework takes. Parses, calls, writes.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/printable.h"
#include "common/machine/cluster.h"
#include "common/machine/cluster_names.h"
#include "common/pipeline/plan_json.h"
#include "infer/input.h"
#include "infer/plan_file.h"
#include "plan/emit/emit_sdy.h"
#include "plan/emit/program/nearest.h"
#include "plan/emit/quote.h"
#include "plan/emit/to_type.h"
#include "plan/planners/layers.h"
#include "plan/programs/programs.h"
#include "profile/profile_hlo.h"

namespace {

using namespace automap;
using emit::Emitted;
using emit::Inexpressible;
using pipeline::PlanDocument;

constexpr const char *kPrograms = "hlo", *kStableHlo = "stablehlo";

struct EmitProgramOptions {
  std::string plan, model, cluster, to, output, layers, kind, version;
  bool json = false;
};

void declare(OptionTable& table, EmitProgramOptions& o) {
  table.example("automap-infer fixtures/hlo/gpt2.hlo.gz --cluster a100-2x8 --batch 256 --for megatron -o plan.json",
                "a plan that Megatron-LM can run");
  table.example("automap-emit plan.json --to megatron | tee megatron.args",
                "its arguments; then torchrun ... pretrain_gpt.py $(cat megatron.args)");
  table.example("automap-emit plan.json --to deepspeed --layers 'layers.{i}' --json",
                "the same plan for DeepSpeed, what is missing beside it");
  table.example("automap-infer fixtures/hlo/gpt2.hlo.gz --cluster a100-2x8 --layout \"$(cat megatron.args)\"",
                "what a step of such arguments takes");
  table
      .positional(&o.plan, "PLAN",
                  "a plan that automap-infer wrote (-o), best with --for the framework; - reads standard input")
      .reads_file()
      .required();
  std::vector<std::string> to = emit::emitted_frameworks();
  to.emplace_back(kPrograms);
  to.emplace_back(kStableHlo);
  table
      .add(&o.to, "to",
           "the framework whose words are written: docs/frameworks.md says what each can run; hlo: the programs of "
           "every stage, with the order they run in (automap run executes them); stablehlo: the same as StableHLO "
           "(needs a "
           "Python with jax)")
      .choices(to)
      .metavar("FRAMEWORK")
      .required();
  table
      .add(&o.version, "framework-version",
           "the version of the framework whose words are written: of megatron that of core; what is not known is "
           "refused, with what is")
      .no_file()
      .metavar("VERSION")
      .shown_default("the newest that is known");
  table
      .add(&o.output, "output",
           "write them to FILE, and what needs a file of its own beside it (of FILE.json FILE_stages.py, of FILE.toml "
           "FILE_schedule.csv); - is "
           "standard output")
      .writes_file()
      .shorthand('o')
      .metavar("FILE")
      .shown_default("standard output");
  table
      .add(
          &o.model, "model",
          "the model that the plan is of: its layers are looked up again, and where the framework cannot run the plan, "
          "the nearest that it can is looked for")
      .reads_file()
      .metavar("MODULE");
  table.add(&o.cluster, "cluster", "where the plan runs: a preset or a JSON file")
      .reads_file()
      .metavar("CLUSTER")
      .shown_default("the plan's: by its name, or from its file where that is still there");
  table
      .add(&o.layers, "layers",
           "what your model calls the layers of its stack, {i} their number from 0: \"h.{i}\"; for torch, torchtitan "
           "and deepspeed")
      .no_file()
      .metavar("NAME")
      .shown_default("as the module has them");
  table
      .add(&o.kind, "kind",
           "instead of the plan, the plan of this kind that its file has beside it (automap-infer --explore): "
           "\"interleaved 1F1B (even)\"; needs --model")
      .no_file()
      .metavar("KIND");
  table.epilog(
      "Exit codes: 0 written, 2 wrong usage or a plan that the framework cannot run, 3 bad input or output. Nothing is "
      "written where anything is wrong.");
  table.add_common(&o.json);
}

void check_layers_option(const std::string& layers) {
  if (layers.empty()) return;
  const std::size_t at = layers.find("{i}");
  if (at != std::string::npos && layers.find("{i}", at + 1) == std::string::npos) return;
  throw Error(ErrorKind::kUsage, "--layers: found '" + layers + "', expected a name with {i} once",
              "for example --layers \"layers.{i}\"");
}

// The word that finds the plan's cluster: the given one, its name, or the file that it was read from, where that is
// still there. Empty: none.
std::string cluster_word(const EmitProgramOptions& o, const PlanDocument& document) {
  if (!o.cluster.empty()) return o.cluster;
  const auto file = document.provenance.find("cluster_file");
  if (file == document.provenance.end()) {
    return machine::cluster_by_name(document.cluster) ? document.cluster : std::string();
  }
  std::error_code failed;
  return std::filesystem::is_regular_file(file->second, failed) ? file->second : std::string();
}

// The cluster that `word` finds; nothing: it is not known any more, or has changed.
std::optional<machine::Cluster> cluster_of(const EmitProgramOptions& o, const std::string& word,
                                           const PlanDocument& document) {
  const auto unknown = [&](const char* why) {
    log_warning("the servers of the plan are not known: its cluster, " + printable(document.cluster) + ", " + why +
                "; give --cluster");
    return std::nullopt;
  };
  if (word.empty()) return unknown("is in no file that is here");
  machine::Cluster cluster = machine::load_cluster(word);
  const auto hash = document.provenance.find("cluster_sha256");
  const bool same = hash == document.provenance.end() || hash->second == sha256_hex(to_json_text(cluster));
  int last = document.num_devices;
  for (const pipeline::PlanStage& stage : document.stages) {
    for (const int device : stage.device_numbers) last = std::max(last, device);
  }
  if (o.cluster.empty()) {
    if (same && last <= cluster.num_devices()) return cluster;
    return unknown("has changed since");
  }
  if (cluster.num_devices() < last) {
    throw Error(ErrorKind::kUsage,
                "--cluster: " + cluster.name + " has " + std::to_string(cluster.num_devices()) + " devices, " + o.plan +
                    " is a plan for " + std::to_string(last),
                "give the cluster that the plan was made for");
  }
  if (!same) log_warning(o.plan + " was made for another cluster (" + printable(document.cluster) + ")");
  return cluster;
}

// The layers at the plan's cuts: as its file says, or from the model.
std::optional<pipeline::LayerSplit> layers_of(const PlanDocument& document, const infer::PlanInput* input) {
  if (input != nullptr) return planners::layers_at_cuts(input->profile, document.plan.cuts);
  if (document.layer_split && document.layer_split->cuts == document.plan.cuts) return document.layer_split;
  return std::nullopt;
}

// The plan of the kind that is asked for. Throws Error(kUsage) where the file has none, or none that can be written.
const pipeline::PlanCorner& corner_of(const EmitProgramOptions& o, const PlanDocument& document) {
  std::vector<std::string> names;
  for (const pipeline::PlanCorner& corner : document.corners) {
    if (corner.fits && !corner.chunk_cuts.empty() && corner.stage_widths.empty()) names.push_back(corner.name);
    if (corner.name != o.kind || !corner.fits) continue;
    if (corner.chunk_cuts.empty() || !corner.stage_widths.empty()) {
      throw Error(ErrorKind::kUsage, "--kind " + o.kind + ": its file has no cuts of it",
                  corner.layout.empty() ? "plan it alone"
                                        : "automap-infer MODEL --layout " + corner.layout + " -o FILE plans it alone");
    }
    if (o.model.empty()) {
      throw Error(ErrorKind::kUsage, "--kind needs the model to know the layers at its cuts", "give --model MODULE");
    }
    if ((corner.chunk_cuts.size() + 1) % static_cast<std::size_t>(corner.stages) != 0 ||
        corner.devices % (corner.stages * corner.width) != 0) {
      throw Error(ErrorKind::kData, input_name(o.plan) + ": corners: '" + o.kind + "' has stages that are not alike",
                  "plan it again");
    }
    return corner;
  }
  throw Error(ErrorKind::kUsage, "--kind: " + input_name(o.plan) + " has no plan of the kind '" + o.kind + "'",
              names.empty() ? "plan with --explore on" : "it has " + join(names));
}

bool to_a_file(const EmitProgramOptions& o) {
  return !o.output.empty() && o.output != "-";
}

// Writes all files or none.
void write_files(const EmitProgramOptions& o, const Emitted& emitted) {
  if (!to_a_file(o)) {
    if (emitted.files.size() > 1) {
      throw Error(ErrorKind::kUsage, "--to " + o.to + " writes several files of this plan, not to standard output",
                  "give -o FILE");
    }
    print_exact(emitted.files.front().text);
    return;
  }
  OutputSet outputs;
  std::vector<AtomicFile*> files;
  for (const emit::EmittedFile& file : emitted.files) {
    files.push_back(&outputs.add(file.beside.empty() ? o.output : emit::path_beside(o.output, file.beside)));
  }
  for (std::size_t i = 0; i < files.size(); ++i) files[i]->write(emitted.files[i].text);
  outputs.prepare();
  outputs.commit();
}

// All but the manifest, which is the last.
void to_stablehlo(const emit::SdyBridge& bridge, std::vector<programs::ProgramFile>* files) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (std::size_t i = 0; i + 1 < files->size(); ++i) texts.emplace_back((*files)[i].name, (*files)[i].text);
  const std::vector<std::string> made = bridge.translate(texts);
  for (std::size_t i = 0; i < made.size(); ++i) (*files)[i].text = made[i];
}

// The programs of every stage, all files or none.
int emit_programs(const EmitProgramOptions& o, const PlanDocument& document) {
  if (o.model.empty() || !to_a_file(o)) {
    throw Error(ErrorKind::kUsage, "--to " + o.to + " needs the model that is cut, and a folder for its programs",
                "automap emit PLAN --model MODULE --to " + o.to + " -o DIR");
  }
  if (o.json || !o.kind.empty() || !o.version.empty() || !o.layers.empty()) {
    throw Error(ErrorKind::kUsage, "--to " + o.to + " has no --json, --kind, --layers or --framework-version",
                "leave it out; manifest.json in the folder says everything");
  }
  std::optional<emit::SdyBridge> bridge;
  if (o.to == kStableHlo) bridge.emplace("--to stablehlo", "--to hlo, which automap run executes as well");
  const hlo::HloModule module =
      profile::load_whole_model(o.model, "give the model's HLO: programs are cut out of it", std::nullopt).module;
  std::vector<programs::ProgramFile> files =
      programs::program_files(document, input_name(o.plan), module, input_name(o.model), bridge ? ".mlir" : ".hlo.txt");
  if (bridge) to_stablehlo(*bridge, &files);
  OutputSet outputs;
  programs::write_into(o.output, files, &outputs);
  outputs.prepare();
  outputs.commit();
  log_info("run it with: automap run " + emit::shell_word(o.output) + " --check");
  return 0;
}

std::string emitted_json(const EmitProgramOptions& o, const Emitted& emitted) {
  Json files = Json::object();
  for (const emit::EmittedFile& file : emitted.files) files[file.beside.empty() ? "main" : file.what()] = file.text;
  return json_text({{"framework", o.to},
                    {"version", o.version.empty() ? Json() : Json(o.version)},
                    {"launch", emitted.launch},
                    {"arguments", emitted.arguments},
                    {"missing", emitted.missing},
                    {"files", files}});
}

int emit_main(int argc, char** argv) {
  EmitProgramOptions o;
  OptionTable table("emit",
                    "write a plan as the arguments and files that a training framework takes, or as programs that run");
  declare(table, o);
  if (!table.parse(argc, argv)) return 0;
  check_layers_option(o.layers);
  if (o.to == kPrograms || o.to == kStableHlo) return emit_programs(o, pipeline::load_plan(o.plan));
  const planners::Framework& framework = planners::find_framework(o.to);
  emit::EmitOptions words;
  words.layers = o.layers;
  if (to_a_file(o)) words.file = o.output;
  if (!o.version.empty()) words.version = emit::version_asked(framework, o.version);
  const PlanDocument document = pipeline::load_plan(o.plan);
  // Before the model is read.
  const pipeline::PlanCorner* corner = o.kind.empty() ? nullptr : &corner_of(o, document);
  const std::string where = cluster_word(o, document);
  const std::optional<machine::Cluster> cluster = cluster_of(o, where, document);
  std::optional<emit::AskedAgain> again;
  if (!o.model.empty()) {
    again.emplace(emit::ask_again(document, input_name(o.plan), o.model, cluster, where, framework));
  }
  const std::optional<pipeline::LayerSplit> layers =
      corner != nullptr ? planners::layers_at_cuts(again->input.profile, corner->chunk_cuts)
                        : layers_of(document, again ? &again->input : nullptr);

  emit::PlanFacts facts;
  facts.layers = layers ? &*layers : nullptr;
  facts.cluster = cluster ? &*cluster : nullptr;
  const auto option = document.provenance.find("option_sequence_parallel");
  facts.sequence_parallel = option == document.provenance.end() || option->second != "off";
  emit::FrameworkPlan plan;
  Inexpressible cannot = corner != nullptr ? framework_plan(framework, document, *corner, facts, &plan)
                                           : framework_plan(framework, document, facts, &plan);
  Emitted emitted;
  if (cannot.what.empty()) {
    emitted = emit_for(plan, words);
    cannot = emitted.cannot;
  }
  if (!cannot.what.empty()) {
    throw Error(ErrorKind::kUsage,
                input_name(o.plan) + ": " + framework.name + " cannot run " + cannot.what + "; nothing was written",
                corner != nullptr ? cannot.hint
                : again           ? nearest_text(*again, document, words)
                                  : cannot.hint + "; --model MODULE finds the nearest");
  }
  if (o.json) {
    print_exact(emitted_json(o, emitted));
    if (to_a_file(o)) write_files(o, emitted);
    return 0;
  }
  write_files(o, emitted);
  if (!emitted.launch.empty() && to_a_file(o)) {
    std::string behind = emitted.with_file;
    if (const std::size_t at = behind.find("FILE"); at != std::string::npos) {
      behind.replace(at, 4, emit::shell_word(o.output));
    }
    log_info("start it with " + printable(emit::shell_line(emitted.launch) + (behind.empty() ? "" : " ") + behind));
  }
  for (const emit::EmittedFile& file : emitted.files) {
    if (file.beside.empty() || !to_a_file(o)) continue;
    log_info("and: " + printable(emit::path_beside(o.output, file.beside)) + " is written beside it");
  }
  for (const std::string& missing : emitted.missing) log_info("and: " + missing);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, emit_main);
}
