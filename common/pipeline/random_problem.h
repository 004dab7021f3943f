// Random planning problems, the documented suite that tests and benchmarks share: the same seed gives the same problem
// on every machine and in any order (counter-based, no state between problems).
//
// Distributions (docs/cost-model.md says why): compute per instruction log-normal; activations log-normal around a
// level that makes a transfer at a typical cut 1..60 % of an average stage (log-uniform); every fourth problem or so
// has a few narrow cuts; half of the problems carry variables to all-reduce, on about a third of their instructions,
// whose all-reduce costs 1 %..300 % of a step's compute per device (log-uniform); φ in 0.2..0.6.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/rng.h"
#include "common/machine/cluster.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::pipeline {

// A stream of random numbers that depends on (seed, stream) only (common/base/rng.h).
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::uint32_t stream) : rng_(seed, stream, 0) {}
  double uniform() { return rng_.uniform(); }  // [0, 1)
  double uniform(double low, double high) { return rng_.uniform(low, high); }
  double log_uniform(double low, double high);  // both > 0
  double normal();                              // mean 0, variance 1
  int integer(int low, int high);               // low..high, both included

 private:
  Rng rng_;
};

struct RandomProblemOptions {
  int min_instructions = 60, max_instructions = 400;
  int min_servers = 4, max_servers = 4;
  int min_devices = 8, max_devices = 8;  // per server
  int min_micro_batches = 8, max_micro_batches = 32;
  // Share of problems with all-reduce; with servers that differ in size, speed, memory and links; with latencies; with
  // a memory limit that bites; whose forward takes more than its backward (φ up to 0.95); with zero costs sprinkled in.
  double with_allreduce = 0.5;
  double heterogeneous = 0;
  double with_latency = 0;
  double with_memory_limit = 0;
  double forward_heavy = 0;
  double with_zeros = 0;
  // Share of problems of whole samples: tables of times that are not linear in the samples and differ by type of device
  // (some types have none and scale another's), forward shares that differ by position; and of those the shares with
  // gradients reduced in buckets, an optimizer, workspace, up to three weights that two positions each share, ZeRO 0
  // and 1 (1 in 4: 0 to 3), recomputation by layers, and no idle stages. All else is drawn as without it.
  double whole = 0;
  double with_overlap = 0.5;
  double with_optimizer = 0.5;
  double with_workspace = 0.5;
  double with_shared = 0.5;
  double with_zero = 0.5;
  double with_recompute = 0.5;
  double without_idle = 0.3;
  // Share of problems whose servers' links were measured: collectives of up to three lines around the ring's, and sends
  // inside a server and from device to device between servers. All else is drawn as without it.
  double measured = 0;
};

// Everything a Problem is made of.
struct RandomProblem {
  Profile profile;
  Cluster cluster;
  ProblemOptions options;
  Problem problem() const { return Problem(profile, cluster, options); }
};

RandomProblem random_problem(std::uint64_t seed, const RandomProblemOptions& options = {});

// A uniformly drawn structurally valid plan. Needs 1 <= stages <= min(n, D).
Plan random_plan(const Problem& problem, int stages, Schedule schedule, CounterRandom& random);

// Times of a pipeline without a problem behind it: log-normal stages, transfers 1..60 % of one, no all-reduce.
PipelineTimes random_times(int stages, CounterRandom& random);

}  // namespace automap::pipeline
