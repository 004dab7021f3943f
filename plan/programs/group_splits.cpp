#include "plan/programs/group_splits.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "common/base/json_object.h"
#include "common/base/printable.h"
#include "common/graph/variable_updates.h"
#include "common/machine/cluster.h"
#include "plan/programs/manifest.h"
#include "profile/batch_dims.h"

namespace automap::programs {

using graph::kNone;
using graph::NodeId;

namespace {

constexpr int kWhole = -1;

enum class Held : std::uint8_t { kSamples, kWeight, kGradient, kSlot, kOther };

class Splitter {
 public:
  Splitter(const pipeline::PlanDocument& plan, const std::string& plan_source, const graph::Graph& graph,
           const StepCut& cut, const ProgramSet& set)
      : plan_(plan), step_(cut.step()), cut_(cut), set_(set) {
    find_weights();
    read_partitions(plan_source);
    find_samples(graph);
  }

  GroupSplits of_group(int group) const {
    const pipeline::PlanStage& stage = plan_.stages[static_cast<std::size_t>(group)];
    GroupSplits out;
    if (stage.devices <= 1) return out;
    for (const NodeId id : held_by(group)) {
      const Held held = what(id);
      const int width = width_dim(id, stage.width);
      int replicas = kWhole;
      if (stage.replicas > 1 && over_replicas(held, stage.variant.zero)) {
        replicas = held == Held::kSamples ? sample_dim(id, stage.replicas)
                                          : dividing_dim(id, stage.replicas, width, stage.width);
        // Random keys and the like hold no samples, and are not missed.
        const bool missed = held == Held::kSamples ? samples_[static_cast<std::size_t>(id)] != 0 : rank(id) > 0;
        if (replicas == kWhole && missed) out.not_divided.push_back(value_name(cut_, id));
      }
      Json split = Json::object();
      if (replicas != kWhole) split["replicas"] = replicas;
      if (width != kWhole) split["width"] = width;
      if (replicas != kWhole || width != kWhole) out.splits[value_name(cut_, id)] = std::move(split);
    }
    return out;
  }

 private:
  void find_weights() {
    const graph::VariableUpdates updates = graph::find_variable_updates(step_);
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
      const graph::EntryInput& input = step_.inputs[k];
      const auto number = static_cast<std::int32_t>(k);
      if (input.role == graph::InputRole::kVariable || input.role == graph::InputRole::kFrozen) {
        weight_of_[input.node] = number;
        if (input.gradient != kNone) weight_of_.emplace(input.gradient, number);
      } else if (updates.slot_of[k] != kNone) {
        weight_of_[input.node] = step_.variables[static_cast<std::size_t>(updates.slot_of[k])];
      }
    }
  }

  void read_partitions(const std::string& plan_source) {
    std::map<std::string, std::size_t> input_of;
    for (std::size_t k = step_.inputs.size(); k-- > 0;) {
      input_of[step_.inputs[k].name] = k;
    }
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) input_of[step_.inputs[k].parameter_name] = k;
    for (const std::string& text : plan_.partitions) {
      const Json json = Json::parse(text);
      const JsonObject partition(json, plan_source + ": partition");
      std::vector<int>& dims = dims_of_width_
                                   .emplace(partition.integer("shards", 1, machine::kMaxDevices),
                                            std::vector<int>(step_.inputs.size(), kWhole))
                                   .first->second;
      for (const auto& [name, dim] : partition.at("partition").items()) {
        const auto found = input_of.find(name);
        if (found == input_of.end()) {
          partition.fail("the model has no input '" + printable(name) + "'",
                         "name inputs as automap infer -o writes them, or plan the model anew");
        }
        dims[found->second] = dim.get<int>();
      }
    }
  }

  void find_samples(const graph::Graph& graph) {
    samples_.assign(static_cast<std::size_t>(step_.flow.size()), 0);
    const profile::BatchDims found = profile::find_batch_dims(graph, step_);
    for (NodeId id = 0; found.problem.empty() && id < step_.flow.size(); ++id) {
      const graph::FlowNode& node = step_.flow.node(id);
      const auto sets = found.marks.of(node.instruction);
      const auto leaf = static_cast<std::size_t>(node.leaf == kNone ? 0 : node.leaf);
      if (leaf < sets.size()) samples_[static_cast<std::size_t>(id)] = sets[leaf];
    }
    for (const graph::BatchInput& one : step_.batch_inputs) {
      const NodeId id = step_.inputs[static_cast<std::size_t>(one.input)].node;
      samples_[static_cast<std::size_t>(id)] |= std::uint64_t{1} << one.dim;
    }
  }

