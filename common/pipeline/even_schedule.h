// Schedules of even groups of devices that fill the pipeline's bubbles. Every stage runs as one variant. Only
// simulated: V, the exact solver and the bounds are of 1F1B (cost.h).
//
// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): the positions are cut into S * v parts, and part p runs on
// device group p mod S, so that each of the S groups holds v chunks. Filling and draining takes 1 / v of the time;
// messages are v times as many, and more micro-batches are in flight.
//
// ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism"): the backward of a micro-batch is two passes. The first
// makes what the group in front waits for, the second gradients of weights, which wait until there is time: filling and
// draining takes (S - 1) (F + B - W) instead of (S - 1) (F + B + W). S micro-batches are in flight on every group.
#pragma once

#include <vector>

#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct EvenPlan {
  int groups = 3, chunks = 2;  // S >= 2, v >= 1; several chunks only with S >= 3, as Megatron asks
  bool zero_bubble = false;    // ZB-H1, of one chunk, without recomputation and with ZeRO 0 or 1
  std::vector<int> cuts;       // S * v - 1, strictly increasing within 1..n-1
  int variant = 0;             // of Problem's, of every part
  int parts() const { return groups * chunks; }
};

// One operation of a group: the forward or backward of one micro-batch (from 0) through one of its chunks (from 0).
struct ChunkOperation {
  int chunk = 0, micro_batch = 0;
  bool backward = false;
  bool weights = false;  // the gradients of the weights, where those are a pass of their own
};
// What group `group` (from 0) does, in Megatron's order: (S - group - 1) * 2 + (v - 1) * S forwards, then forwards and
// backwards in turns, then the other backwards; micro-batches go through a chunk S at a time. With one chunk: 1F1B,
// K = S - group. Needs micro_batches to be a multiple of S where v > 1; M = S is no exception, as in some versions.
std::vector<ChunkOperation> interleaved_order(int groups, int chunks, int micro_batches, int group);
// ZB-H1: S - group forwards, as many as 1F1B, then a backward, the weights of the micro-batch `group` before it, and
// the next forward in turns, and behind the last backward the weights that are left.
std::vector<ChunkOperation> zero_bubble_order(int groups, int micro_batches, int group);

struct EvenTimes {
  int groups = 3, chunks = 2;
  bool sync_behind = false;                     // all of it behind the group's last backward (GradientSync::kAfter)
  std::vector<double> forward_ms, backward_ms;  // [S * v]
  std::vector<double> weights_ms;               // [S * v] beside backward_ms: ZB-H1; empty: no pass of its own
  std::vector<double> transfer_ms;              // [S * v - 1], one way, behind each part
  std::vector<std::vector<SyncBucket>> sync;    // [S * v]
  std::vector<double> behind_ms;                // [S]: exchange of shared gradients and optimizer, behind the sync
};

// The step in ms. Links are full-duplex, one FIFO for each direction between two neighbouring groups, the last and the
// first included (which with two groups would be the same pair: not simulated with several chunks). A group's gradients
// are summed bucket by bucket, as its chunks' last backwards (or passes for the weights) make them ready.
double simulate_even_ms(const EvenTimes& times, int micro_batches);

EvenTimes even_times(const Problem& problem, const EvenPlan& plan);

// Bytes on each device of group `group` (from 0) at the fullest moment of its order.
double even_memory_bytes(const Problem& problem, const EvenPlan& plan, int group);

// ZB-H1 is told for stages that neither compute anything again nor scatter gradients after every micro-batch.
inline bool zero_bubble_allows(const StageVariant& variant) {
  return !variant.recompute && variant.zero <= 1;
}

// Whether the plan can run: cuts in order, equal groups of devices that divide the samples, with several chunks the
// micro-batches a multiple of S, for ZB-H1 a backward whose parts are known (Problem::weight_share), a variable in
// every group where stages need one, and within memory.
bool even_feasible(const Problem& problem, const EvenPlan& plan);

}  // namespace automap::pipeline
