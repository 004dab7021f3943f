// automap-search explain.
#include <algorithm>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "common/machine/cluster.h"
#include "plan/partition/apply_plan.h"
#include "plan/partition/mesh_plan.h"
#include "plan/partition/partition_plan.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"
#include "search/report.h"
#include "search/report_tables.h"

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

// One axis of a plan.
void print_axis(const LoadedModel& loaded, const sharding::ShardingModel& model, const sharding::Propagation& decided,
                const PartitionPlan& plan, const std::vector<sharding::NodeId>& nodes,
                const sharding::TensorShares* shares = nullptr) {
  if (nodes.empty()) print_report(printable(loaded.name) + ": " + overview_report(model, decided, plan, shares));
  for (std::size_t i = 0; i < nodes.size() && i < kMostPlaces; ++i) {
    print_report((i ? "\n" : "") + tensor_report(model, decided, nodes[i], shares));
  }
  if (nodes.size() > kMostPlaces) {
    print_report("\nand " + std::to_string(nodes.size() - kMostPlaces) + " more places that call it; --json has all\n");
  }
}

struct ExplainOptions {
  ModelOptions model;
  PricingOptions pricing;
  std::string plan, tensor;
  bool json = false;
};

void declare_explain(OptionTable* table, ExplainOptions* options) {
  table->example("automap-search explain fixtures/hlo/t5_6_6.hlo.gz --plan plan.json", "everything, in groups");
  table->example(
      "automap-search explain fixtures/hlo/t5_6_6.hlo.gz --plan plan.json encoder/layer/0/self_attention/o/kernel",
      "one input, by name, path or its end");
  table->example("automap-search explain fixtures/hlo/t5_6_6.hlo.gz --plan plan.json dot_general.404 --json",
                 "any instruction, for scripts");
  options->model.declare(table);
  table->positional(&options->tensor, "TENSOR", "an input, or an instruction's name; default: an overview of all")
      .no_file();
  table->add(&options->plan, "plan", "the decision to explain (automap.plan/1 JSON)")
      .reads_file()
      .metavar("FILE")
      .required();
  options->pricing.declare(table);
  table->epilog("Exit codes: 0 done, 2 wrong usage, 3 bad input, 4 the decision contradicts itself.");
  table->add_common(&options->json);
}

// Explains a decision and prices it.
class Explaining {
 public:
  Explaining(const ExplainOptions& options, machine::Cluster cluster, const LoadedModel& loaded,
             const std::vector<sharding::NodeId>& nodes)
      : options_(options),
        loaded_(loaded),
        nodes_(nodes),
        cluster_(std::move(cluster)),
        device_(profile::reference_device(options.pricing.device, cluster_)) {}

  void one(PartitionPlan plan) {
    const sharding::Propagation decided = apply_plan(loaded_.model.get(), plan, loaded_.module->sha256, &warnings_);
    describe_decision(*loaded_.model, decided, &plan);
    const auto cost = [&] {
      return price({loaded_.model.get(), &decided}, device_, cluster_, options_.pricing.overlap);
    };
    if (options_.json) {
      print_json(Json::parse(explanation_json(*loaded_.model, decided, plan, nodes_)), cost);
      return;
    }
    print_axis(loaded_, *loaded_.model, decided, plan, nodes_);
    if (nodes_.empty()) print_price(cost());
  }

  void mesh(MeshPlan plan) {
    const AppliedMesh mesh = apply_mesh_plan(*loaded_.model, plan, loaded_.module->sha256, &warnings_);
    const Price cost = price({&mesh.data, &mesh.data_decided}, {&mesh.model, &mesh.model_decided}, device_, cluster_,
                             options_.pricing.overlap);
    describe_decision(mesh.data, mesh.data_decided, &plan.data_axis, &cost.left_by_own);
    describe_decision(mesh.model, mesh.model_decided, &plan.model_axis, &cost.left_by_outer);
    if (options_.json) {
      const auto axis = [&](const sharding::ShardingModel& model, const sharding::Propagation& decided,
                            const PartitionPlan& of, const sharding::TensorShares& shares) {
        return Json::parse(explanation_json(model, decided, of, nodes_, &shares));
      };
      print_json({{"schema", "automap.explanation/1"},
                  {"axes",
                   {{"data", axis(mesh.data, mesh.data_decided, plan.data_axis, cost.left_by_own)},
                    {"model", axis(mesh.model, mesh.model_decided, plan.model_axis, cost.left_by_outer)}}}},
                 [&] { return cost; });
      return;
    }
    print_report("Data axis\n");
    print_axis(loaded_, mesh.data, mesh.data_decided, plan.data_axis, nodes_, &cost.left_by_own);
    print_report("\nModel axis\n");
    print_axis(loaded_, mesh.model, mesh.model_decided, plan.model_axis, nodes_, &cost.left_by_outer);
    if (nodes_.empty()) print_price(cost);
  }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  // A single tensor has no price.
  template <typename Cost>
  void print_json(Json document, const Cost& cost) const {
    if (nodes_.empty()) document["estimate"] = internal::price_json(cost(), options_.pricing.cluster);
    print_exact(json_text(document));
  }
  void print_price(const Price& cost) const { print_report("\n" + internal::price_text(cost, cluster_.name)); }

  const ExplainOptions& options_;
  const LoadedModel& loaded_;
  const std::vector<sharding::NodeId>& nodes_;
  const machine::Cluster cluster_;
  const machine::DeviceModel device_;
  std::vector<std::string> warnings_;
};

}  // namespace

int explain_command(int argc, char** argv) {
  ExplainOptions options;
  OptionTable table("search explain",
                    "why is this tensor split, whole or reduced; which collective, where, how many bytes");
  declare_explain(&table, &options);
  if (!table.parse(argc, argv)) return 0;
  if (options.model.path == "-" && options.plan == "-") {
    throw Error(ErrorKind::kUsage, "MODEL and --plan both want standard input", "give one of them a file");
  }
  const PlanFile plan = load_plan_file(options.plan);
  const LoadedModel loaded = load_sharding_model(options.model, plan.one ? plan.one->shards : 1);
  std::vector<sharding::NodeId> nodes;
  if (!options.tensor.empty()) nodes = find_tensors(*loaded.model, options.tensor);
  options.pricing.as_planned(table, plan.cluster(), plan.provenance());
  Explaining explaining(options, options.pricing.cluster_for(table, plan.devices()), loaded, nodes);
  if (plan.one) {
    explaining.one(*plan.one);
  } else {
    explaining.mesh(*plan.mesh);
  }
  for (const std::string& warning : explaining.warnings()) log_warning(warning);
  return 0;
}

}  // namespace automap::search
