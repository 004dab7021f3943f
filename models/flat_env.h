// The paper's own view of the pipeline environment (paper 4.4, 4.5): per stage boundary first the device cut, then the
// pivot, both from one 128-wide action space; the state is the flat vector C', A', W', device matrix, partition so far.
// For the `faithful` preset and the ablation. The same problems, masks and values as plan_space.h.
#pragma once

#include <cstdint>
#include <vector>

#include "common/pipeline/row.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::models {

class FlatEnv {
 public:
  // The row's three arrays are taken from the space's problem.
  FlatEnv(const PlanSpace& space, FlatInput input);

  static int state_size(FlatInput input);
  static constexpr int kActions = pipeline::kGranularity;

  void reset();
  bool done() const;                    // all S-1 boundaries decided, or no legal action left
  bool choosing_devices() const;        // else a pivot
  void state(float* out) const;         // state_size(input) floats in [-1, 1] (raw: [0, 1])
  void legal(std::uint8_t* out) const;  // kActions bytes, 1 = legal; also used by step()
  void step(int action);
  // Of the decisions so far; kInfinity when infeasible or incomplete.
  double value_ms() const;
  const std::vector<int>& actions() const { return actions_; }
  pipeline::Plan plan() const;  // complete only

 private:
  const PlanSpace& space_;
  FlatInput input_;
  std::vector<int> actions_;
  Prefix prefix_;
  std::vector<float> row_;
};

// Q of all actions: the flat network's native forward pass, minus Policy::predict_actions(). `policy` as
// Learner::policy() of the flat family.
void flat_q(const Policy& policy, const float* state, float* q);

}  // namespace automap::models
