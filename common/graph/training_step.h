// Analyzes a training step: finds the instructions that make the loss, the gradients, and the updates of the variables.
//
// Forward is all that the loss needs (its ancestors), whatever metadata calls it; backward is all else that the
// gradients of the trained variables need; the optimizer is all else that the updated variables and slots need; the
// rest is glue (metrics, running statistics). A module without gradients is an inference module: all of it is forward.
//
// Everything is found by data flow. When the loss is not among the results, the border is found from the two sets every
// node has: D, the variables it depends on, and G, the variables whose gradient depends on it. Along the forward pass D
// grows and G is complete; along the backward pass D is complete and G shrinks, so D within G is forward (or a helper
// that only the backward pass reads), and the two meet where D = G: around the loss. docs/profile.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/dependence.h"
#include "common/graph/graph.h"
#include "common/graph/variables.h"

namespace automap::graph {

enum class Part : std::uint8_t {
  kInput,  // a parameter
  kFree,   // computed from constants and iota alone
  kForward,
  kBackward,
  kOptimizer,
  kGlue,
};
const char* to_string(Part part);

// An input dimension that holds the samples of a step.
struct BatchInput {
  std::int32_t input = 0;  // index into TrainingStep::inputs
  std::int32_t dim = 0;
};

struct TrainingStep {
  FlowGraph flow;
  // Loops that run the whole pass themselves, the outermost first: micro-batches whose gradients they add up, or
  // several steps. Everything here is of one of their turns.
  std::vector<InstructionId> expanded_whiles;
  InstructionId micro_batch_loop = kNone;  // the one of them that adds gradients up
  std::int64_t micro_batches = 1;          // its turns; 1 when there is none, or nobody knows
  std::vector<Part> part;                  // per node
  std::vector<EntryInput> inputs;
  std::vector<std::int32_t> variables;  // indices into inputs, in parameter order (or the order asked for)
  bool training = false;                // false: an inference module
  std::int32_t loss_result = kNone;     // the result leaf that is the loss; kNone when it is not returned
  NodeId loss_node = kNone;
  std::int64_t batch = 0;  // samples of one pass: the leading dimension of the step's data; 0 when unknown
  std::vector<BatchInput> batch_inputs;  // where they come in; those asked for, or the data that leads with `batch`
  bool batch_ambiguous = false;          // as many inputs lead with another dimension
  // "metadata" when op_names decided or confirmed the variables, else "dataflow".
  std::string split;
  // The way each of the two was found, one sentence each, for people.
  std::string variables_found_by, loss_found_by;
  std::vector<std::string> warnings;

  std::int32_t count(InputRole role) const;
};

struct TrainingStepOptions {
  const std::vector<VariableRequest>* variables = nullptr;  // null: find them
  // Weight of each InstructionId (milliseconds, or any measure of work), used to compare candidates for the loss.
  // Empty: every instruction counts its result's bytes.
  std::vector<double> weight;
  bool ignore_loss = false;  // as if the loss were not returned (tests)
  // The inputs whose leading dimension is the batch; null: found.
  const std::vector<VariableRequest>* batch_inputs = nullptr;
};

// Throws Error(kData) when a requested variable or input does not exist, or when the batch inputs disagree.
TrainingStep analyze_training_step(const Graph& graph, const TrainingStepOptions& options = {});

}  // namespace automap::graph
