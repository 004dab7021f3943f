// A module as the partitioning planners see it: its flow with everything expanded, the roles of its inputs, the ties
// between values from step to step, and its linkage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/training_step.h"
#include "common/sharding/linkage.h"

namespace automap::sharding {

struct ModelInput {
  NodeId node = kNone;         // in ShardingModel::flow
  std::int32_t parameter = 0;  // number
  std::int32_t leaf = kNone;   // of a tuple parameter
  std::string parameter_name;  // HLO name
  std::string name;            // for people: params['layer_0']['attn']['q']['kernel']
  graph::InputRole role = graph::InputRole::kUnused;
  std::int32_t result = kNone;  // result leaf with its new value
};

struct ModelOptions {
  int shards = 8;
  const std::vector<graph::VariableRequest>* variables = nullptr;  // null: find them
  std::vector<Gather> gathers;
  bool halos = false;  // neighbours may exchange borders (LinkageOptions::halos)
};

class ShardingModel {
 public:
  // Throws as analyze_training_step; `graph` must stay alive. Modules without variables are fine (inference: the
  // weights are kFrozen).
  static ShardingModel build(const graph::Graph& graph, const ModelOptions& options);
  // The same module with other shards or gathers: only the linkage is made again. As to halos it stays as it was.
  void relink(int shards, std::vector<Gather> gathers);
  void relink(int shards, std::vector<Gather> gathers, bool halos);
  // The same module as another axis of a mesh sees it: one flow, a linkage of its own.
  ShardingModel another_axis(int shards) const;

  const graph::Graph& graph() const { return *graph_; }
  const graph::FlowGraph& flow() const { return *flow_; }     // whiles expanded with loop parameters, fusions expanded
  const graph::TrainingStep& step() const { return *step_; }  // its flow is another one; inputs in the same order
  const Linkage& linkage() const { return *linkage_; }
  // Sorted by parameter number, then leaf, as step().inputs.
  const std::vector<ModelInput>& inputs() const { return inputs_; }
  // Indices into inputs(). variables(): the trained variables (for an inference module its frozen weights:
  // floating-point parameters of rank >= 1 that are not activations as far as one can tell), in parameter order.
  // data(): the inputs that ADP decides: step inputs of rank >= 1. Frozen weights of a training module are in neither.
  const std::vector<std::int32_t>& variables() const { return variables_; }
  const std::vector<std::int32_t>& data() const { return data_; }
  // The number of times a node runs per step: the product of the trip counts of the loops around it (1 when unknown).
  double times(NodeId node) const { return times_[static_cast<std::size_t>(node)]; }
  // Leaves the module, or goes from turn to turn of a loop: has to be whole.
  bool is_kept(NodeId node) const { return (*kept_)[static_cast<std::size_t>(node)]; }
  const std::vector<Gather>& gathers() const { return gathers_; }
  bool halos() const { return halos_; }
  // True if partial sums of one group are added up before they are reduced, as far as the written module can have it
  // (written_sums.h). Else each is reduced where it arises. Stays with the module when it is linked anew.
  bool sums_combined() const { return sums_combined_; }
  void combine_sums(bool combined) { sums_combined_ = combined; }

  // The input a user means: exact name, HLO name (with or without '%'), index into inputs(), or a path ("params/wte",
  // "wte/embedding"; '/' or '.' between components) that matches whole path components at the end or the beginning of
  // exactly one name (a variable's slots and state, which share its path, aside). Throws Error(kUsage) naming near or
  // ambiguous names.
  std::int32_t find_input(const std::string& text) const;

 private:
  const graph::Graph* graph_ = nullptr;
  std::shared_ptr<const graph::FlowGraph> flow_;
  std::shared_ptr<const graph::TrainingStep> step_;
  std::shared_ptr<const std::vector<bool>> kept_;  // by node
  std::unique_ptr<Linkage> linkage_;
  std::vector<ModelInput> inputs_;
  std::vector<std::int32_t> variables_, data_;
  std::vector<double> times_;
  std::vector<Tie> ties_;
  std::vector<Gather> gathers_;
  bool sums_combined_ = false, halos_ = false;
};

// "params['wte']['embedding']" -> "params/wte/embedding"; "opt_state[0].mu['w']" -> "opt_state/0/mu/w". Names that are
// no pytree path come back as they are.
std::string path_of(const std::string& name);

}  // namespace automap::sharding
