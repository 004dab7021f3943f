// automap-inspect: identifies a file and describes its content.
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/architecture/read.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_text.h"
#include "common/base/options.h"
#include "common/hlo/hlo_reader.h"
#include "common/pipeline/plan_json.h"
#include "inspect/against.h"
#include "inspect/dataset.h"
#include "inspect/describe.h"
#include "inspect/graph_picture.h"
#include "inspect/layer_graph.h"
#include "profile/profile_hlo.h"

namespace {

// The picture of --graph. `described`: the description of the bytes.
std::string draw_graph(std::string bytes, const std::string& source, const automap::Json& described,
                       const std::string& plan_file) {
  using namespace automap;
  if (described.at("kind").string() != "hlo") {
    throw Error(ErrorKind::kUsage, "--graph is for HLO, and " + source + " is a " + described.at("kind").string(),
                "give the model itself");
  }
  std::optional<pipeline::PlanDocument> plan;
  if (!plan_file.empty()) plan = pipeline::load_plan(plan_file);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  const hlo::HloModule module = profile::read_module(std::move(bytes), source, {}).module;
  return inspect::graph_picture(inspect::layer_graph(module.graph), plan ? &*plan : nullptr, plan_file);
}

int inspect_main(int argc, char** argv) {
  using namespace automap;
  std::string input, plot, graph_file, plan_file;
  std::vector<std::string> against;
  bool json = false;
  inspect::DatasetOptions dataset;
  inspect::DescribeOptions options;
  OptionTable table("inspect", "say what a file is and what is in it: HLO, profile, cluster, plan, policy, dataset");
  table.example("automap-inspect fixtures/hlo/bert48.hlo.gz", "a model: instructions, compute, parameters, layers");
  table.example("automap-inspect config-c", "a cluster, by preset or file");
  table.example("automap-inspect fixtures/hlo/tiny_mlp.pb.gz --json",
                "the same facts of a binary HLO module for scripts");
  table.example("automap-datagen --rows 20000 -o data && automap-inspect data --against fixtures/hlo/resnet50.hlo.gz",
                "how near a dataset's rows come to real models");
  table
      .positional(
          &input, "FILE",
          "HLO in any form, profile, cluster, device or plan, or the folder of a dataset; - reads standard input")
      .reads_folder()
      .required();
  table.add_flag(&options.time, "time", "HLO: also say how long reading it into a graph takes");
  table.add_flag(&dataset.verify, "verify", "dataset: compare every byte with its checksums and look at every row");
  table.add(&plot, "plot", "dataset: also draw rows and the distribution of scales (SVG)")
      .writes_file()
      .metavar("FILE");
  table
      .add(
          &against, "against",
          "dataset: compare its rows with real models: profiles or HLO, files or folders of them; looks at 16 384 rows "
          "at most (docs/formats/inspect.md)")
      .reads_folder()
      .metavar("PROFILES");
  table.add(&graph_file, "graph", "HLO: also draw its layers and the tensors between them (SVG)")
      .writes_file()
      .metavar("FILE");
  table.add(&plan_file, "plan", "with --graph: draw the stages of this plan of automap-infer in")
      .reads_file()
      .metavar("FILE");
  table.add_common(&json);
  if (!table.parse(argc, argv)) return 0;
  struct stat info = {};
  const bool folder = input != "-" && ::stat(input.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (!plan_file.empty() && graph_file.empty()) {
    throw Error(ErrorKind::kUsage, "--plan is drawn into the picture of --graph", "add --graph FILE, or drop --plan");
  }
  if (folder && !graph_file.empty()) {
    throw Error(ErrorKind::kUsage, "--graph is for HLO, and " + input_name(input) + " is a folder");
  }
  if (!folder && (dataset.verify || !plot.empty() || !against.empty())) {
    const char* const option = dataset.verify ? "--verify" : !plot.empty() ? "--plot" : "--against";
    throw Error(ErrorKind::kUsage,
                std::string(option) + " is for datasets, and " + input_name(input) + " is no folder");
  }
  while (folder && input.size() > 1 && input.back() == '/') input.pop_back();
  bool intact = true;
  OutputSet outputs;
  inspect::Description description;
  if (folder) {
    if (::access((input + "/dataset.json").c_str(), F_OK) != 0) {
      throw Error(ErrorKind::kIo, input + " is a directory and no dataset: dataset.json is missing",
                  "give a file, or the folder that automap-datagen wrote");
    }
    AtomicFile* const picture = plot.empty() ? nullptr : &outputs.add(plot);
    inspect::DatasetDescription described = inspect::describe_dataset(input, dataset);
    intact = described.intact;
    description = std::move(described.description);
    if (!against.empty() && intact) inspect::describe_against(input, against, &description);
    if (picture && intact) {
      picture->write(inspect::plot_dataset(input));
      outputs.prepare();
    }
  } else if (!graph_file.empty()) {
    AtomicFile& picture = outputs.add(graph_file);
    const std::string source = input_name(input);
    std::string bytes = architecture::read_model_file(input);
    description = inspect::describe_bytes(bytes, source, options);
    picture.write(draw_graph(std::move(bytes), source, description.document, plan_file));
    outputs.prepare();
  } else {
    description = inspect::describe(input, options);
  }
  if (json) {
    print_exact(json_text(description.document));
  } else {
    print_report(description.text);
  }
  if (intact) outputs.commit();
  return intact ? 0 : exit_code(ErrorKind::kData);
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, inspect_main);
}
