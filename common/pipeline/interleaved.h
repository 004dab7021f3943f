// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): the positions are cut into S * v parts, and part p runs on
// device group p mod S, so that each of the S groups holds v chunks. Filling and draining takes 1 / v of the time;
// messages are v times as many, and more micro-batches are in flight. Groups are of equal size; every stage runs as one
// variant. Only simulated: V, the exact solver and the bounds are of plans whose stages are contiguous (cost.h).
#pragma once

#include <vector>

#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct InterleavedPlan {
  int groups = 3, chunks = 2;  // S >= 2, v >= 1; several chunks only with S >= 3, as Megatron asks
  std::vector<int> cuts;       // S * v - 1, strictly increasing within 1..n-1
  int variant = 0;             // of Problem's, of every part
  int parts() const { return groups * chunks; }
};

// One operation of a group: the forward or backward of one micro-batch (from 0) through one of its chunks (from 0).
struct ChunkOperation {
  int chunk = 0, micro_batch = 0;
  bool backward = false;
};
// What group `group` (from 0) does, in Megatron's order: (S - group - 1) * 2 + (v - 1) * S forwards, then forwards and
// backwards in turns, then the other backwards; micro-batches go through a chunk S at a time. With one chunk: 1F1B,
// K = S - group. Needs micro_batches to be a multiple of S where v > 1; M = S is no exception, as in some versions.
std::vector<ChunkOperation> interleaved_order(int groups, int chunks, int micro_batches, int group);

struct InterleavedTimes {
  int groups = 3, chunks = 2;
  bool sync_behind = false;                     // all of it behind the group's last backward (GradientSync::kAfter)
  std::vector<double> forward_ms, backward_ms;  // [S * v]
  std::vector<double> transfer_ms;              // [S * v - 1], one way, behind each part
  std::vector<std::vector<SyncBucket>> sync;    // [S * v]
  std::vector<double> behind_ms;                // [S]: exchange of shared gradients and optimizer, behind the sync
};

// The step in ms. Links are full-duplex, one FIFO for each direction between two neighbouring groups, the last and the
// first included (which with two groups would be the same pair: not simulated with several chunks). A group's gradients
// are summed bucket by bucket, as its chunks' last backwards make them ready.
double simulate_interleaved_ms(const InterleavedTimes& times, int micro_batches);

InterleavedTimes interleaved_times(const Problem& problem, const InterleavedPlan& plan);

// Bytes on each device of group `group` (from 0) at the fullest moment of its order.
double interleaved_memory_bytes(const Problem& problem, const InterleavedPlan& plan, int group);

// Whether the plan can run: cuts in order, equal groups of devices that divide the samples, the micro-batches a
// multiple of S, a variable in every group where stages need one, and within memory.
bool interleaved_feasible(const Problem& problem, const InterleavedPlan& plan);

}  // namespace automap::pipeline
