// Makes the SOAP space of a module: its operators, the dimensions that they can be split along, and their costs.
//
// An operator is what FlexFlow calls a layer: one heavy instruction of the forward pass (a product, convolution,
// window, gather, concatenation, sort, loop, call, ...) with the light ones that follow from it (element-wise work,
// movement), or the reductions of another one's results, with the instructions that follow from them (normalizations,
// softmax, losses). A light instruction belongs to the latest operator that it reads, so operators have an order.
// Values made of weights or of the step's inputs alone, cheaply (profile's preparations), belong to every operator that
// reads them.
//
// The backward pass and the update have no operators of their own. As in FlexFlow an operator has one configuration for
// both passes: its backward task is the time of those backward instructions that profile/step_positions.h gives to its
// forward ones, and its gradients go back the ways that its inputs came. The optimizer's time goes to the operator that
// has the variable. common/graph/training_step.h decides which instructions are forward, backward and update; a module
// without gradients has forward tasks only. Instructions of no pass (metrics, running statistics) are not in the step.
//
// Dimensions come from the rules of common/sharding: dimensions of the operator's tensors that can only be split
// together are one. Those of the main instruction's result (of a reduction: of its operand) can be split where no
// instruction of the operator forbids it. It is
//   - a sample dimension, where it holds samples (profile/batch_dims.h);
//   - else a parameter dimension, where it is one of a weight that the operator reads;
//   - else an attribute dimension.
// Dimensions that are summed up inside the operator are not split, as in the paper (contracted ones are not in the
// result), except for samples: parts then have statistics of their own, as batch normalization has under data
// parallelism. Windows are split along space: a part reads its neighbours' borders.
//
// A variable that several operators read lies with the first one; the others read it like any tensor, and send back its
// gradient. Gradients go back for floating-point tensors on the way to a variable. Step inputs are at hand everywhere.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/training_step.h"
#include "common/machine/device.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

// The layout of a tensor of the module in an operator, for writing a strategy down.
struct LaidTensor {
  OperatorId op = kNone;           // kNone: in none
  std::vector<std::int32_t> dims;  // by dimension of the tensor, the operator's that splits it; kNone: none does
};

struct ModelSpace {
  Space space;
  bool training = false;
  double forward_ms = 0, backward_ms = 0, update_ms = 0;  // sums over the operators, on the reference device
  double left_out_ms = 0;                                 // of instructions of no pass
  // The names of the forward instructions of each operator, in order.
  std::vector<std::vector<std::string>> instructions;
  // Results of the first instruction of each operator, by instruction: arrays only; an instruction that stands in
  // several places (a function that is called twice) and lies differently there is left out.
  std::map<graph::InstructionId, LaidTensor> made;
  std::vector<LaidTensor> inputs;  // as TrainingStep::inputs: variables, and slots of their shape; others lie in none
  std::vector<std::string> warnings;
};

// `step` as analyze_training_step made it of `graph`. Throws Error(kData) when the module has no operator, and as
// profile::estimate_times.
ModelSpace operators_of(const graph::Graph& graph, const graph::TrainingStep& step, const machine::DeviceModel& device);

}  // namespace automap::soap
