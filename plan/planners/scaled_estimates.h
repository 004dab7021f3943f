// Scales the estimates that plans are made from: times of kernels and of collectives, links, memory of activations. A
// factor of 2 doubles a time.
#pragma once

#include <cstddef>

#include "common/machine/cluster.h"
#include "common/pipeline/profile.h"

namespace automap::planners {

// Scales the times of positions [first, last), from 0. A profile of replicas of several devices knows its collectives
// at one number of samples only; at others they are taken to be proportional.
void scale_times(pipeline::Profile& profile, std::size_t first, std::size_t last, double kernels, double collectives);

enum class Links { kInside, kBetween };  // servers

// `pace`: of every byte; `latency`: of every message.
void scale_links(machine::Cluster& cluster, Links which, double pace, double latency);

// Activations and workspace become `factor` times as large.
void scale_memory(pipeline::Profile& profile, double factor);

}  // namespace automap::planners
