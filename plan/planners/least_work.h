// Lower bounds on the step time from the profile's work alone: they hold for any stages, devices, widths, variants,
// schedule and split of the batch. Quick, and loose where devices differ or many samples at once are quicker.
#pragma once

#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::planners {

// For V and for simulated steps, ms; `batch`: samples of the step, in profile samples.
//
// A stage of r replicas of t devices computes a position of mb samples in T(mb / r) ms on r t devices, so in r t T(mb /
// r) >= mb min over t and b of t T(b) / b device-ms; T is linear between the profile's points, so that the least of
// T(b) / b stands at one of them. All M micro-batches take M mb = batch samples on all devices together, and the
// busiest one is busy for as long as the mean at least. kFractional, or a profile without times: T is linear in b.
//
// c = 1, 3 ms at 1 sample, 2 equal devices, batch 8, no times: 16.
double least_work_bound_ms(const pipeline::Profile& profile, const machine::Cluster& cluster,
                           pipeline::Replicas replicas, double batch);

// A bound as the one above, and at least as much, ms: it also knows that one micro-batch goes through all positions and
// back before the step is over. Few samples at once make that way short and the work of all samples long, many the
// other way round; the work alone would take the better of each.
//
// Let position i be computed by replicas of t devices, b samples of a micro-batch on each. What M = batch / (r b)
// micro-batches take of r t devices is batch / b t T_i(b, t) device-ms, and a micro-batch's way through i takes T_i(b,
// t) less the pass that makes gradients of weights, for which nothing waits. Both the sum of the ways and the mean work
// of a device are at most the step, and so is every weighted mean of the two; in it each position takes its best b and
// t, where b is a divisor of the batch. The bound is the largest of these means over the weights that are looked at. It
// is the one above for kFractional, and without times or whole samples.
//
// c = 2 ms at 1 sample and 8 at 8, all of it forward, 8 devices, batch 8: 2, where work alone says 1.
double least_step_bound_ms(const pipeline::Profile& profile, const machine::Cluster& cluster,
                           pipeline::Replicas replicas, double batch);
constexpr char kWorkAndWay[] = "balance of work and one micro-batch's way";

// Times of replicas for all positions of a profile, forward and backward, by the samples that they compute at once.
class SampleTimes {
 public:
  // `profile` and `cluster` are those of the replicas. Fractional replicas, and a profile without times, take c_ms in
  // proportion.
  SampleTimes(const pipeline::Profile& profile, const machine::Cluster& cluster, pipeline::Replicas replicas);

  // No replica of at most so many samples at once computes one in less, on any device; with `recompute` its forward
  // twice. Times are linear between the profile's points, so that their ratio to the samples is least at one of them or
  // at the most samples. What sums may be rounded by is taken off.
  //
  // c = 4, 6 ms at 1, 2 samples: 4 of at most 1 sample, 3 of at most 2 or more, 10 / 3 of at most 1.5.
  double least_ms(double at_most, bool recompute = false) const;

 private:
  struct OfDevice {
    std::vector<double> samples, forward_ms, backward_ms;
  };
  std::vector<OfDevice> devices_;
  double fastest_;  // relative speed
};

}  // namespace automap::planners
