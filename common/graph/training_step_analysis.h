// The parts of analyze_training_step, over several files: training_step.cpp (the whole, parts, roles),
// training_step_variables.cpp, training_step_loops.cpp (loops that run the pass, the batch), training_step_loss.cpp,
// training_step_state.cpp (the optimizer's state).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/graph/training_step.h"

namespace automap::graph {

class StepAnalysis {
 public:
  StepAnalysis(const Graph& graph, const TrainingStepOptions& options) : graph_(graph), options_(options) {}

  TrainingStep run();

 private:
  using Marks = std::vector<bool>;
  using ResultOf = std::unordered_map<std::int32_t, std::int32_t>;  // input -> result leaf with its new value
  // An input and the result leaf that may be its new value.
  struct Candidate {
    std::int32_t input = kNone, result = kNone;
  };
  // The slice of an input that one iteration of a loop reads: [turns, samples, ...] by index, or [turns * samples, ...]
  // by ranges.
  struct TurnSlice {
    std::int32_t input = kNone, dim = 0;
    std::int64_t samples = 0;
  };
  struct Border {
    Marks forward;
  };
  // The result that is the loss, and what it needs.
  struct LossChoice {
    std::int32_t result = kNone;
    std::int64_t covered = 0, size = 0;  // instructions it needs: of the forward pass by the border, and in all
    Marks marks;
    int candidates = 0;
  };

  std::size_t n() const { return static_cast<std::size_t>(flow_->size()); }
  void analyze(TrainingStep* step);
  void close_over_ancestors(Marks* marks) const;
  Marks ancestors_of(const std::vector<NodeId>& nodes) const;
  double weight(NodeId id) const;
  double weight_of(const Marks& marks, const Marks* within = nullptr) const;

  // --- Variables ---
  void find_variables(TrainingStep* step);
  void take_requested(TrainingStep* step, const std::vector<std::int32_t>& aliases) const;
  std::vector<std::pair<std::int32_t, std::int32_t>> pair_by_depth(const std::vector<EntryInput>& inputs,
                                                                   const Marks& core,
                                                                   const std::vector<bool>& paired) const;
  std::unordered_map<std::int32_t, std::int32_t> pair_results(const std::vector<EntryInput>& inputs,
                                                              const std::vector<std::int32_t>& aliases,
                                                              const std::vector<std::int32_t>& wanted) const;
  void keep_self_dependent(const std::vector<EntryInput>& inputs, std::vector<Candidate>* candidates) const;
  void spread_forward(std::vector<std::uint64_t>* mask) const;
  bool is_same_barrier(NodeId first, NodeId other) const;
  bool reads_twice(const std::vector<EntryInput>& inputs, const std::vector<Candidate>& candidates) const;

  // --- Loops and the batch ---
  InstructionId find_state_loop() const;
  InstructionId find_whole_step_loop(const TrainingStep& step) const;
  void describe_loops(TrainingStep* step) const;
  std::vector<TurnSlice> find_turn_slices(const TrainingStep& step) const;
  std::int64_t find_batch(TrainingStep* step, const ResultOf& result_of, const Marks& reads) const;
  std::int64_t named_batch(TrainingStep* step, const std::vector<TurnSlice>& slices) const;
  std::int64_t guess_batch(const TrainingStep& step, const ResultOf& result_of, const Marks& reads,
                           bool* ambiguous) const;

  // --- Loss ---
  void find_loss(TrainingStep* step);
  LossChoice choose_loss(const Border& border, const Marks& is_gradient,
                         const std::vector<NodeId>& variable_nodes) const;
  void count_sets(const Marks& needed, const std::vector<NodeId>& gradients, const std::vector<NodeId>& variable_nodes,
                  std::vector<std::int32_t>* d_count, std::vector<std::int32_t>* g_count, Marks* outside) const;
  void deepen_gradients(TrainingStep* step, std::vector<NodeId>* gradients) const;
  bool looks_trained(const TrainingStep& step) const;
  Border find_border(const Marks& needed, const std::vector<NodeId>& gradients,
                     const std::vector<NodeId>& variable_nodes) const;

  // --- Parts and roles ---
  void assign_parts(TrainingStep* step);
  void assign_roles(TrainingStep* step);
  bool is_state_by_use(const TrainingStep& step, const EntryInput& input) const;
  void check_state(TrainingStep* step) const;
  void list_batch_inputs(TrainingStep* step) const;
  void describe(TrainingStep* step);

  const Graph& graph_;
  const TrainingStepOptions& options_;
  const FlowGraph* flow_ = nullptr;
  Marks free_, forward_, backward_, from_gradient_;
  std::vector<ResultUpdate> updates_;
};

bool is_matmul(Opcode opcode);
bool is_weight_name(const std::string& name);

}  // namespace automap::graph
