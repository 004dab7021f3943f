// automap-compare: published planners and ours on one model and cluster. Parses, calls, prints.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/text_table.h"
#include "common/machine/cluster.h"
#include "common/machine/link_kinds.h"
#include "compare/report.h"
#include "infer/input.h"
#include "infer/options.h"
#include "plan/systems/placement/workload_json.h"
#include "plan/systems/systems.h"
#include "profile/description_options.h"

namespace {

using namespace automap;
using namespace automap::compare;
using systems::all_systems;
using systems::Question;
using systems::systems_of;

// The question: a model on a cluster, or a workload, which includes its machine.
struct Asked {
  std::string source;
  std::optional<placement::Workload> workload;
  std::optional<machine::Cluster> cluster;
  std::optional<infer::PlanInput> input;

  Question question(const infer::InferOptions& options) const {
    Question out;
    if (workload) {
      out.plan.request = infer::make_request(options);
      out.workload = &*workload;
      return out;
    }
    out.plan = infer::make_question(options, input->profile, *cluster);
    out.plan.beside = {};
    out.module = input->module.get();
    const std::vector<planners::StepSize> sizes =
        planners::step_sizes(out.plan.step, input->profile, out.plan.options.replicas);
    if (!sizes.empty()) out.batch = sizes.front().batch();
    return out;
  }

  Compared head(const Question& question) const {
    Compared out;
    out.workload = workload.has_value();
    out.batch = question.batch;
    out.model = workload ? source : input->profile.model;
    out.cluster = workload
                      ? plural(workload->accelerators, "accelerator") + " and " + plural(workload->cpus, "CPU core")
                      : cluster->name;
    return out;
  }
};

constexpr OptionTraits kOfModels = kFirstOwnTrait;  // a workload says it itself

Asked read_question(infer::InferOptions& options) {
  Asked out;
  out.source = input_name(options.input.path);
  std::string bytes = infer::read_model_bytes(options.input.path);
  const std::string text = is_gzip(bytes) ? gunzip_if_gzip(bytes, out.source) : std::string();
  const std::string& plain = text.empty() ? bytes : text;
  if (placement::looks_like_workload(plain)) {
    placement::WorkloadFile file = placement::parse_workload(plain, out.source);
    placement::check_workload(file.workload, out.source);
    for (const std::string& warning : file.warnings) log_warning(warning);
    out.workload = std::move(file.workload);
    return out;
  }
  if (options.cluster.empty()) {
    throw Error(ErrorKind::kUsage, "missing option --cluster: a model is planned for machines",
                "one of " + join(machine::cluster_preset_names()) + ", or a JSON file");
  }
  out.cluster = machine::with_link_kinds(machine::load_cluster(options.cluster));
  options.input.keep_module = true;
  out.input = infer::read_input(options.input, *out.cluster, std::move(bytes));
  if (out.input->profile.forward_fraction >= 1) {
    throw Error(ErrorKind::kData, options.input.path + ": no training step: it has no backward pass to plan",
                "export a step that computes gradients and updates (docs/getting-hlo.md)");
  }
  return out;
}

int compare_main(int argc, char** argv) {
  infer::InferOptions options;
  std::string names = "all", html;
  options.time_limit_s = 60;
  OptionTable table("compare", "the plans of published systems and ours, for one model on one cluster");
  table.example("automap-compare fixtures/hlo/gpt2.hlo.gz --cluster a100-2x8", "all systems");
  table.example("automap-compare fixtures/hlo/vgg19.hlo.gz --cluster h100-2x8 --systems automap,alpa --html page.html",
                "two of them, and a page with a picture");
  table.example(
      "automap-compare fixtures/hlo/tiny_mlp.hlo --cluster config-a --batch 512 --systems automap,pipedream,dapple "
      "--json",
      "for scripts");
  table.example("automap-compare fixtures/placement/training.json", "ways to place a workload's nodes on its devices");
  table.group("Input");
  table
      .positional(&options.input.path, "MODEL|WORKLOAD",
                  "HLO in any form, a config.json, a published model's name (llama3-8b), a profile, or a workload for "
                  "placement; - reads standard input")
      .reads_file()
      .required();
  profile::declare_description(table, &options.input.step);
  table
      .add(&options.cluster, "cluster",
           "of models: a preset (" + join(machine::cluster_preset_names()) + ") or a JSON file")
      .reads_file()
      .suggestions(machine::cluster_preset_names())
      .metavar("CLUSTER")
      .traits(kOfModels);
  table.add(&options.batch, "batch", "samples of a step; auto: 16 times the model's own, up to 256")
      .no_file()
      .metavar("N")
      .traits(kOfModels);
  table.group("Systems");
  std::string keys;
  for (const System& system : all_systems()) keys += (keys.empty() ? "" : ", ") + std::string(system.key);
  table.add(&names, "systems", "all, or some of " + keys + ", separated by commas").no_file().metavar("LIST");
  table.add(&options.max_stages, "max-stages", "most stages of a plan, of every system").range(1, 64).traits(kOfModels);
  table
      .add_seconds(&options.time_limit_s, "time",
                   "of every search that can end early, at most; what the other rivals look at is fixed")
      .range(0.001, 1e9);
  table.group("Output");
  table.add(&html, "html", "also a page with a picture").writes_file().metavar("FILE");
  table.epilog(
      "Exit codes: 0 a system has a plan that fits, 2 wrong usage or cluster file, 3 bad input or output, 4 none has.");
  table.add_common(&options.json);
  if (!table.parse(argc, argv)) return 0;

  systems_of(names);  // what is wrong with them is said first
  OutputSet outputs;
  AtomicFile* page = html.empty() ? nullptr : &outputs.add(html);
  const Asked asked = read_question(options);
  const std::vector<const System*> systems = systems_of(names, asked.workload.has_value());
  if (asked.workload &&
      std::none_of(systems.begin(), systems.end(), [](const System* s) { return s->places_nodes(); })) {
    std::vector<std::string> that_do;
    for (const System& system : all_systems()) {
      if (system.places_nodes()) that_do.emplace_back(system.key);
    }
    throw Error(ErrorKind::kUsage, "--systems " + names + ": none of them places the nodes of a workload",
                "all, or of: " + join(that_do));
  }
  const Question question = asked.question(options);
  if (asked.workload) {
    for (const std::string& option : table.names_with(kOfModels)) {
      if (table.source_of(option) != "default") {
        log_warning("the workload has its own machine and samples: --" + option + " is not looked at");
      }
    }
  }
  Compared compared = asked.head(question);
  ::getloadavg(&compared.load_average, 1);
  for (const System* system : systems) {
    log_verbose(std::string("asking ") + system->name);
    compared.systems.push_back(system);
    compared.answers.push_back(systems::ask(*system, question));
  }
  if (page != nullptr) page->write(report_html(compared));
  outputs.prepare();
  if (options.json) {
    print_exact(report_json(compared));
  } else {
    print(report_text(compared, report_columns()));
  }
  outputs.commit();
  const bool any = std::any_of(compared.answers.begin(), compared.answers.end(),
                               [](const Answer& a) { return a.found && a.fits(); });
  return any ? 0 : exit_code(ErrorKind::kInfeasible);
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, compare_main);
}
