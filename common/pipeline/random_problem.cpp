#include "common/pipeline/random_problem.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/check.h"

namespace automap::pipeline {
namespace {

constexpr double kBytesPerMsPerGByteS = 1e6;
constexpr double kBytesPerGiB = 1024.0 * 1024.0 * 1024.0;

// `count` different numbers of 1..end-1, ascending: a uniformly drawn set of cuts (Floyd's algorithm).
std::vector<int> random_cuts(int count, int end, CounterRandom& random) {
  std::vector<int> cuts;
  for (int top = end - count; top <= end - 1; ++top) {
    const int drawn = random.integer(1, top);
    const bool taken = std::find(cuts.begin(), cuts.end(), drawn) != cuts.end();
    cuts.push_back(taken ? top : drawn);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

Cluster random_cluster(CounterRandom& random, const RandomProblemOptions& options) {
  Cluster cluster;
  cluster.name = "random";
  const int servers = random.integer(options.min_servers, options.max_servers);
  const bool mixed = random.uniform() < options.heterogeneous;
  ServerGroup group;
  group.count = 1;
  group.devices = random.integer(options.min_devices, options.max_devices);
  group.intra_gbytes_per_s = random.log_uniform(10, 300);
  group.inter_gbytes_per_s = random.log_uniform(1, 25);
  for (int s = 0; s < servers; ++s) {
    if (mixed) {
      group.devices = random.integer(options.min_devices, options.max_devices);
      group.intra_gbytes_per_s = random.log_uniform(10, 300);
      group.inter_gbytes_per_s = random.log_uniform(1, 25);
    }
    // Speeds are never drawn for a cluster of equal servers; capacities are set once the model is known.
    group.device = mixed ? "type" + std::to_string(random.integer(1, 3)) : "type1";
    cluster.servers.push_back(group);
  }
  for (const ServerGroup& used : cluster.servers) {
    DeviceType type;
    type.memory_gib = 1024;
    cluster.devices.emplace(used.device, type);
  }
  if (mixed) {
    for (auto& entry : cluster.devices) entry.second.relative_speed = random.log_uniform(0.4, 2.5);
  }
  if (random.uniform() < options.with_latency) {
    cluster.intra_latency_us = random.log_uniform(1, 20);
    cluster.inter_latency_us = random.log_uniform(5, 200);
  }
  return cluster;
}

}  // namespace

double CounterRandom::log_uniform(double low, double high) {
  return std::exp(uniform(std::log(low), std::log(high)));
}

double CounterRandom::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(6.283185307179586 * uniform());
}

int CounterRandom::integer(int low, int high) {
  return low + static_cast<int>(rng_.below(static_cast<std::uint64_t>(high - low) + 1));
}

RandomProblem random_problem(std::uint64_t seed, const RandomProblemOptions& options) {
  CounterRandom random(seed, 0);
  RandomProblem made;
  made.cluster = random_cluster(random, options);
  const int n = random.integer(options.min_instructions, options.max_instructions);
  const std::size_t count = static_cast<std::size_t>(n);
  Profile& profile = made.profile;
  profile.model = "random-" + std::to_string(seed);
  profile.device = "random";
  profile.forward_fraction =
      random.uniform() < options.forward_heavy ? random.uniform(0.5, 0.95) : random.uniform(0.2, 0.6);
  const bool zeros = random.uniform() < options.with_zeros;

  // Compute: mean 1 ms per instruction; a slow trend along the model (early layers of a CNN cost more, or less).
  const double spread = random.uniform(0.2, 1.5);
  const double trend = random.uniform(-1, 1);
  double total_ms = 0;
  for (int i = 0; i < n; ++i) {
    double c = std::exp(spread * random.normal() - spread * spread / 2 + trend * (0.5 - (i + 0.5) / n));
    if (zeros && random.uniform() < 0.2) c = 0;
    profile.c_ms.push_back(c);
    total_ms += c;
  }
  if (!(total_ms > 0)) {
    profile.c_ms[0] = 1;
    total_ms = 1;
  }

  // Activations: a transfer of the typical size over the slowest inter link takes `share` of an average stage when
  // the model is cut once per server.
  double slowest_inter = made.cluster.servers.front().inter_gbytes_per_s;
  for (const ServerGroup& group : made.cluster.servers)
    slowest_inter = std::min(slowest_inter, group.inter_gbytes_per_s);
  const int devices = made.cluster.num_devices();
  const double share = random.log_uniform(0.01, 0.6);
  const double typical_bytes = share * total_ms / devices * slowest_inter * kBytesPerMsPerGByteS;
  const double activation_spread = random.uniform(0, 1);
  const bool narrow = random.uniform() < 0.25;
  for (int i = 0; i < n; ++i) {
    double a = typical_bytes * std::exp(activation_spread * random.normal());
    if (narrow && random.uniform() < 0.1) a /= 10;
    if (zeros && random.uniform() < 0.2) a = 0;
    profile.a_bytes.push_back(a);
  }
  profile.a_bytes.back() = 0;

  // Variables: half of the problems; the all-reduce of all of them takes `ratio` of the compute of a whole step.
  made.options.micro_batches = random.integer(options.min_micro_batches, options.max_micro_batches);
  profile.w_bytes.assign(count, 0);
  const bool with_allreduce = random.uniform() < options.with_allreduce;
  const double ratio = random.log_uniform(0.01, 3);
  const double per_variable = random.uniform(0.5, 1.5);
  double weight_total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool variable = random.uniform() < 0.33;
    const double size = std::exp(per_variable * random.normal());
    if (!with_allreduce || !variable) continue;
    profile.w_bytes[i] = size;
    weight_total += size;
  }
  if (weight_total > 0) {
    const double step_ms = made.options.micro_batches * total_ms / devices;
    const double bytes = ratio * step_ms * slowest_inter * kBytesPerMsPerGByteS / 2;
    for (double& w : profile.w_bytes) w *= bytes / weight_total;
    weight_total = bytes;
  }

