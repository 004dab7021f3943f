// Lower bounds on the step time that hold for plans with stages of any widths (mixed_widths.h).
//
// Any plan of stages of any widths t is turned into a plan of one problem of single devices, the relaxed one, with the
// same cuts, that is nowhere longer:
//   - A stage of r replicas of width t stands on a group of g = r t single devices, as the variant of the relaxed
//     problem that is of width t. There, every position has as its forward time the least that width t has for it with
//     mb / r samples on each replica, over what a stage may be (ZeRO, recomputation) and all groups of so many devices
//     that hold a device of the same type; likewise its backward time. So F and B of the stage are at least those of
//     the variant. Where a width cannot share the micro-batch on g devices its variant is that of another one which
//     can.
//   - A message is never faster than between single devices (MixedProblem::link).
//   - The relaxed problem knows no memory and no idling, and gradients and optimizer take no time behind the backward.
// The path terms of V rise with every F, B and t, and fall as K rises up to M, so those of the relaxed plan with K = M
// are at most those of the plan's; and they are neither above the plan's V nor above its simulated step (cost.h: each
// is a path through the schedule). The simplest bound on them is the balance of work over the least device time that
// any width has for each position (Problem::work_ms); the closest is lower_bound_all_cuts. Samples are counted in
// parts, the least common multiple of the widths to a sample, so that a group of g devices takes a whole number of them
// where any width can share the micro-batch on it.
#pragma once

#include <memory>

#include "common/machine/cluster.h"
#include "common/pipeline/mixed_widths.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::planners {

// `profile` and `cluster` are those that `mixed` was made from, of every width of the profile. Its plans are to be
// bounded under Schedule::kAdaptive.
std::unique_ptr<pipeline::Problem> any_width_problem(const pipeline::MixedProblem& mixed,
                                                     const pipeline::Profile& profile, const machine::Cluster& cluster);

}  // namespace automap::planners
