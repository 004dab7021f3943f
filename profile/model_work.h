// Counts the compute of a step by the field's conventions, from which its time gives utilization: model FLOPs (MFU) and
// those that hardware executes (HFU), both of matrix products and convolutions (Chowdhery et al., PaLM, appendix B).
#pragma once

#include <cstdint>

#include "common/graph/graph.h"
#include "common/graph/training_step.h"
#include "profile/fused_chains.h"
#include "profile/instruction_times.h"

namespace automap::profile {

// The work of one pass over the module's own samples; loops count as often as they turn.
struct ModelWork {
  // FLOPs of the forward pass. Causal and banded attention counts as in a kernel that skips what the mask hides,
  // whether one is used or not.
  double forward_flops = 0;
  // FLOPs of a training step, the forward pass and its gradients: three times the forward pass, or less where not all
  // that it reads is trained (frozen parts, the first layer's input), whatever it recomputes. For inference those of
  // the forward pass.
  double model_flops = 0;
  // FLOPs of the module as written, recomputed copies included, without those that its fused kernels skip.
  double executed_flops = 0;
  // FLOPs of the forward pass that the backward pass recomputes, beside those that gradients of attention always do
  // (rematerialization, jax.checkpoint): products beyond two for each of the forward pass. 0 for inference.
  double repeated_flops = 0;
  double repeated_share() const { return forward_flops > 0 ? repeated_flops / forward_flops : 0; }
  std::int64_t masked_attentions = 0;  // of the forward pass, of which forward_flops leaves a part out
  // True for a decoder, as MaxText and torchtitan train them: all attention whose mask is known only looks back, and
  // some of it is causal.
  bool decoder = false;
  std::int64_t tokens = 0;  // token ids of a sample; 0: no input holds any
};

// `runs`: by node of the step's flow, false where it is in a branch that another one hides. `used`: the chains that
// are estimated as kernels; null: none. `whiles`: of the whole module.
ModelWork model_work(const graph::Graph& graph, const graph::TrainingStep& step, const std::vector<bool>& runs,
                     const FusedChains* used, const std::vector<InstructionTimes::While>& whiles);

}  // namespace automap::profile
