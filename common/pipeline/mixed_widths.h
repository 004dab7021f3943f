// Plans whose stages are of different widths: one stage of replicas of one device each, the next of replicas of eight,
// say. Every stage costs what it costs in the problem of its own width; only transfers know both sides. Only simulated
// and V, on 1F1B with as much in flight as memory allows (Schedule::kAdaptive): the exact solver and the bounds are of
// plans of one width.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::pipeline {

struct MixedStage {
  int width = 1;             // of the profile's
  std::uint8_t variant = 0;  // of ProblemOptions::variants
  bool operator==(const MixedStage& o) const { return width == o.width && variant == o.variant; }
};

struct MixedPlan {
  std::vector<int> cuts;         // as Plan's
  std::vector<int> device_cuts;  // of single devices; a stage begins and ends where its width divides
  std::vector<MixedStage> stages;
  int num_stages() const { return static_cast<int>(stages.size()); }
};

// The problems of all widths for one split of the batch.
class MixedProblem {
 public:
  // `profile` and `cluster` are those of single devices, options.width is not looked at. Widths of which no group can
  // compute the micro-batch are left out. Throws Error(kUsage) as Problem does when none is left.
  MixedProblem(const Profile& profile, const machine::Cluster& cluster, const ProblemOptions& options);

  std::vector<int> widths() const;  // ascending
  const Problem& problem(int width) const { return *problems_.at(width); }
  int num_devices() const { return num_devices_; }
  int num_instructions() const;
  int micro_batches() const;

  // Times and the most in flight by memory (value_in_flight); nothing when the plan cannot run: cuts out of order,
  // widths that do not divide where a stage begins or ends, samples that are not whole, memory, variables, idling.
  std::optional<PipelineTimes> times(const MixedPlan& plan) const;
  // The simulated step with a quickly chosen warm-up (written into times->in_flight), ms; infinite: it cannot run.
  double simulated_ms(const MixedPlan& plan, PipelineTimes* times = nullptr) const;
  double value_ms(const MixedPlan& plan) const;
  MemoryParts memory(const MixedPlan& plan, int stage, int in_flight) const;  // on each device of stage 1..S
  double capacity_bytes(const MixedPlan& plan, int stage) const;

  // From the devices (d0, d1] at one width to (d1, d2] at another: as between replicas of the wider one, where that
  // divides both groups; else as between single devices, of which each replica's have to get it all.
  Link link(int d0, int d1, int width, int d2, int width_behind) const;

 private:
  struct Range {
    int p0 = 0, p1 = 0, d0 = 0, d1 = 0;
  };
  Range range(const MixedPlan& plan, int stage) const;
  const DeviceGroup* group(int width, int d0, int d1) const;  // null: no stage of that width

  std::map<int, std::unique_ptr<Problem>> problems_;  // by width
  int num_devices_ = 0;
};

}  // namespace automap::pipeline
