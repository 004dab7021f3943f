// Sums the times of instructions to times of a step and its positions, at any extents and on any device.
#pragma once

#include <cstdint>
#include <vector>

#include "common/machine/device.h"
#include "common/pipeline/profile.h"
#include "profile/batch_dims.h"
#include "profile/instruction_times.h"
#include "profile/step_positions.h"
#include "profile/time_estimator.h"
#include "profile/width_parts.h"

namespace automap::profile {

class StepTimes {
 public:
  // `backward`: the position that each backward node belongs to; `update`: that of the variable that an optimizer node
  // works for, kNone for several: these are spread over the positions as `weights` are. Of the branches of a
  // conditional the one that takes longest by `times` counts, for all times to come.
  StepTimes(const StepPositions& at, const InstructionTimes& times, const std::vector<std::int32_t>& backward,
            const std::vector<std::int32_t>& update, const std::vector<double>& weights);
  // `ms` of nodes that make weight gradients alone (makes_weight_gradients), and of loops over layers that share of a
  // turn (loop_weight_gradients.h).
  void tell_weight_gradients_apart(const StepPositions& at, const std::vector<std::int32_t>& backward,
                                   const graph::Graph& graph, const InstructionTimes& times);
  std::vector<double> weight_gradients(const std::vector<double>& ms) const { return add_up(weights_, ms); }

  // `ms` by instruction, here and below. In ms.
  struct Sum {
    double forward = 0, backward = 0, optimizer = 0, other = 0;
  };
  Sum sum(const std::vector<double>& ms) const;
  // The host time of both passes, by position; empty where neither pass can wait for it.
  struct HostOfPasses {
    std::vector<double> forward, backward;
  };
  HostOfPasses host_of_passes(const InstructionTimes::Host& host) const;
  // Times by position: forward and backward together, each by itself, the optimizer.
  std::vector<double> compute(const std::vector<double>& ms) const;
  std::vector<double> forward(const std::vector<double>& ms) const { return add_up(forward_, ms); }
  std::vector<double> backward(const std::vector<double>& ms) const { return add_up(backward_, ms); }
  std::vector<double> optimizer(const std::vector<double>& ms) const;
  // The node is in no branch that another one hides.
  bool runs(graph::NodeId id) const { return runs_[static_cast<std::size_t>(id)]; }

 private:
  struct Charge {
    graph::InstructionId instruction = graph::kNone;
    std::int32_t position = 0;
    double share = 1;
  };
  void find_running(const StepPositions& at, const InstructionTimes& times);
  std::vector<double> add_up(const std::vector<Charge>& charges, const std::vector<double>& ms) const;

  std::size_t size_ = 0;
  std::vector<bool> runs_;
  std::vector<Charge> both_, forward_, backward_, optimizer_;  // both_: in the order of the nodes
  std::vector<Charge> weights_;                                // those of backward_
  std::vector<graph::InstructionId> spread_, other_;
  std::vector<double> spread_share_;  // by position
};

// A width's collectives, by position and device.
struct CollectiveCharges {
  struct Charge {
    enum class When { kForward, kBackward, kUpdate };
    std::int32_t position = 0;
    When when = When::kForward;
    bool grows = false;  // with the samples
    double ms = 0, bytes = 0;
    machine::CollectiveTime time;
    double ms_at(double growth) const {
      const double own = time.ms(bytes);
      return grows && own > 0 ? ms * (time.ms(bytes * growth) / own) : ms;
    }
  };
  const WidthParts* parts = nullptr;
  std::vector<std::vector<Charge>> by_device;
};

// The times at each of `samples` (ascending) on each of `devices`, from the module's own (`times`, on the first
// device). `estimator` is of `graph`.
struct TimesAt {
  std::vector<pipeline::DeviceTimes> own;
  std::vector<std::vector<pipeline::DeviceTimes>> by_width;  // of `widths`, collectives included
  std::vector<std::vector<double>> weight_gradients_ms;      // by width and position, at the module's own samples
};
TimesAt times_at(const StepTimes& step, const TimeEstimator& estimator, const graph::Graph& graph,
                 const InstructionTimes& times, const BatchDims& batch,
                 const std::vector<machine::DeviceModel>& devices, const std::vector<std::int64_t>& samples,
                 const std::vector<CollectiveCharges>& widths);

}  // namespace automap::profile