  // The values that a group's programs read from elsewhere, and the gradients that they make.
  std::set<NodeId> held_by(int group) const {
    std::set<NodeId> held;
    for (const Program& program : set_.programs) {
      if (program.group != group) continue;
      for (const NodeId id : program.reads) {
        if (cut_.input_of(id) != kNone || cut_.group(set_.made_by.at(id)) != group) held.insert(id);
      }
      for (const NodeId id : program.makes) {
        if (program.unit.kind != Kind::kUpdate && cut_.is_gradient(id)) held.insert(id);
      }
    }
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
      if (cut_.owner(static_cast<std::int32_t>(k)) == group) held.insert(step_.inputs[k].node);
    }
    return held;
  }

  Held what(NodeId id) const {
    const std::int32_t input = cut_.input_of(id);
    if (input == kNone) {
      return cut_.is_gradient(id) ? Held::kGradient : cut_.of_micro_batch(id) ? Held::kSamples : Held::kOther;
    }
    if (cut_.is_batch(input)) return Held::kSamples;
    switch (step_.inputs[static_cast<std::size_t>(input)].role) {
      case graph::InputRole::kVariable: return Held::kWeight;
      case graph::InputRole::kSlot: return Held::kSlot;
      default: return Held::kOther;
    }
  }

  static bool over_replicas(Held held, int zero) {
    switch (held) {
      case Held::kSamples: return true;
      case Held::kSlot: return zero >= 1;
      case Held::kGradient: return zero >= 2;
      case Held::kWeight: return zero >= 3;
      default: return false;
    }
  }

  std::int64_t extent(NodeId id, int dim) const { return step_.flow.shape(id).dims[static_cast<std::size_t>(dim)]; }
  int rank(NodeId id) const { return static_cast<int>(step_.flow.shape(id).dims.size()); }

  int sample_dim(NodeId id, int replicas) const {
    for (int d = 0; d < rank(id) && d < 64; ++d) {
      const bool holds = (samples_[static_cast<std::size_t>(id)] >> d & 1) != 0;
      if (holds && extent(id, d) > 0 && extent(id, d) % replicas == 0) return d;
    }
    return kWhole;
  }

  int width_dim(NodeId id, int width) const {
    const auto weight = weight_of_.find(id);
    const auto dims = dims_of_width_.find(width);
    if (width <= 1 || weight == weight_of_.end() || dims == dims_of_width_.end()) return kWhole;
    const NodeId own = step_.inputs[static_cast<std::size_t>(weight->second)].node;
    const int dim = dims->second[static_cast<std::size_t>(weight->second)];
    if (dim < 0 || step_.flow.shape(id).dims != step_.flow.shape(own).dims || dim >= rank(id)) return kWhole;
    return extent(id, dim) % width == 0 ? dim : kWhole;
  }

  // The first dimension that the width leaves whole and the replicas divide, else the one of the width.
  int dividing_dim(NodeId id, int replicas, int width_dim, int width) const {
    for (int d = 0; d < rank(id); ++d) {
      if (d != width_dim && extent(id, d) > 0 && extent(id, d) % replicas == 0) return d;
    }
    const bool both = width_dim != kWhole && extent(id, width_dim) % (replicas * width) == 0;
    return both ? width_dim : kWhole;
  }

  const pipeline::PlanDocument& plan_;
  const graph::TrainingStep& step_;
  const StepCut& cut_;
  const ProgramSet& set_;
  std::map<int, std::vector<int>> dims_of_width_;  // by input, what the partition over a width splits
  std::vector<std::uint64_t> samples_;             // by node, the dimensions that hold samples
  std::map<NodeId, std::int32_t> weight_of_;       // the input that a weight is, that a gradient or a slot is of
};

}  // namespace

std::vector<GroupSplits> group_splits(const pipeline::PlanDocument& plan, const std::string& plan_source,
                                      const graph::Graph& graph, const StepCut& cut, const ProgramSet& set) {
  std::vector<GroupSplits> out(static_cast<std::size_t>(cut.num_groups()));
  const auto several = [](const pipeline::PlanStage& stage) { return stage.devices > 1; };
  if (std::none_of(plan.stages.begin(), plan.stages.end(), several)) return out;
  const Splitter splitter(plan, plan_source, graph, cut, set);
  for (int g = 0; g < cut.num_groups(); ++g) out[static_cast<std::size_t>(g)] = splitter.of_group(g);
  return out;
}

}  // namespace automap::programs
