// How a step's samples are split into micro-batches, and the plan for the best split: mb samples travel through the
// pipeline together, M times per step, mb * M = B (design 2.1). Each split is a planning problem of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/planner.h"

namespace automap::planners {

struct StepRequest {
  std::int64_t batch = 0;        // B, samples per step; 0: kDefaultMicroBatches times the profile's micro-batch
  std::int64_t micro_batch = 0;  // mb; 0: chosen
  int micro_batches = 0;         // M; 0: chosen
  bool equal_replicas = false;   // every stage on equally many devices, as a mesh needs it
  bool lone_replicas = false;    // every stage is one replica: no data parallelism
};

constexpr int kDefaultMicroBatches = 16;
constexpr int kMostGivenMicroBatches = 65536;
constexpr int kMostMicroBatches = 128;  // that are chosen; more have to be asked for

// Ascending.
std::vector<std::int64_t> divisors(std::int64_t number);

struct StepSize {
  double samples = 0;  // mb
  int micro_batches = 0;
  int devices = 0;     // used, the first of the cluster; 0: all
  int group_size = 0;  // devices of every stage; 0: any
  int width = 1;       // of every replica; devices and group_size count replicas
  double batch() const { return samples * micro_batches; }
  bool operator==(const StepSize& o) const {
    return samples == o.samples && micro_batches == o.micro_batches && devices == o.devices &&
           group_size == o.group_size && width == o.width;
  }
};

// The splits that the request leaves, the profile's own micro-batch first, then those nearest to it. With fractional
// replicas the micro-batch is the profile's unless it is given. Throws Error(kUsage) naming what would do when the
// numbers given do not fit together.
std::vector<StepSize> step_sizes(const StepRequest& request, const pipeline::Profile& profile,
                                 pipeline::Replicas replicas);

// Numbers of devices, falling: with every split of the batch considered, and with some of them only.
struct BoundScope {
  std::vector<int> devices, devices_in_part;
};

// The best plan whose replicas are of one width.
struct WidthAlternative {
  int width = 1, stages = 0;
  double step_ms = 0, simulated_step_ms = 0;
};

struct StepPlan {
  StepSize size;
  std::unique_ptr<pipeline::Problem> problem;  // the one that `result` is a plan for
  PlanResult result;
  std::vector<StepSize> considered;
  BoundScope bound_scope(int all_devices) const;
  // No plan of any split is simulated shorter, whatever it keeps in flight; 0: not known.
  double simulated_bound_ms = 0;
  std::string why_fewer;                 // why it leaves devices of the cluster free; empty: it does not
  std::vector<WidthAlternative> widths;  // where the profile knows several
  double free_plan_ms = 0;  // with equal replicas: the simulated step of the best plan found without; 0: none
};

// The first `devices` devices of a cluster.
machine::Cluster first_devices(const machine::Cluster& cluster, int devices);

// The best plan over all splits, judged by the request's objective: on all devices or, where no micro-batch has samples
// for them, on fewer: the most that divide it, whole servers less, devices less of the first server; and on half of
// them, a quarter, ..., where links may cost more than the others save. Every split is
// planned with a share of the effort, the best with the rest; the lower bounds hold for all splits.
// Replicas of every width that the profile knows are planned for, all of a plan of one width; bounds hold for all of
// them. The problem is one of replicas then: its devices are as wide.
// `options.micro_batches`, `micro_batch_samples` and `width` are not looked at. result.plan is empty when no split has
// a plan (as make_plan says of the first).
StepPlan plan_step(const pipeline::Profile& profile, const machine::Cluster& cluster,
                   const pipeline::ProblemOptions& options, const StepRequest& step, const PlanRequest& request);

}  // namespace automap::planners
