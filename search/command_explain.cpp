// automap-search explain.
#include <algorithm>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "plan/partition/partition_plan.h"
#include "search/commands.h"
#include "search/report.h"

namespace automap::search {

using namespace partition;

namespace {

// An instruction that is called from many places has a node per place; more than these tell nothing new.
constexpr std::size_t kMostPlaces = 4;

// An input (as `--set` names it) or an instruction.
std::vector<sharding::NodeId> find_tensors(const sharding::ShardingModel& model, const std::string& text) {
  std::string missing, hint;
  try {
    return {model.inputs()[static_cast<std::size_t>(model.find_input(text))].node};
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    missing = e.what();
    hint = e.hint();
  }
  const std::string name = !text.empty() && text[0] == '%' ? text.substr(1) : text;
  std::vector<sharding::NodeId> found;
  std::vector<std::string> names;
  for (sharding::NodeId node = 0; node < model.flow().size(); ++node) {
    const graph::InstructionId id = model.flow().node(node).instruction;
    if (id < 0) continue;
    names.emplace_back(model.graph().instruction(id).name);
    if (names.back() == name) found.push_back(node);
  }
  if (!found.empty()) return found;
  const bool known = std::any_of(names.begin(), names.end(), [&](const std::string& n) { return n == name; });
  for (graph::InstructionId id = 0; !known && id < model.graph().num_instructions(); ++id) {
    if (model.graph().instruction(id).name == name) {
      throw Error(ErrorKind::kUsage, name + " only hands its operand on, or nothing reads it",
                  "name the instruction that makes the tensor");
    }
  }
  const std::string near = closest_name(name, names);
  throw Error(ErrorKind::kUsage, missing + "; nor is it an instruction",
              near.empty() ? hint : "did you mean the instruction " + near + "?");
}

}  // namespace

int explain_command(int argc, char** argv) {
  ModelOptions model;
  std::string plan_path, tensor;
  bool json = false;
  OptionTable table("search explain",
                    "why is this tensor split, whole or reduced; which collective, where, how many bytes");
  table.example("automap-search explain fixtures/hlo/t5_6_6.hlo.gz --plan plan.json", "everything, in groups");
  table.example(
      "automap-search explain fixtures/hlo/t5_6_6.hlo.gz --plan plan.json encoder/layer/0/self_attention/o/kernel",
      "one input, by name, path or its end");
  table.example("automap-search explain fixtures/hlo/t5_6_6.hlo.gz --plan plan.json dot_general.404 --json",
                "any instruction, for scripts");
  model.declare(&table);
  table.positional(&tensor, "TENSOR", "an input, or an instruction's name; default: an overview of all").no_file();
  table.add(&plan_path, "plan", "the decision to explain (automap.plan/1 JSON)")
      .reads_file()
      .metavar("FILE")
      .required();
  table.epilog("Exit codes: 0 done, 2 wrong usage, 3 bad input, 4 the decision contradicts itself.");
  table.add_common(&json);
  if (!table.parse(argc, argv)) return 0;
  if (model.path == "-" && plan_path == "-") {
    throw Error(ErrorKind::kUsage, "MODEL and --plan both want standard input", "give one of them a file");
  }

  PartitionPlan plan = load_partition_plan(plan_path);
  LoadedModel loaded = load_sharding_model(model, plan.shards);
  std::vector<std::string> warnings;
  const sharding::Propagation decided = apply_plan(loaded.model.get(), plan, loaded.module->sha256, &warnings);
  describe_decision(*loaded.model, decided, &plan);
  std::vector<sharding::NodeId> nodes;
  if (!tensor.empty()) nodes = find_tensors(*loaded.model, tensor);
  if (json) {
    print_exact(explanation_json(*loaded.model, decided, plan, nodes));
  } else if (nodes.empty()) {
    print(printable(loaded.name) + ": " + overview_report(*loaded.model, decided, plan));
  } else {
    for (std::size_t i = 0; i < nodes.size() && i < kMostPlaces; ++i) {
      print((i ? "\n" : "") + tensor_report(*loaded.model, decided, nodes[i]));
    }
    if (nodes.size() > kMostPlaces) {
      print("\nand " + std::to_string(nodes.size() - kMostPlaces) + " more places that call it; --json has all\n");
    }
  }
  for (const std::string& warning : warnings) log_warning(warning);
  return 0;
}

}  // namespace automap::search
