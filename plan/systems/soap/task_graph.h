// The task graph of a strategy (FlexFlow, section 5.1): the resource of every task, and the tasks that it waits for.
//
// - A forward task for every part of every operator, and behind it, where the operator has a backward pass, a backward
//   task. Its time is that of the operator without launches, divided by the number of parts, and its launches, over the
//   device's speed. (Not slower in small tiles, as kernels are.)
// - For a part that reads bytes of another operator's part: on the same device nothing but an order, else a message on
//   the link between the two devices. Where several parts hold the same slab, it comes from the one on the reader's
//   device, else from one in its server, else from the first. Gradients go the same ways back.
// - Weights that several devices hold: when the backward tasks of all parts that share them have ended, an all-reduce
//   of their gradients, as a ring through these devices in ascending order: a message on every hop's link, each as long
//   as the whole all-reduce takes by common/machine/collectives.h; then the optimizer on every device. (FlexFlow's code
//   sends gradients to one holder and weights back, or adds the time of reductions after the simulation; rings are what
//   frameworks do, and take part in the contention of links here.)
//
// A graph is kept in blocks, one for an operator and one for an edge, so that a change of one operator's configuration
// is a change of its block and of those of its edges (delta_simulation.h).
//
// Every task has an order number. It respects dependence, depends on nothing but the strategy, and decides ties between
// tasks that are ready at the same time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/systems/soap/machine_links.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

using TaskOrder = std::uint64_t;

struct Task {
  double ms = 0;
  std::int32_t resource = kNone;  // kNone: waits for nobody, and takes no time (all members of a ring are there)
  TaskOrder order = 0;
};

// Local numbers: forward tasks 0 .. parts-1; backward tasks behind them, where there are any; then those of the
// weights.
struct OperatorBlock {
  std::int32_t parts = 0;
  bool backward = false;
  std::vector<Task> tasks;
  // The tasks before and behind each task in this block, by local number.
  std::vector<std::int32_t> first_before, before, first_behind, behind;

  std::int32_t forward_task(std::int32_t part) const { return part; }
  std::int32_t backward_task(std::int32_t part) const { return parts + part; }
};

// A part of the producer whose bytes a part of the consumer reads.
struct PartPair {
  std::int32_t producer = 0, consumer = 0;     // parts
  std::int32_t message = kNone, back = kNone;  // local numbers of the messages; kNone: same device
  bool has_back = false;                       // gradients come back
};

struct EdgeBlock {
  std::vector<Task> tasks;                                   // messages
  std::vector<std::int32_t> pair_of;                         // of a message
  std::vector<PartPair> pairs;                               // by consumer's part, then producer's
  std::vector<std::int32_t> first_of_consumer;               // by part, one more: into pairs
  std::vector<std::int32_t> first_of_producer, of_producer;  // by part, one more: into of_producer, which holds pairs
};

OperatorBlock operator_block(const Space& space, OperatorId op, const Config& config, const MachineLinks& machine);
EdgeBlock edge_block(const Space& space, std::int32_t edge, const Config& producer, const Config& consumer,
                     const MachineLinks& machine);

// Bytes that messages and rings move over links per step.
double bytes_moved(const Space& space, const Strategy& strategy, const MachineLinks& machine);

}  // namespace automap::soap
