// One row of a dataset: a random planning problem as three normalized arrays of 128 points plus the numbers of its
// cluster, and the way back to a Problem that every planner and the value function can read (paper 4.5.1; design of the
// file: docs/formats/dataset.md).
//
// Units: C', A', W' are divided by scale_ms; A' and W' are milliseconds at the cluster's slowest link. The way back
// calls the slowest link 1 GB/s, so that 1 ms of it is 1e6 bytes; V does not depend on that choice.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "common/machine/cluster.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "common/pipeline/row.h"

namespace automap::pipeline {

struct RowProblem {
  // C'[128], A'[128], W'[128] as in row.h: each in [0, 1].
  std::array<float, 3 * kGranularity> caw{};
  float scale_ms = 1;
  std::uint32_t num_instructions = kGranularity;  // n; below 128 points repeat
  std::uint8_t distribution = 0;                  // index into the dataset's list of names
  std::uint16_t servers = 1;
  std::uint16_t devices_per_server = 1;
  // Bandwidth inside a server over the slowest link between servers; below 1 the links inside are the slowest.
  float intra_over_inter = 1;
  std::uint16_t micro_batches = 16;
  std::uint16_t stages = 2;
  // Capacity of a device (the smallest, where servers differ) in W units: bytes at the slowest link, as ms, divided by
  // scale_ms; without the reserve. Fractional rows mean it against a state factor of 4. Infinity: no limit.
  float memory_limit = std::numeric_limits<float>::infinity();
  Schedule schedule = Schedule::k1f1b;
  // Beyond the paper:
  float forward_fraction = 1.0f / 3;
  float stash_factor = 0;  // bytes kept for the backward of what point k stands for, over A'_k
  float hop_latency = 0;   // of a link between servers, over scale_ms; a tenth of it inside a server
  // 0: all servers are equal. Else the seed of their differences: device counts, speeds, memory, links (servers x
  // devices_per_server stays the most there can be; devices_of_row() says how many there are).
  std::uint32_t server_seed = 0;

  // Whole samples: the samples of a micro-batch, which C' and A' are of (C' by one device). 0: fractional replicas, the
  // papers' problem, and nothing below counts.
  std::uint16_t samples = 0;
  // The share of one sample's time on one device that more samples do not repeat (launches, small tiles, weights that
  // are read): c(b) = fixed + linear * b, u = fixed / c(1) of the whole model.
  float launch_share = 0;
  float launch_even = 0;     // of that, the share spread evenly over instructions; the rest goes with their compute
  float gradient_share = 1;  // bytes of gradients over those of weights: 0.5 for 16-bit gradients of 32-bit variables
  float slot_factor = 2;     // bytes of optimizer state over those of weights
  std::uint8_t gradient_sync = 0;  // 0: after the last backward; 1: in buckets that overlap it
  float bucket = 1;                // bytes of a bucket in W units, as memory_limit
  float optimizer_factor = 0;      // time of a variable's update over the time of its bytes at the slowest link
  float workspace_factor = 0;      // largest temporaries of what point k stands for, over A'_k
  std::uint8_t zero = 0;           // the highest ZeRO level that a stage may have
  std::uint16_t layers = 0;        // for recomputation: equal runs of points; 0: stages may not recompute
};

constexpr int kMostZero = 3;

// The inputs of a Problem.
struct ProblemParts {
  Profile profile;
  Cluster cluster;
  ProblemOptions options;
  Problem problem() const { return Problem(profile, cluster, options); }
};

// Throws Error(kData) when the row is no row: NaN, values outside [0, 1], C' or W' falling, repeated points that do not
// repeat, no compute, no devices, more than kMaxDevices, more stages than devices or instructions.
void check_row(const RowProblem& row);

// D, without the devices that server_seed takes away; between half of servers x devices_per_server and all of it.
int devices_of_row(const RowProblem& row);
// min(n, 128): the instructions of problem_of_row(row).
int instructions_of_row(const RowProblem& row);

// The problem of a row: min(n, 128) instructions (repeated points are left out), each a pivot. With `samples` no stage
// may idle, as automap-infer plans.
// Throws what check_row throws. Costs a few microseconds; Problem itself grows with D squared.
ProblemParts problem_of_row(const RowProblem& row);

// The number of variants that problem_of_row(row) offers a stage: ZeRO 0 .. zero without recomputation, then with it.
int variants_of_row(const RowProblem& row);
// Can `devices` be shared by the stages in groups whose sizes divide `samples`, so that replicas compute whole ones?
bool groups_exist(int devices, int stages, int samples);
// The same of a row; true without `samples`.
bool groups_of_row_exist(const RowProblem& row);

// The row of a real problem of fractional replicas: make_row() plus the cluster's numbers. V of a plan on grid cuts
// stays the same when the servers are equal and the latency inside a server is a tenth of that between them. Clusters
// whose servers differ are written as equal servers of the same total, the slowest links and the smallest memory (a row
// cannot say more); bytes kept for the backward become proportional to A'. `stages` is not checked: check_row() does.
RowProblem row_of_problem(const Profile& profile, const Cluster& cluster, const ProblemOptions& options, int stages,
                          Schedule schedule);

}  // namespace automap::pipeline