  // Stash: two activations' worth per instruction.
  double stash_total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    profile.stash_bytes.push_back(2 * typical_bytes * random.uniform());
    stash_total += profile.stash_bytes.back();
  }
  if (random.uniform() < options.with_memory_limit) {
    // Between what an even split over a few stages needs and what the whole model needs on every device.
    const double needed = made.options.state_factor_or_default() * weight_total + stash_total;
    for (auto& entry : made.cluster.devices) {
      entry.second.memory_gib = std::max(1e-9, needed * random.log_uniform(0.05, 1.2) / kBytesPerGiB);
    }
  }
  return made;
}

Plan random_plan(const Problem& problem, int stages, Schedule schedule, CounterRandom& random) {
  AM_CHECK(stages >= 1 && stages <= std::min(problem.num_instructions(), problem.num_devices()));
  Plan plan;
  plan.cuts = random_cuts(stages - 1, problem.num_instructions(), random);
  plan.device_cuts = random_cuts(stages - 1, problem.num_devices(), random);
  plan.schedule = schedule;
  return plan;
}

PipelineTimes random_times(int stages, CounterRandom& random) {
  PipelineTimes times;
  const double phi = random.uniform(0.1, 0.9);
  const double spread = random.uniform(0, 1);
  const double share = random.log_uniform(0.01, 0.6);
  for (int s = 0; s < stages; ++s) {
    const double stage = std::exp(spread * random.normal());
    times.forward_ms.push_back(phi * stage);
    times.backward_ms.push_back((1 - phi) * stage);
    times.allreduce_ms.push_back(0);
    if (s + 1 < stages) times.transfer_ms.push_back(share * std::exp(0.5 * random.normal()));
  }
  return times;
}

}  // namespace automap::pipeline
