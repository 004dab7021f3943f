#include "plan/partition/apply_plan.h"

#include <algorithm>
#include <unordered_map>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/sharding/explain.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/names.h"
#include "plan/partition/plan_tensors.h"
#include "plan/partition/stored_parts.h"

namespace automap::partition {
namespace {

using graph::NodeId;
using sharding::ModelInput;
using sharding::TensorDim;

// Which input each decided tensor is.
struct Decision {
  std::int32_t input;
  int dim;
};

// "4, 5, 10": the numbers that would divide it.
std::string divisors_of(std::int64_t extent) {
  std::string out;
  int shown = 0;
  for (std::int64_t d = 2; d <= std::min<std::int64_t>(extent, 4096) && shown < 8; ++d) {
    if (extent % d != 0) continue;
    out += (shown++ == 0 ? "" : ", ") + std::to_string(d);
  }
  return out;
}

// Do both have the same inputs by name? (Their shapes may differ: another batch size.)
bool same_inputs(const sharding::ShardingModel& model, const PartitionPlan& plan) {
  if (plan.inputs.size() != model.inputs().size()) return false;
  std::vector<std::string> a, b;
  for (const PlanTensor& input : plan.inputs) a.push_back(input.name);
  for (const ModelInput& input : model.inputs()) b.push_back(input.name);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

NodeId find_gather_node(const sharding::ShardingModel& model, int node, const std::string& name) {
  if (node >= 0 && node < model.flow().size() && instruction_name(model, node) == name) return node;
  NodeId found = graph::kNone;
  for (NodeId id = 0; id < model.flow().size(); ++id) {
    if (instruction_name(model, id) != name) continue;
    if (found != graph::kNone) {
      throw Error(ErrorKind::kData, "the plan gathers at " + name + ", which this model has more than once");
    }
    found = id;
  }
  if (found == graph::kNone) {
    throw Error(ErrorKind::kData, "the plan is not for this model: it gathers at " + name + ", which is not there");
  }
  return found;
}

// `begun`: the gather of the plan that wants it; null: a decision does.
[[noreturn]] void collision(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                            const sharding::Conflict& conflict, const sharding::Gather* begun = nullptr) {
  const sharding::Explanation why = sharding::explain(model, decided, conflict);
  const std::string what = begun == nullptr ? ""
                                            : "it begins to split dimension " + std::to_string(begun->dim) + " of " +
                                                  instruction_name(model, begun->tensor) + " there: ";
  throw Error(ErrorKind::kInfeasible, "the plan cannot be completed: " + what + why.summary, "", why.lines);
}

// Throws Error(kData) for tensors of another model and for dimensions that cannot be split. `hashes`: of both modules,
// where they differ.
std::vector<Decision> decisions_of(const sharding::ShardingModel& model, const PartitionPlan& plan,
                                   const std::string& hashes) {
  std::vector<Decision> decisions;
  const PlanTensors tensors(model);
  const std::vector<bool> asked = decided_inputs(plan);
  std::unordered_map<std::int32_t, int> dim_of;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanTensor& tensor = plan.inputs[i];
    // The plan also lists inputs that follow from the decisions, and inputs beside them (frozen weights).
    if (!asked[i] && tensor.dim < 0) continue;
    const std::int32_t index = tensors.find(tensor);
    const ModelInput& input = model.inputs()[static_cast<std::size_t>(index)];
    const graph::Shape& shape = model.flow().shape(input.node);
    if (!tensor.shape.empty() && tensor.shape != shape.text) {
      throw Error(ErrorKind::kData, "the plan is of another model: " + input.name + " is " + tensor.shape +
                                        " in the plan, but " + std::string(shape.text) + " here" +
                                        (hashes.empty() ? "" : "; " + hashes));
    }
    const auto rank = static_cast<int>(shape.is_array() ? shape.dims.size() : 0);
    if (tensor.dim >= rank) {
      throw Error(ErrorKind::kData,
                  "the plan splits " + input.name + " along dimension " + std::to_string(tensor.dim) + ", but it is " +
                      std::string(shape.text),
                  rank == 0 ? "a tensor without dimensions can only be replicated (-1)"
                            : "dimensions are 0 to " + std::to_string(rank - 1) + ", or -1: replicated");
    }
    if (tensor.dim >= 0) {
      const std::int64_t extent = shape.dims[static_cast<std::size_t>(tensor.dim)];
      if (extent % plan.shards != 0 || (extent == 0 && plan.shards > 1)) {
        const std::string divisors = divisors_of(extent);
        throw Error(ErrorKind::kData,
                    "the plan splits dimension " + std::to_string(tensor.dim) + " of " + input.name + ", " +
                        std::string(shape.text) + ", into " + std::to_string(plan.shards) +
                        " shards, which do not divide " + std::to_string(extent),
                    divisors.empty() ? "" : "shards that would: " + divisors);
      }
    }
    const auto [at, added] = dim_of.emplace(index, tensor.dim);
    if (!added && at->second != tensor.dim) {
      throw Error(ErrorKind::kData, "the plan names " + input.name + " twice, with dimensions " +
                                        std::to_string(at->second) + " and " + std::to_string(tensor.dim));
    }
    if (added) decisions.push_back({index, tensor.dim});
  }
  return decisions;
}

// A value that is handed on must be the new value of an input.
void check_handed_on(const sharding::ShardingModel& model, const sharding::Gather& gather) {
  if (gather.kind != sharding::Gather::Kind::kHandedOn) return;
  for (const ModelInput& input : model.inputs()) {
    if (input.node != gather.op || input.result == graph::kNone) continue;
    const NodeId result = model.flow().results()[static_cast<std::size_t>(input.result)];
    if (result == gather.tensor && model.flow().shape(result).dims == model.flow().shape(input.node).dims) return;
  }
  throw Error(ErrorKind::kData, "the plan hands on " + instruction_name(model, gather.tensor) + " to " +
                                    instruction_name(model, gather.op) +
                                    ", which is no input that it is the new value of");
}

// A tensor that is exchanged for an instruction must be an operand of it.
void check_exchanged(const sharding::ShardingModel& model, const sharding::Gather& gather) {
  if (gather.kind != sharding::Gather::Kind::kExchanged) return;
  const auto operands = model.flow().operands(gather.op);
  if (std::find(operands.begin(), operands.end(), gather.tensor) != operands.end()) return;
  throw Error(ErrorKind::kData, "the plan exchanges " + instruction_name(model, gather.tensor) + " for " +
                                    instruction_name(model, gather.op) + ", which does not read it");
}

// A tensor that is whole or in parts for an instruction must be an operand or a result of it.
void check_near(const sharding::ShardingModel& model, const sharding::Gather& gather) {
  const bool in_parts = gather.kind == sharding::Gather::Kind::kInParts;
  if (gather.kind != sharding::Gather::Kind::kRead && !in_parts) return;
  const auto operands = model.flow().operands(gather.op);
  if (std::find(operands.begin(), operands.end(), gather.tensor) != operands.end()) return;
  if (model.flow().producer(gather.tensor) == gather.op) return;
  throw Error(ErrorKind::kData, "the plan has " + instruction_name(model, gather.tensor) +
                                    (in_parts ? " taken in parts by " : " whole for ") +
                                    instruction_name(model, gather.op) + ", which neither reads nor makes it");
}

// A tensor that begins at an instruction must be a result of it.
void check_begun(const sharding::ShardingModel& model, const sharding::Gather& gather) {
  if (gather.kind != sharding::Gather::Kind::kBegun || model.flow().producer(gather.tensor) == gather.op) return;
  throw Error(ErrorKind::kData, "the plan begins to split " + instruction_name(model, gather.tensor) + " at " +
                                    instruction_name(model, gather.op) + ", which does not make it");
}

std::vector<sharding::Gather> gathers_of(const sharding::ShardingModel& model, const PartitionPlan& plan) {
  std::vector<sharding::Gather> gathers;
  for (const PlanGather& g : plan.gathers) {
    gathers.push_back({find_gather_node(model, g.node, g.instruction), find_gather_node(model, g.tensor_node, g.tensor),
                       g.dim, g.kind});
    const graph::Shape& shape = model.flow().shape(gathers.back().tensor);
    if (static_cast<std::size_t>(g.dim) < shape.dims.size()) continue;
    throw Error(ErrorKind::kData, "the plan gathers " + g.tensor + " along dimension " + std::to_string(g.dim) +
                                      ", but it is " + std::string(shape.text));
  }
  for (const sharding::Gather& gather : gathers) {
    check_handed_on(model, gather);
    check_exchanged(model, gather);
    check_near(model, gather);
    check_begun(model, gather);
  }
  return gathers;
}

// Links the model with the gathers that make the decisions possible, as far as there are any. Returns a description;
// empty: none were needed, or none help.
std::string complete_by_gathers(sharding::ShardingModel* model, const std::vector<Decision>& decisions) {
  std::vector<TensorDim> data, all, refused;
  const auto split_all = [&](const std::vector<TensorDim>& dims) {
    sharding::Propagation decided(model->linkage());
    std::vector<TensorDim> taken;
    refused.clear();
    for (const TensorDim dim : dims) (decided.split(dim) ? refused : taken).push_back(dim);
    return taken;
  };
  for (const Decision& decision : decisions) {
    const ModelInput& input = model->inputs()[static_cast<std::size_t>(decision.input)];
    if (decision.dim < 0) continue;
    (input.role == graph::InputRole::kStepInput ? data : all).push_back({input.node, decision.dim});
  }
  split_all(data);
  if (!refused.empty()) repair(model, data);
  all.insert(all.begin(), data.begin(), data.end());
  const std::vector<TensorDim> accepted = split_all(all);
  if (!refused.empty()) {
    const std::vector<TensorDim> wanted = refused;
    gather_before_use(model, accepted, wanted);
  }
  if (model->gathers().empty()) return "";
  return plural(static_cast<long long>(model->gathers().size()), "place") +
         " where its splittings collide, at which a tensor is gathered, or made whole and kept in parts";
}

}  // namespace

sharding::Propagation apply_plan(sharding::ShardingModel* model, const PartitionPlan& plan,
                                 const std::string& model_sha256, std::vector<std::string>* warnings) {
  const auto found_hash = plan.provenance.find("model_sha256");
  const std::string plan_sha256 = found_hash == plan.provenance.end() ? "" : found_hash->second;
  const bool another = !model_sha256.empty() && !plan_sha256.empty() && model_sha256 != plan_sha256;
  const std::string hashes =
      another ? "its model_sha256 is " + plan_sha256.substr(0, 64) + ", this model's is " + model_sha256 : "";
  if (another && !same_inputs(*model, plan)) {
    throw Error(ErrorKind::kData, "the plan is of another model: " + hashes + ", and their inputs differ",
                "plan this model, or keep only schema, kind, shards and partition of the plan to try it anyway");
  }
  model->combine_sums(plan.sums_combined);
  const std::vector<Decision> decisions = decisions_of(*model, plan, hashes);
  std::vector<sharding::Gather> gathers = gathers_of(*model, plan);
  if (model->linkage().shards() != plan.shards || !(model->gathers() == gathers) || model->halos() != plan.halos) {
    model->relink(plan.shards, std::move(gathers), plan.halos);
  }
  if (plan.gathers.empty() && plan.shards > 1) {
    const std::string added = complete_by_gathers(model, decisions);
    if (!added.empty() && warnings != nullptr) warnings->push_back("completed at " + added);
  }
  sharding::Propagation decided(model->linkage());
  if (plan.shards > 1) {
    for (const sharding::Gather& gather : model->gathers()) {
      if (gather.kind != sharding::Gather::Kind::kBegun) continue;
      const TensorDim begun{gather.tensor, gather.dim};
      if (const auto conflict = decided.split(begun)) collision(*model, decided, *conflict, &gather);
    }
    // All splittings before any replication, so that a tensor that stays whole is reported with the decision that
    // forbids it.
    for (const bool split : {true, false}) {
      for (const Decision& decision : decisions) {
        if ((decision.dim >= 0) != split) continue;
        const ModelInput& input = model->inputs()[static_cast<std::size_t>(decision.input)];
        if (!split && !model->linkage().is_tensor(input.node)) continue;
        const auto conflict = split ? decided.split({input.node, decision.dim}) : decided.keep_whole(input.node);
        if (conflict) collision(*model, decided, *conflict);
      }
    }
  }
  if (another && warnings != nullptr) {
    warnings->push_back("the plan was made from another file: " + hashes +
                        "; the inputs have the same names, and what the plan decides has the same shapes");
  }
  return decided;
}

}  // namespace automap::partition
