// The slow twin of the exact solver: every plan, its stages as every variant, is listed and judged by value_ms. And
// small random problems that reach every corner of the model, of fractional replicas and of whole ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/pipeline/cost.h"
#include "common/pipeline/random_problem.h"

namespace automap::pipeline::testing {

// Deterministic everywhere, unlike the distributions of <random>.
class SmallRandom {
 public:
  explicit SmallRandom(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 0x632BE59BD9B4E019ULL) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  int integer(int low, int high) { return low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1)); }
  double real(double low, double high) { return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53; }
  bool chance(double p) { return real(0, 1) < p; }

 private:
  std::uint64_t state_;
};

struct SmallProblem {
  Profile profile;
  Cluster cluster;
  ProblemOptions options;
};

inline SmallProblem small_problem(std::uint64_t seed, int min_n = 3, int max_n = 9, int max_devices = 6) {
  SmallRandom random(seed);
  SmallProblem small;
  const int n = random.integer(min_n, max_n);
  Profile& profile = small.profile;
  profile.model = "small";
  profile.forward_fraction = random.chance(0.05) ? 1.0 : random.real(0.2, 0.95);
  const bool integral = random.chance(0.25);  // many ties
  const double activation_scale = random.chance(0.2) ? 20 : random.real(0.01, 4);
  const double weight_scale = random.real(0, 6);
  const double variable_share = random.real(0.2, 1);
  for (int i = 0; i < n; ++i) {
    const double c = integral ? random.integer(0, 3) : random.real(0, 3);
    profile.c_ms.push_back(i == 0 ? c + 0.5 : c);
    profile.a_bytes.push_back(random.chance(0.1) ? 0 : 1e6 * activation_scale * random.real(0.1, 1));
    profile.w_bytes.push_back(random.chance(variable_share) ? 1e6 * weight_scale * random.real(0.1, 1) : 0);
    profile.stash_bytes.push_back(1e6 * random.real(0, 5));
  }
  Cluster& cluster = small.cluster;
  cluster.name = "small";
  const bool mixed = random.chance(0.4);
  const bool tight = random.chance(0.4);
  const int kinds = mixed ? 2 : 1;
  for (int k = 0; k < kinds; ++k) {
    DeviceType type;
    type.relative_speed = mixed ? random.real(0.3, 3) : 1;
    type.memory_gib = (tight ? random.real(10, 120) : 1e5) * 1e6 / (1024.0 * 1024.0 * 1024.0);
    cluster.devices[k == 0 ? "a" : "b"] = type;
  }
  int devices = 0;
  const int target = random.integer(2, max_devices);
  while (devices < target) {
    ServerGroup group;
    group.devices = random.integer(1, std::min(4, target - devices));
    group.count = random.integer(1, (target - devices) / group.devices);
    group.intra_gbytes_per_s = mixed ? random.real(2, 20) : 10;
    group.inter_gbytes_per_s = mixed ? random.real(0.3, 4) : 1;
    group.device = mixed && random.chance(0.5) ? "b" : "a";
    devices += group.count * group.devices;
    cluster.servers.push_back(group);
  }
  if (random.chance(0.3)) {
    cluster.intra_latency_us = random.real(0, 300);
    cluster.inter_latency_us = random.real(0, 900);
  }
  small.options.micro_batches = random.integer(1, 20);
  small.options.memory = random.chance(0.8);
  small.options.allow_empty_stages = random.chance(0.3);
  small.options.value = random.chance(0.2) ? ValueForm::kPaper : ValueForm::kFull;
  return small;
}

// Whole samples, tables, variants, optimizer, workspace, shared weights; memory is tight in half of them.
inline SmallProblem small_whole_problem(std::uint64_t seed, int min_n = 3, int max_n = 8, int max_devices = 6) {
  SmallRandom random(seed ^ 0x77BEEF);
  RandomProblemOptions kinds;
  kinds.min_instructions = min_n;
  kinds.max_instructions = max_n;
  kinds.min_servers = random.integer(1, 2);
  kinds.max_servers = random.integer(kinds.min_servers, 3);
  kinds.min_devices = 1;
  kinds.max_devices = std::max(1, max_devices / kinds.max_servers);
  kinds.min_micro_batches = 1;
  kinds.max_micro_batches = 12;
  kinds.with_allreduce = 0.8;
  kinds.heterogeneous = 0.5;
  kinds.with_latency = 0.3;
  kinds.with_memory_limit = 0.6;
  kinds.forward_heavy = 0.2;
  kinds.with_zeros = 0.2;
  kinds.whole = 1;
  kinds.measured = 0.4;
  const RandomProblem made = random_problem(seed, kinds);
  SmallProblem small;
  small.profile = made.profile;
  small.cluster = made.cluster;
  small.options = made.options;
  small.options.allow_empty_stages = random.chance(0.5);
  small.options.value = random.chance(0.2) ? ValueForm::kPaper : ValueForm::kFull;
  if (random.chance(0.3)) {
    // Memory for more than one micro-batch in flight and fewer than all.
    for (auto& device : small.cluster.devices) device.second.memory_gib *= random.real(1, 6);
  }
  return small;
}

// Calls visit(values) for every strictly increasing choice of `count` entries of `from`.
template <typename Visit>
void for_each_choice(const std::vector<int>& from, int count, const Visit& visit) {
  std::vector<int> at(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) at[static_cast<std::size_t>(i)] = i;
  const int size = static_cast<int>(from.size());
  if (count > size) return;
  std::vector<int> values(at.size());
  while (true) {
    for (std::size_t i = 0; i < at.size(); ++i) values[i] = from[static_cast<std::size_t>(at[i])];
    visit(values);
    int i = count - 1;
    while (i >= 0 && at[static_cast<std::size_t>(i)] == size - count + i) --i;
    if (i < 0) return;
    ++at[static_cast<std::size_t>(i)];
    for (int j = i + 1; j < count; ++j) at[static_cast<std::size_t>(j)] = at[static_cast<std::size_t>(j - 1)] + 1;
  }
}

inline std::vector<int> up_to(int end) {
  std::vector<int> values;
  for (int i = 1; i < end; ++i) values.push_back(i);
  return values;
}

// Calls visit(plan) for the plan with its stages as every choice of variants.
template <typename Visit>
void for_each_variants(const Problem& problem, Plan plan, const Visit& visit) {
  const int count = problem.num_variants();
  plan.variants.clear();
  if (count == 1) return visit(plan);
  plan.variants.assign(static_cast<std::size_t>(plan.num_stages()), 0);
  while (true) {
    visit(plan);
    std::size_t s = 0;
    while (s < plan.variants.size() && ++plan.variants[s] == count) plan.variants[s++] = 0;
    if (s == plan.variants.size()) return;
  }
}

// Values of all feasible plans of `stages` stages, ascending.
inline std::vector<double> all_values(const Problem& problem, Schedule schedule, int stages,
                                      const std::vector<int>& pivots) {
  std::vector<double> values;
  Plan plan;
  plan.schedule = schedule;
  for_each_choice(pivots, stages - 1, [&](const std::vector<int>& cuts) {
    plan.cuts = cuts;
    for_each_choice(up_to(problem.num_devices()), stages - 1, [&](const std::vector<int>& device_cuts) {
      plan.device_cuts = device_cuts;
      for_each_variants(problem, plan, [&](const Plan& one) {
        if (feasible(problem, one)) values.push_back(value_ms(problem, one));
      });
    });
  });
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace automap::pipeline::testing
