#include "common/pipeline/random_problem.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::pipeline {
namespace {

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

// Tables over the samples of one replica for one type of device: a part of each position's time does not shrink with
// the samples, and the rest a little less than in proportion.
DeviceTimes random_device_times(const Profile& profile, const std::string& device, CounterRandom& random) {
  DeviceTimes times;
  times.device = device;
  const double speed = random.log_uniform(0.5, 2), fixed = random.uniform(0, 0.4), bend = random.uniform(0.7, 1);
  std::vector<double> share, own;  // of each position: forward of all, this type's speed
  for (std::size_t i = 0; i < profile.c_ms.size(); ++i) {
    share.push_back(std::min(0.98, profile.forward_fraction * random.uniform(0.5, 1.5)));
    own.push_back(speed * random.log_uniform(0.7, 1.4));
    times.optimizer_ms.push_back(0);
  }
  for (double samples = 1; samples <= 64; samples *= 2) {
    times.samples.push_back(samples);
    times.forward_ms.emplace_back();
    times.backward_ms.emplace_back();
    const double scale = fixed + (1 - fixed) * std::pow(samples / profile.micro_batch_size, bend);
    for (std::size_t i = 0; i < profile.c_ms.size(); ++i) {
      times.forward_ms.back().push_back(share[i] * profile.c_ms[i] * scale / own[i]);
      times.backward_ms.back().push_back((1 - share[i]) * profile.c_ms[i] * scale / own[i]);
    }
  }
  return times;
}

// Up to three lines around one of so many ms per byte: slower ones begin earlier.
machine::CollectiveTime random_time(double ms_per_byte, double latency_ms, CounterRandom& random) {
  machine::CollectiveTime::Lines lines{};
  lines.back() = {latency_ms, ms_per_byte * random.log_uniform(0.5, 2)};
  for (std::size_t i = lines.size() - 1; i-- > 0;) {
    lines[i] = {lines[i + 1].latency_ms * random.uniform(), lines[i + 1].ms_per_byte * random.log_uniform(1, 4)};
    if (random.uniform() < 0.3) lines[i] = lines[i + 1];
  }
  return machine::CollectiveTime(lines);
}

// `bytes`: of a message whose latency is felt.
void add_measured_links(Cluster& cluster, double bytes, CounterRandom& random) {
  for (ServerGroup& servers : cluster.servers) {
    const double ms_per_byte = 1 / (servers.intra_gbytes_per_s * machine::kBytesPerMsPerGByteS);
    const double latency_ms = bytes * ms_per_byte * random.log_uniform(0.1, 10);
    const auto add = [&](CollectiveKind operation, int devices, int in_servers, const machine::CollectiveTime& time) {
      servers.links.rows.push_back({operation, devices, in_servers, time});
    };
    add(CollectiveKind::kAllReduce, 2, 1, random_time(2 * ms_per_byte, latency_ms, random));
    if (servers.devices > 2) {
      add(CollectiveKind::kAllReduce, servers.devices, 1, random_time(2 * ms_per_byte, latency_ms, random));
    }
    if (random.uniform() < 0.5) add(CollectiveKind::kAllGather, 2, 1, random_time(ms_per_byte, latency_ms, random));
    if (random.uniform() < 0.5) {
      const int devices = 2 * servers.devices;
      add(CollectiveKind::kAllReduce, devices, 2, random_time(2 * ms_per_byte, latency_ms, random));
    }
    if (random.uniform() < 0.7)
      add(CollectiveKind::kPermute, 2, 1, {latency_ms, ms_per_byte * random.log_uniform(1, 3)});
    if (random.uniform() < 0.7) {
      const double port = 1 / (servers.inter_gbytes_per_s * machine::kBytesPerMsPerGByteS);
      add(CollectiveKind::kPermute, 2, 2, {latency_ms, port * random.log_uniform(0.5, 4)});
    }
  }
}

// Turns a problem of fractional replicas into one of whole samples.
void make_samples_whole(RandomProblem& made, const RandomProblemOptions& options, CounterRandom& random) {
  Profile& profile = made.profile;
  ProblemOptions& asked = made.options;
  const std::size_t n = profile.c_ms.size();
  asked.replicas = Replicas::kWhole;
  profile.micro_batch_size = static_cast<double>(random.integer(1, 8));
  constexpr int kSamples[] = {4, 6, 8, 12, 16, 24, 32};
  asked.micro_batch_samples = kSamples[random.integer(0, 6)];
  double of_step = 0;
  for (const double c : profile.c_ms) of_step += asked.micro_batches * c;
  double weights = 0;
  for (const double w : profile.w_bytes) weights += w;
  bool first = true;
  const bool optimizer = random.uniform() < options.with_optimizer;
  const double update = random.log_uniform(0.005, 0.2);
  for (auto& [name, type] : made.cluster.devices) {
    if (!first && random.uniform() < 0.4) continue;  // another's times, scaled
    type.relative_speed = 1;
    profile.times.push_back(random_device_times(profile, name, random));
    for (std::size_t i = 0; optimizer && weights > 0 && i < n; ++i) {
      profile.times.back().optimizer_ms[i] = update * of_step * profile.w_bytes[i] / weights;
    }
    if (first) profile.device = name;
    first = false;
  }
  asked.optimizer = optimizer;
  const bool halved = random.uniform() < 0.5;
  for (const double w : profile.w_bytes) {
    profile.gradient_bytes.push_back(halved ? w / 2 : w);
    profile.slot_bytes.push_back(2 * w);
  }
  asked.gradient_sync = random.uniform() < options.with_overlap ? GradientSync::kOverlap : GradientSync::kAfter;
  asked.bucket_bytes = std::max(1.0, weights * random.log_uniform(0.01, 1));
  if (random.uniform() < options.with_workspace) {
    const double most = random.log_uniform(0.5, 20);
    for (std::size_t i = 0; i < n; ++i) {
      profile.workspace_bytes.push_back(most * profile.stash_bytes[i] * random.uniform());
    }
  }
  int layer = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (random.uniform() < 0.3) ++layer;
    profile.layer.push_back("layer" + std::to_string(layer));
  }
  if (random.uniform() < options.with_shared) {
    std::vector<std::int32_t> variables;
    for (std::size_t i = 0; i < n; ++i) {
      if (profile.w_bytes[i] > 0) variables.push_back(static_cast<std::int32_t>(i) + 1);
    }
    const int wanted = random.integer(1, 3);
    for (int k = 0; k < wanted && !variables.empty(); ++k) {
      // The first variable as often as all others.
      const int which = random.uniform() < 0.5 ? 0 : random.integer(0, static_cast<int>(variables.size()) - 1);
      SharedWeight shared;
      shared.first = variables[static_cast<std::size_t>(which)];
      variables.erase(variables.begin() + which);
      if (shared.first >= static_cast<std::int32_t>(n)) continue;
      shared.position = random.integer(shared.first + 1, static_cast<int>(n));
      const std::size_t at = static_cast<std::size_t>(shared.first - 1);
      shared.weight_bytes = profile.w_bytes[at];
      shared.gradient_bytes = profile.gradient_bytes[at];
      shared.slot_bytes = profile.slot_bytes[at];
      profile.shared.push_back(shared);
    }
  }
  const bool zero = random.uniform() < options.with_zero, recompute = random.uniform() < options.with_recompute;
  const int most_zero = !zero ? 0 : random.uniform() < 0.25 ? 3 : 1;
  asked.variants.clear();
  for (int level = 0; level <= most_zero; ++level) {
    asked.variants.push_back({level, false});
    if (recompute) asked.variants.push_back({level, true});
  }
  asked.allow_idle_stages = !(random.uniform() < options.without_idle);
  // Stash grows with the samples; capacities were drawn for the profile's own.
  for (auto& entry : made.cluster.devices) {
    entry.second.memory_gib *= std::max(1.0, asked.micro_batch_samples / profile.micro_batch_size);
  }
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
  const double typical_bytes = share * total_ms / devices * slowest_inter * machine::kBytesPerMsPerGByteS;
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
    const double bytes = ratio * step_ms * slowest_inter * machine::kBytesPerMsPerGByteS / 2;
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
    // Between the memory for an even split over a few stages and that for the whole model on every device.
    const double needed = made.options.state_factor_or_default() * weight_total + stash_total;
    for (auto& entry : made.cluster.devices) {
      entry.second.memory_gib = std::max(1e-9, needed * random.log_uniform(0.05, 1.2) / kBytesPerGiB);
    }
  }
  CounterRandom own(seed, 1);
  if (own.uniform() < options.whole) make_samples_whole(made, options, own);
  if (options.measured > 0) {
    CounterRandom of_links(seed, 1);
    if (of_links.uniform() < options.measured) add_measured_links(made.cluster, typical_bytes, of_links);
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
