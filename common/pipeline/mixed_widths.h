// Plans whose stages have different widths: for example, one stage of replicas of one device each, the next of replicas
// of eight. Every stage costs as much as in the problem of its own width; only transfers depend on both sides. Lower
// bounds on such plans: any_width.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::pipeline {

// device_cuts count single devices; a stage begins and ends where its width divides.
struct MixedPlan : Plan {
  std::vector<int> widths;  // [S], of the profile's
  bool operator==(const MixedPlan& o) const { return Plan::operator==(o) && widths == o.widths; }
};

// The problems of several widths for one split of the batch.
class MixedProblem {
 public:
  // Uses every width of the profile. `profile` and `cluster` are those of single devices; options.width is ignored.
  // Leaves out widths of which no group can compute the micro-batch, or that divide no server. Throws Error(kUsage) as
  // Problem does when none is left.
  MixedProblem(const CheckedProfile& profile, const machine::Cluster& cluster, const ProblemOptions& options);
  // Uses these widths, which the profile must have. Throws where one is impossible.
  MixedProblem(const CheckedProfile& profile, const machine::Cluster& cluster, const ProblemOptions& options,
               const std::vector<int>& widths);

  std::vector<int> widths() const;  // ascending
  const Problem& problem(int width) const { return *problems_.at(width); }
  int num_devices() const { return num_devices_; }
  int num_instructions() const { return any().num_instructions(); }
  int micro_batches() const { return any().micro_batches(); }

  // Lists that fit together, widths and variants there are, stages that begin and end where their width divides.
  bool valid_structure(const MixedPlan& plan) const;
  // Places a structurally valid plan on the problems of its widths. This object must outlive the result.
  PlacedPlan place(const MixedPlan& plan) const;
  // Nothing when the plan cannot run: structure, samples that are not whole, memory, variables, idling.
  std::optional<PipelineTimes> times(const MixedPlan& plan) const;
  // The simulated step, of an adaptive plan without a warm-up with a quickly chosen one, ms; infinite: it cannot run.
  double simulated_ms(const MixedPlan& plan) const;

  // From the devices (d0, d1] at one width to (d1, d2] at another: as between replicas of the wider one, where that
  // divides both groups; else as between single devices, of which each replica's have to get it all. Never faster than
  // between single devices.
  Link link(int d0, int d1, int width, int d2, int width_behind) const;

 private:
  const Problem& any() const { return *problems_.begin()->second; }

  std::map<int, std::unique_ptr<Problem>> problems_;  // by width
  int num_devices_ = 0;
};

}  // namespace automap::pipeline
