// Cuts a training step by a pipeline plan: decides which program makes each value of the step.
//
// A part of the model has a forward and a backward, which run once for every micro-batch, and each group of devices has
// an update, which runs once. Values that are cheap and depend on weights, constants or the batch alone, and
// broadcasts, are made again wherever they are read. An update that needs values of other groups (clipping by the
// global norm) has several phases: a value goes from one group to another between two of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/flow_order.h"
#include "common/graph/graph.h"
#include "common/graph/training_step.h"

namespace automap::programs {

enum class Kind : std::uint8_t {
  kRepeat,  // made again wherever it is read; inputs of the step, too, are at hand there
  kForward,
  kBackward,
  kUpdate
};

// The place where a value is made: the forward or the backward of a part, or a phase of a group's update. All from 0.
struct Unit {
  Kind kind = Kind::kRepeat;
  int part = 0;   // of kUpdate the group
  int phase = 0;  // of kUpdate
  bool operator==(const Unit& o) const { return kind == o.kind && part == o.part && phase == o.phase; }
};

struct CutRequest {
  std::vector<int> cuts;           // forward positions behind which a part ends, from 1, ascending
  std::vector<int> group_of_part;  // from 0
  int micro_batches = 1;
  bool whole = false;  // the step of one part, its forward within its backward: what plans are compared with
};

class StepCut {
 public:
  // `step` must stay alive, and be a training step of the module that `order` orders. Throws Error(kData) naming the
  // tensor that cannot be cut around.
  StepCut(const graph::TrainingStep& step, const graph::FlowOrder& order, CutRequest request);

  const graph::TrainingStep& step() const { return step_; }
  const CutRequest& request() const { return request_; }
  int num_parts() const { return static_cast<int>(request_.group_of_part.size()); }
  int num_groups() const { return groups_; }
  int num_phases() const { return phases_; }
  const Unit& unit(graph::NodeId id) const { return unit_[static_cast<std::size_t>(id)]; }
  int group(const Unit& unit) const {
    return unit.kind == Kind::kUpdate ? unit.part : request_.group_of_part[static_cast<std::size_t>(unit.part)];
  }
  // The place where a result is made: unit(); for a value that is made again wherever it is read, the last unit that it
  // needs, else the update of `group`.
  Unit home(graph::NodeId id, int group) const;
  // The input that the node is; kNone.
  std::int32_t input_of(graph::NodeId id) const { return input_of_[static_cast<std::size_t>(id)]; }
  // Another one for every micro-batch.
  bool is_batch(std::int32_t input) const { return batch_[static_cast<std::size_t>(input)]; }
  // The group that makes the input's new value.
  int owner(std::int32_t input) const { return owner_[static_cast<std::size_t>(input)]; }
  bool is_gradient(graph::NodeId id) const { return gradient_[static_cast<std::size_t>(id)]; }
  // It differs between the micro-batches of a step.
  bool of_micro_batch(graph::NodeId id) const { return of_batch_[static_cast<std::size_t>(id)]; }
  // "name" of an instruction with its shape, for messages.
  std::string named(graph::NodeId id) const;

 private:
  // The needs of a value that follow from its operands; a value that is made again where it is read passes them on.
  struct Carried {
    int forward = -1, backward = -1;  // the last part of a forward that it needs, the first of a backward
    bool once = false;                // needs an update
    int group = -1;                   // of an update's votes
    int phase = 0;
    std::int64_t bytes = 0;
  };
  void find_inputs();
  void place();
  void place_once(graph::NodeId id, const Carried& reads);
  void place_owners();
  Carried carried(graph::NodeId id) const;
  Carried reads_of(graph::NodeId id) const;
  int part_at(std::int32_t position) const;

  const graph::TrainingStep& step_;
  const graph::FlowGraph& flow_;
  const graph::FlowOrder& order_;
  CutRequest request_;
  int groups_ = 1, phases_ = 1;
  std::vector<Unit> unit_;
  std::vector<Carried> carried_;
  std::vector<std::int32_t> input_of_;
  std::vector<int> owner_;
  std::vector<bool> batch_, gradient_, of_batch_;
};

}  // namespace automap::programs
