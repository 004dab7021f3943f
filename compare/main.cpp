// automap-compare: published planners and ours on one model and cluster. Parses, calls, prints.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/machine/cluster.h"
#include "compare/report.h"
#include "compare/systems.h"
#include "infer/input.h"
#include "infer/options.h"

namespace {

using namespace automap;
using namespace automap::compare;

int compare_main(int argc, char** argv) {
  infer::InferOptions options;
  std::string names = "all", html;
  options.time_limit_s = 60;
  OptionTable table("compare", "the plans of published systems and ours, for one model on one cluster");
  table.example("automap-compare fixtures/hlo/t5_6_6.hlo.gz --cluster config-b", "all systems");
  table.example("automap-compare fixtures/hlo/vgg19.hlo.gz --cluster h100-2x8 --systems automap,alpa --html page.html",
                "two of them, and a page with a picture");
  table.example(
      "automap-compare fixtures/hlo/tiny_mlp.hlo --cluster config-a --batch 512 --systems automap,pipedream,dapple "
      "--json",
      "for scripts");
  table.group("Input");
  table.positional(&options.input.path, "MODEL", "HLO in any form, or a profile; - reads standard input")
      .reads_file()
      .required();
  table.add(&options.cluster, "cluster", "a preset (" + join(machine::cluster_preset_names()) + ") or a JSON file")
      .reads_file()
      .metavar("CLUSTER")
      .required();
  table.add(&options.batch, "batch", "samples of a step; auto: 16 times the model's own").no_file().metavar("N");
  table.group("Systems");
  std::string keys;
  for (const System& system : all_systems()) keys += (keys.empty() ? "" : ", ") + std::string(system.key);
  table.add(&names, "systems", "all, or some of " + keys + ", separated by commas").no_file().metavar("LIST");
  table.add(&options.max_stages, "max-stages", "most stages of a plan, of every system").range(1, 64);
  table.add_seconds(&options.time_limit_s, "time", "our search at most; what a rival looks at is fixed")
      .range(0.001, 1e9);
  table.group("Output");
  table.add(&html, "html", "also a page with a picture").writes_file().metavar("FILE");
  table.epilog("Exit codes: 0 a system has a plan, 2 wrong usage or cluster file, 3 bad input or output, 4 none has.");
  table.add_common(&options.json);
  if (!table.parse(argc, argv)) return 0;

  const std::vector<const System*> systems = systems_of(names);
  OutputSet outputs;
  AtomicFile* page = html.empty() ? nullptr : &outputs.add(html);
  const machine::Cluster cluster = machine::load_cluster(options.cluster);
  const planners::PlanRequest request = infer::make_request(options);
  const infer::PlanInput input = infer::read_input(options.input, cluster);
  if (input.profile.forward_fraction >= 1) {
    throw Error(ErrorKind::kData, options.input.path + ": no training step: it has no backward pass to plan",
                "export a step that computes gradients and updates (docs/getting-hlo.md)");
  }
  const Question question = {input, cluster, infer::make_problem_options(options, input.profile),
                             infer::make_step(options), request};
  Compared compared;
  compared.model = input.profile.model;
  compared.cluster = cluster.name;
  const std::vector<planners::StepSize> sizes =
      planners::step_sizes(question.step, input.profile, question.options.replicas);
  if (!sizes.empty()) compared.batch = sizes.front().samples * sizes.front().micro_batches;
  ::getloadavg(&compared.load_average, 1);
  for (const System* system : systems) {
    log_verbose(std::string("asking ") + system->name);
    compared.systems.push_back(system);
    compared.answers.push_back(ask(*system, question));
  }
  if (page != nullptr) page->write(report_html(compared));
  outputs.prepare();
  if (options.json) {
    print_exact(report_json(compared));
  } else {
    print(report_text(compared));
  }
  outputs.commit();
  const bool any =
      std::any_of(compared.answers.begin(), compared.answers.end(), [](const Answer& a) { return a.found; });
  return any ? 0 : exit_code(ErrorKind::kInfeasible);
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, compare_main);
}
