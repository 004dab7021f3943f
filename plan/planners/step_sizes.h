// The splits of a step's samples into micro-batches: mb samples travel through the pipeline together, M times per step,
// mb * M = B (design 2.1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/numbers.h"
#include "common/machine/cluster.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::planners {

struct StepRequest {
  std::int64_t batch = 0;        // B, samples per step; 0: usual_batch() of the profile's micro-batch
  std::int64_t micro_batch = 0;  // mb; 0: chosen
  int micro_batches = 0;         // M; 0: chosen
  bool equal_replicas = false;   // every stage on equally many devices, as a mesh needs it
  int rounds_of = 1;             // M is a multiple of it
  bool lone_replicas = false;    // every stage is one replica: no data parallelism
  bool even_servers = false;     // as servers_inexpressible has it (frameworks.h)
};

constexpr int kUsualMicroBatches = 16;
constexpr std::int64_t kUsualBatch = 256;
// The batch of a step where nobody gives one: so many of the module's own batches, of so many samples at most; the
// module's own where that has more. And how many micro-batches of the module's own those are.
std::int64_t usual_batch(std::int64_t own);
std::int64_t usual_micro_batches(std::int64_t own);
constexpr int kMostGivenMicroBatches = 65536;
constexpr int kMostMicroBatches = 128;         // that are looked at first
constexpr int kMostChosenMicroBatches = 4096;  // more have to be asked for

// Ascending.
std::vector<std::int64_t> divisors(std::int64_t number);

struct StepSize {
  double samples = 0;  // mb
  int micro_batches = 0;
  int devices = 0;           // used, the first of those it stands on; 0: all
  int group_size = 0;        // devices of every stage; 0: any
  int width = 1;             // of every replica; devices and group_size count replicas
  std::vector<int> on = {};  // single devices of the cluster that it stands on, 0-based, in order; empty: all of it
  double batch() const { return samples * micro_batches; }
  bool operator==(const StepSize& o) const {
    return samples == o.samples && micro_batches == o.micro_batches && devices == o.devices &&
           group_size == o.group_size && width == o.width && on == o.on;
  }
};

// The cluster of a split: its devices of `cluster`, where each replica counts as one device.
machine::Cluster replicas_of(const machine::Cluster& cluster, const StepSize& size);
// The single devices of those, 0-based, in order.
std::vector<int> devices_of(const machine::Cluster& cluster, const StepSize& size);
// Puts a split on these single devices, replica by replica. `replicas`: all that the cluster has of the split's width.
// Where they are the first of those their number says it, so that a place is written in one way.
void put_on(const machine::Cluster& replicas, std::vector<int> devices, StepSize* size);

// The splits that the request leaves, the profile's own micro-batch first, then those nearest to it. With fractional
// replicas the micro-batch is the profile's unless it is given. Throws Error(kUsage) naming what would do when the
// numbers given do not fit together.
std::vector<StepSize> step_sizes(const StepRequest& request, const pipeline::Profile& profile,
                                 pipeline::Replicas replicas);

// The numbers of its `samples` of a step that a replica may compute at once, falling: divisors of them that the
// profile's times reach, in at most so many micro-batches.
std::vector<std::int64_t> replica_sizes(std::int64_t samples, const pipeline::Profile& profile,
                                        std::int64_t most_micro_batches);

// Decides if a layout should be tried with ever more micro-batches: yes up to kMostMicroBatches; beyond, as long as the
// last one tried was the shortest, or none of them fits.
class MoreMicroBatches {
 public:
  explicit MoreMicroBatches(bool given) : given_(given) {}  // their number is asked for
  bool worth_a_look(std::int64_t count) const { return given_ || count <= kMostMicroBatches || last_ <= best_; }
  // The step of the last one; kInfinity: it does not fit.
  void saw(double step_ms) {
    last_ = step_ms;
    best_ = std::min(best_, step_ms);
  }

 private:
  bool given_ = false;
  double last_ = kInfinity, best_ = kInfinity;
};

// The splits into more than kMostMicroBatches that the request leaves beside these, the fewest micro-batches first:
// they are worth a look where the most of the others were the best, or none fits.
std::vector<StepSize> further_sizes(const StepRequest& request, const pipeline::Profile& profile,
                                    pipeline::Replicas replicas);

}  // namespace automap::planners
