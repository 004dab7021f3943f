// automap-inspect: says what a file is and what is in it.
#include <string>

#include "common/base/cli.h"
#include "common/base/options.h"
#include "inspect/describe.h"

namespace {

int inspect_main(int argc, char** argv) {
  using namespace automap;
  std::string input;
  bool json = false;
  inspect::DescribeOptions options;
  OptionTable table("inspect", "say what a file is and what is in it: HLO, profile, cluster, plan");
  table.example("automap-inspect fixtures/hlo/bert48.hlo.gz", "a model: instructions, compute, parameters, layers");
  table.example("automap-inspect config-c", "a cluster, by preset or file");
  table.example("automap-inspect fixtures/hlo/tiny_mlp.pb.gz --json",
                "the same facts of a binary HLO module for scripts");
  table.positional(&input, "FILE", "HLO in any form, profile, cluster, device or plan; - reads standard input")
      .required();
  table.add_flag(&options.time, "time", "HLO: also say how long reading it into a graph takes");
  table.add_common(&json);
  if (!table.parse(argc, argv)) return 0;
  const inspect::Description description = inspect::describe(input, options);
  if (json) {
    print(description.document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } else {
    print(description.text);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, inspect_main);
}
