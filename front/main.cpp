// automap COMMAND ...: runs automap-COMMAND, found beside this program or in PATH.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/child_program.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/option_pages.h"
#include "common/base/plugin.h"
#include "common/base/suggest.h"

namespace {

constexpr const char* kSummary = "find how to train a neural network on many devices";

struct Command {
  const char* name;
  const char* says;
  const char* when_missing = nullptr;  // what to do when there is no such program
};
constexpr Command kCommands[] = {
    {"profile", "compute, activation, weight and stash per instruction of a model's HLO"},
    {"infer", "a pipeline plan for a model on a cluster, with a proof of how good it is"},
    {"search", "which tensors to split over the devices, explained, and written for XLA and JAX"},
    {"emit", "a plan for Megatron, torchtitan, DeepSpeed, torch, MaxText or JAX, or as programs that run"},
    {"compare", "the plans of published systems and ours, for one model on one cluster"},
    {"inspect", "what a file is and what is in it: HLO, profile, cluster, plan, policy, dataset"},
    {"datagen", "a dataset of random planning problems to train planners on"},
    {"train", "a planner's policy, trained on random problems (built when LibTorch is there)",
     "it is built where LibTorch is found: apt-get install libtorch-dev libopenblas0-openmp (in a checkout "
     "scripts/install_dependencies.sh --train), then configure, build and install AutoMap again"},
    {"apply-plan", "run a JAX step as an operator or data plan says, and compare with one device (Python with jax)"},
    {"run", "the programs of every stage, executed and compared with the unsplit step (Python with jax)"},
    {"export-torch", "the training step of a PyTorch module as HLO (Python with torch and torchax)"},
    {"from-stablehlo", "HLO of a StableHLO module or a file of jax.export (Python with jax)"},
    {"emit-sdy", "an annotated module as StableHLO with Shardy's attributes, and run (Python with jax)"},
};

std::string help() {
  std::string out = std::string("automap: ") + kSummary +
                    "\n\n"
                    "Examples:\n"
                    "  automap infer fixtures/hlo/gpt2.hlo.gz --cluster config-c --batch 256\n"
                    "      plan the training of GPT-2 on 32 V100 in 4 servers\n"
                    "  automap search opp fixtures/hlo/t5_6_6.hlo.gz --shards 8\n"
                    "      which variables of a T5 to split over 8 devices\n"
                    "  automap inspect fixtures/hlo/bert48.hlo.gz\n"
                    "      say what is in the file\n\n"
                    "Usage: automap COMMAND [arguments]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    const std::string name = command.name;
    out += "  " + name + std::string(16 - name.size(), ' ') + command.says + "\n";
  }
  return out + "\nautomap COMMAND --help says more; `automap infer ...` is the same as `automap-infer ...`.\n";
}

int front_main(int argc, char** argv) {
  using automap::Error;
  using automap::ErrorKind;
  std::string command = argc > 1 ? argv[1] : "";
  if (command == "--help" || command == "-h" || command == "--help-all" || (command == "help" && argc == 2)) {
    automap::print(help());
    return 0;
  }
  if (command == "--version") {
    automap::print(automap::version_report("automap"));
    return 0;
  }
  if (const std::optional<std::string> form = argc == 3 ? automap::page_form(argc, argv) : std::nullopt) {
    std::vector<std::pair<std::string, std::string>> commands;
    for (const Command& c : kCommands) commands.emplace_back(c.name, c.says);
    automap::print_exact(automap::commands_as(*form, "automap", kSummary, commands));
    return 0;
  }
  std::vector<char*> arguments(argv + 1, argv + argc);
  std::string help_flag = "--help";
  if (command == "help") {
    command = argv[2];
    arguments = {argv[2], help_flag.data()};
  }
  std::vector<std::string> names;
  std::string known_names;
  const Command* known = nullptr;
  for (const Command& c : kCommands) {
    names.push_back(c.name);
    known_names += (known_names.empty() ? "" : ", ") + names.back();
    if (command == c.name) known = &c;
  }
  if (known == nullptr) {
    const std::string near = automap::closest_name(command, names);
    throw Error(
        ErrorKind::kUsage,
        command.empty() ? "missing command" : (command[0] == '-' ? "unknown option " : "unknown command ") + command,
        near.empty() ? "one of " + known_names + "; see automap --help" : "did you mean " + near + "?");
  }
  std::vector<std::string> program(arguments.begin(), arguments.end());
  program[0] = "automap-" + command;
  automap::become_program(program, known->when_missing != nullptr ? known->when_missing : "");
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, front_main);
}
