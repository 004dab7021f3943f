// The inner loop of the plan space: it bounds V for every point at which the next stage may end, for one group of
// devices. The fastest variant that the processor can run is chosen at run time; all give the same bits.
#pragma once

namespace automap::models {

// The inputs of the bound of one boundary, except the pivot: a stage from one point on, on one group of devices.
struct StageScan {
  float path = 0, arrived = 0, steady_from = 0, residue_from = 0, drained = 0;  // of what stands in front of it
  float per_work = 0, ring = 0;                                                 // ms per ms of work, per byte
  float steady = 0, own_steady = 0, in_flight = 0, laps = 0;
  float steady_behind = 0;                          // PlanSpace::Tables::steady_behind
  float per_byte = 0;                               // of the transfer out of it
  float per_rest = 0, ring_rest = 0, backward = 0;  // of what is left; ring_rest: it is one stage
  float work_from = 0, work_end = 0, weight_from = 0, weight_end = 0;
  float least = 0;  // what is known already
  // The boundaries still to come behind this one, by point from the first on: the bytes of the cheapest cuts in all and
  // of the largest among them, and the ms per byte of the best link behind.
  const float* behind_sum = nullptr;
  const float* behind_largest = nullptr;
  float per_behind = 0;
  bool full = true;
};

// bound[0..last-first]: what V of no plan is below that ends the stage at points first..last (but for the stall lines
// of the stages before and for latencies). work, weight, activation: by point.
void scan_boundary(const StageScan& scan, const float* work, const float* weight, const float* activation, int first,
                   int last, float* bound);

}  // namespace automap::models
