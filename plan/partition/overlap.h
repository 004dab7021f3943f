// The time of a step when collectives run beside compute: the estimate of `--overlap`.
//
// A device computes one instruction at a time, and one collective at a time runs over each axis. An instruction starts
// when its operands are there; a collective when the instruction whose result it moves is done. Of several instructions
// that could start, the one with the longest way to the end of the step does, as XLA's latency-hiding scheduler moves
// instructions that nobody waits for beside a collective; collectives of an axis start in the order in which they
// become ready. Collectives of one tensor follow each other: sums before the collective that hands the tensor on, the
// axis that is nested in the other one first. A sum is awaited by all readers, a gather by those that read the gathered
// tensor; a collective that nobody awaits (new values of variables, gathered for the next step) ends with the step at
// the latest.
//
// A loop is one piece: its turns run one after the other, each with its own compute and collectives overlapped and all
// of them ended with it, and nothing from outside computes meanwhile, nor runs on an axis that the loop uses. So is a
// conditional, with the branches that PartitionCost counts.
//
// Times are those of PartitionCost::parts(), so that max(compute, collectives of either axis) <= overlapped <= compute
// + collectives, whatever the module. Collectives that go out together share their wait, and start one by one all the
// same. Not counted: a running collective slows the compute beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/sharding/propagation.h"
#include "plan/partition/partition_cost.h"

namespace automap::partition {

// A piece of work, for the schedule alone.
struct StreamTask {
  double ms = 0;
  std::uint8_t streams = 0;          // bits; it needs all of them at once. None: it takes no time
  std::vector<std::int32_t> before;  // tasks that it must wait for
};
constexpr std::uint8_t kComputeStream = 1;
// 0: the axis itself, 1: the other one of a mesh.
constexpr std::uint8_t axis_stream(int axis) {
  return static_cast<std::uint8_t>(2U << static_cast<unsigned>(axis));
}

// When the last of them ends. Whenever a stream becomes free: of the tasks that need kComputeStream and whose streams
// are all free the one with the longest way to the end (itself included; of equal ones the first) starts; then on every
// other stream the one that has been ready for longest (else likewise). The tasks must not wait for each other in a
// circle.
double list_schedule_ms(const std::vector<StreamTask>& tasks);

// The overlapped time of one step, ms.
double overlapped_ms(const PartitionCost& cost, const sharding::Propagation& decided);

// PartitionCost::estimate(), with `overlapped_ms` where `overlap` asks for it.
PlanEstimate estimate_step(const PartitionCost& cost, const sharding::Propagation& decided, bool overlap);

}  // namespace automap::partition
