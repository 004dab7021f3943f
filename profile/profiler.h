// Makes the profile that planners read from an HLO module: c, a, w, k per forward instruction, φ, and how it was found.
//
// - c: forward time of the instruction plus that of the backward instructions that belong to it. A backward
//   instruction belongs to the forward instruction whose weight or activation it reads, the latest that the gradient
//   flowing into it can have reached; none is lost: Σc = forward + backward time. The optimizer's time is reported
//   beside it.
// - a: bytes of the activations that are made up to the instruction and read behind it. Each tensor once, in the
//   smallest form it has been in (a broadcast or a wider copy is made again on the other side). Parameters do not
//   travel, nor does what is cheaply computed from constants and step inputs.
// - w: bytes of the variables that the instruction is the first to use.
// - k (stash): bytes of the activations that the backward pass reads, at the instruction that makes them.
// - The module at other numbers of samples: its batch dimensions (batch_dims.h) resized, its times estimated anew.
// docs/profile.md explains the choices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/flow_order.h"
#include "common/graph/graph.h"
#include "common/graph/layers.h"
#include "common/graph/training_step.h"
#include "common/graph/variables.h"
#include "common/pipeline/profile.h"
#include "profile/instruction_times.h"
#include "profile/model_work.h"
#include "profile/time_estimator.h"
#include "profile/width_parts.h"

namespace automap::profile {

struct TrainableVariable {
  std::string parameter;    // HLO name
  std::int32_t number = 0;  // parameter number
  std::string name;         // for people
  std::string shape;        // "f32[768,3072]"
  double bytes = 0;
  std::int32_t first_use = 0;  // forward instruction (1-based) that its w is charged to
  std::int32_t last_use = 0;   // the last forward instruction that reads it
  std::int32_t uses = 0;       // forward instructions that read it
  bool has_gradient = true;
  double gradient_bytes = 0;  // in the type that it is reduced in
  double slot_bytes = 0;      // of the slots that are known to be its own
};

// A variable that is used in places that a cut can part (a tied embedding): both stages hold it, and its gradient has
// to be added up between them.
struct SharedVariable {
  std::int32_t variable = 0;  // index into variables
  std::string first_layer, last_layer;
};

// A loop that is one position and holds so much that it decides what a pipeline can do. (Loops over layers are cut into
// their turns: layer_loops.h.)
struct UncutLoop {
  std::int32_t position = 0;                   // 1-based
  std::int64_t turns = 0;                      // 0: not known
  bool layers = false;                         // it works on weights that are stacked, one layer per turn
  std::string why;                             // it is not cut
  double compute_share = 0, weight_share = 0;  // of the whole module
};

struct LayerSummary {
  std::string name;
  std::int32_t first_instruction = 0, last_instruction = 0;  // 1-based
  double c_ms = 0, w_bytes = 0, stash_bytes = 0;
  double a_bytes = 0;  // crossing the cut behind it
};

struct MemorySummary {
  double variable_bytes = 0, slot_bytes = 0, frozen_bytes = 0, state_bytes = 0, input_bytes = 0, stash_bytes = 0;
};

// Chains that are estimated as kernels of libraries (fused_chains.h), of the devices that have them.
struct FusionSummary {
  bool looked_for = false, only_16bit = true;
  std::string found;                              // FusedChains::summary
  std::int64_t missed = 0;                        // softmaxes of scores that were not taken
  std::int64_t missed_type = 0, missed_head = 0;  // FusedChains
  std::string without_kernels;  // a device that lacks them: its times and what all devices keep are as written
};

// The place where an instruction's time is counted, for times that were measured (profile/measured).
struct WorkPlace {
  graph::InstructionId instruction = graph::kNone;
  graph::Part part = graph::Part::kForward;                // or kBackward, kOptimizer, kGlue
  std::int32_t first = graph::kNone, last = graph::kNone;  // positions, 0-based, of both passes; of a loop its turns
  double ms = 0;                                           // estimated, on the first device
};

struct ModelProfile {
  pipeline::Profile profile;
  std::vector<TrainableVariable> variables;
  std::vector<SharedVariable> shared;
  std::vector<LayerSummary> layers;
  MemorySummary memory;
  bool training = false;
  FusionSummary fusion;
  std::string split;  // "metadata" or "dataflow"
  std::string variables_found_by, loss_found_by;
  std::int32_t loss_result = -1;  // result leaf; -1: not returned, or inference
  bool layers_from_metadata = false;
  // Times of one execution on the device, in ms. Σ c_ms = forward + backward.
  double forward_ms = 0, backward_ms = 0, optimizer_ms = 0, other_ms = 0;
  // FLOPs by XLA's conventions (while bodies count once).
  double forward_flops = 0, total_flops = 0;
  // Loops as often as they run.
  double executed_forward_flops = 0, executed_flops = 0;
  ModelWork work;
  // Loops that hold most of the compute or of the weights and cannot be cut. `warnings` says it too.
  std::vector<UncutLoop> uncut_loops;
  std::vector<WorkPlace> places;  // where they were asked for; an instruction that is called from several has several
  bool optimized = false;         // HLO after optimization, whose variables nobody can find; `warnings` says it too
  // The reason why profile.times is empty although times were asked for; `warnings` says it too.
  std::string times_problem;
  std::vector<std::string> warnings;
};

struct ProfilerOptions {
  std::string model;   // name for people
  std::string device;  // name of the reference device
  std::string source_sha256;
  const std::vector<graph::VariableRequest>* variables = nullptr;     // null: find them
  const std::vector<graph::VariableRequest>* batch_inputs = nullptr;  // null: find them
  bool ignore_loss = false;                                           // tests: as if the loss were not returned
  bool whole_loops = false;                                           // loops over layers stay one position
  // The estimator of the times, which also estimates them at other numbers of samples; null: no times are estimated.
  const TimeEstimator* estimator = nullptr;
  std::vector<machine::DeviceModel> devices;  // whose times to estimate; the first one's are `times`
  std::vector<std::int64_t> samples;          // how many a replica computes of a micro-batch; empty: default_samples
  std::vector<WidthParts> widths;             // of replicas of several devices; for Profile::widths
  bool places = false;                        // ModelProfile::places are wanted
};

// Powers of two from 1 to four times the module's batch, or to 32, and the batch itself; ascending.
std::vector<std::int64_t> default_samples(std::int64_t batch);

// Throws Error(kData) when the module has nothing to plan (fewer than two forward instructions), when a requested
// variable or batch input does not exist, or when an attribute that costs are made from is malformed.
ModelProfile build_profile(const graph::Graph& graph, const InstructionTimes& times, const ProfilerOptions& options);

}  // namespace automap::profile
