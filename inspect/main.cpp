// automap-inspect: says what a file is and what is in it.
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_text.h"
#include "common/base/options.h"
#include "inspect/against.h"
#include "inspect/dataset.h"
#include "inspect/describe.h"

namespace {

int inspect_main(int argc, char** argv) {
  using namespace automap;
  std::string input, plot;
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
  table.add_common(&json);
  if (!table.parse(argc, argv)) return 0;
  struct stat info = {};
  const bool folder = input != "-" && ::stat(input.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
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
  } else {
    description = inspect::describe(input, options);
  }
  if (json) {
    print_exact(json_text(description.document));
  } else {
    print(description.text);
  }
  if (intact) outputs.commit();
  return intact ? 0 : exit_code(ErrorKind::kData);
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, inspect_main);
}
