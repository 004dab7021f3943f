// The paper's own view of the pipeline environment (paper 4.4, 4.5): at each stage boundary it decides first the device
// cut, then the pivot, both from one 128-wide action space; the state is the flat vector C', A', W', device matrix,
// partition so far. It serves the `faithful` preset and the ablation, with the same problems, masks and values as
// plan_space.h.
//
// Action a is device cut number a of PlanSpace::device_cuts() where a device cut is to be chosen, else point a + 1.
// Legal are exactly the pairs that PlanSpace::append() takes; a device cut is legal when some pivot is legal with it.
// So an episode only ends early where memory leaves no way on.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/pipeline/row.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::models {

class FlatEnv {
 public:
  static constexpr int kActions = pipeline::kGranularity;
  static constexpr int kMostDeviceCuts = 64;
  static constexpr int kMatrix = 32;
  // The features of FlatInput::kPerAction, [action][feature], all in [0, 1] and 0 for actions that are not legal. They
  // describe the after-state, which for a device cut is the one with its best pivot by bound; T, t, U are its last
  // stage's compute, the transfer into it and the remaining work over all remaining devices:
  //   1, 1 - root bound / bound, M T / bound, (M+1) t / bound, M U / bound, all-reduce residue / bound,
  //   memory use of the last stage / capacity, 1 - bound / best rollout (1: none is feasible).
  static constexpr int kActionFeatures = 8;

  // The row's three arrays are taken from the space's problem, at its points (after the last one: its value again).
  // Throws Error(kUsage) when the space has more than 128 pivots or 64 device cuts.
  FlatEnv(const PlanSpace& space, FlatInput input);

  // kRaw: C'[128], A'[128], W'[128] (divided by their joint maximum), the bandwidth between devices over the largest
  // [32][32] (more devices are thinned out, fewer leave zeros), 1 up to the current point [128], 1 at every cut made
  // [128] and device cut made [64], and ten numbers (see flat_env.cpp).
  // kPerAction: [128][kActionFeatures].
  static int state_size(FlatInput input);

  void reset();
  bool done() const;                    // all S-1 boundaries decided, or no legal action left
  bool choosing_devices() const;        // else a pivot
  void state(float* out) const;         // state_size(input) floats in [0, 1]
  void legal(std::uint8_t* out) const;  // kActions bytes, 1 = legal; also used by step()
  // Throws Error(kInternal) for an action that is not legal.
  void step(int action);
  // V of the decisions so far; kInfinity when infeasible or incomplete.
  double value_ms() const;
  const std::vector<int>& actions() const { return actions_; }
  pipeline::Plan plan() const;  // complete only

 private:
  void find_legal();
  int device_cut(int action) const { return space_.device_cuts()[static_cast<std::size_t>(action)]; }
  void raw_state(float* out) const;
  void per_action_state(float* out) const;
  void action_features(const Prefix& child, float* out) const;

  const PlanSpace& space_;
  FlatInput input_;
  std::vector<int> actions_;
  Prefix root_, prefix_;
  std::array<std::uint8_t, kActions> legal_{};
  bool any_legal_ = false;
  std::vector<float> row_;            // what of the raw state never changes: C', A', W', matrix
  std::vector<double> speed_behind_;  // [device cut]: sum over the devices behind it
  double state_bytes_ = 0;            // of training state when it exists once
};

// Q of all actions: the flat network's native forward pass, minus Policy::predict_actions(). `policy` as
// Learner::policy() of the flat family.
void flat_q(const Policy& policy, const float* state, float* q);

}  // namespace automap::models
