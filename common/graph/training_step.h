// What a training step does: which instructions make the loss, which make the gradients, which update the variables.
//
// Forward is what the loss needs (its ancestors), whatever metadata calls it; backward is what else the gradients of
// the trained variables need; the optimizer is what else the updated variables and slots need; the rest is glue
// (metrics, running statistics). A module without gradients is an inference module: all of it is forward.
//
// Everything is found by data flow. When the loss is not among the results, the border is found from the two sets
// every node has: D, the variables it depends on, and G, the variables whose gradient depends on it. Along the forward
// pass D grows and G is complete; along the backward pass D is complete and G shrinks, so D within G is forward (or a
// helper that only the backward pass reads), and the two meet where D = G: around the loss. docs/profile.md.
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

struct TrainingStep {
  FlowGraph flow;
  std::vector<InstructionId> expanded_whiles;  // loops that are training steps themselves (gradient accumulation)
  std::vector<Part> part;                      // per node
  std::vector<EntryInput> inputs;
  std::vector<std::int32_t> variables;  // indices into inputs, in parameter order (or the order asked for)
  bool training = false;                // false: an inference module
  std::int32_t loss_result = kNone;     // the result leaf that is the loss; kNone when it is not returned
  NodeId loss_node = kNone;
  std::int64_t batch = 0;  // leading dimension of the step's data; 0 when unknown
  // "metadata" when op_names decided or confirmed the variables, else "dataflow".
  std::string split;
  // How each thing was found, one sentence each, for people.
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
};

// Throws Error(kData) when a requested variable does not exist.
TrainingStep analyze_training_step(const Graph& graph, const TrainingStepOptions& options = {});

}  // namespace automap::graph
