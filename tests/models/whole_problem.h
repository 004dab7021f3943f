// Small problems of whole samples for the tests of the plan space and its searches: times over samples that bend,
// several types of devices, variants, memory that bites, all schedules, sync after or overlapped.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "common/pipeline/baselines.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/random_problem.h"
#include "models/plan_space.h"

namespace automap::models {

struct WholeProblem {
  pipeline::RandomProblem made;
  pipeline::Schedule schedule = pipeline::Schedule::kAdaptive;
};

inline WholeProblem whole_problem(int seed, int most_instructions, int most_servers, int most_devices) {
  using pipeline::Profile;
  pipeline::CounterRandom random(4711, static_cast<std::uint32_t>(seed));
  WholeProblem whole;
  Profile& profile = whole.made.profile;
  profile.model = "whole";
  profile.device = "first";
  profile.micro_batch_size = 4;
  const int n = random.integer(4, most_instructions);
  for (int i = 0; i < n; ++i) {
    profile.c_ms.push_back(random.uniform() < 0.1 ? 0 : random.log_uniform(0.1, 10));
    profile.a_bytes.push_back(random.uniform() < 0.1 ? 0 : random.log_uniform(1e4, 1e7));
    profile.w_bytes.push_back(random.uniform() < 0.3 ? 0 : random.log_uniform(1e5, 1e8));
    profile.stash_bytes.push_back(random.uniform() < 0.2 ? 0 : random.log_uniform(1e5, 1e8));
    profile.layer.push_back("layer " + std::to_string(i / 2));
    profile.workspace_bytes.push_back(random.uniform() < 0.5 ? 0 : random.log_uniform(1e5, 1e8));
    profile.gradient_bytes.push_back(profile.w_bytes.back() / 2);
    profile.slot_bytes.push_back(profile.w_bytes.back() * 2);
    profile.frozen_bytes.push_back(random.uniform() < 0.9 ? 0 : 1e7);
  }
  profile.c_ms[0] += 0.1;
  if (random.uniform() < 0.3) {
    pipeline::SharedWeight shared;
    shared.first = 1;
    shared.position = n;
    shared.weight_bytes = shared.gradient_bytes = shared.slot_bytes = 5e7;
    profile.shared.push_back(shared);
  }
  machine::Cluster& cluster = whole.made.cluster;
  cluster.name = "whole";
  cluster.intra_latency_us = random.uniform() < 0.5 ? 0 : 10;
  cluster.inter_latency_us = cluster.intra_latency_us * 3;
  const int servers = random.integer(1, most_servers);
  const bool two_types = random.uniform() < 0.4;
  for (int s = 0; s < servers; ++s) {
    const std::string name = two_types && s % 2 == 1 ? "second" : "first";
    cluster.devices[name].memory_gib = 16;
    cluster.servers.push_back({1, random.integer(1, most_devices), 50, random.log_uniform(0.5, 20), name});
  }
  // Forward and backward of every position at 1, 2, 4, ... samples: a fixed part and one that grows.
  if (random.uniform() < 0.8) {
    for (const auto& [name, device] : cluster.devices) {
      pipeline::DeviceTimes times;
      times.device = name;
      times.optimizer_ms.assign(static_cast<std::size_t>(n), random.uniform() < 0.5 ? 0 : 0.5);
      std::vector<double> fixed, forward;
      for (int i = 0; i < n; ++i) {
        fixed.push_back(random.uniform(0.05, 0.6));
        forward.push_back(random.uniform(0.2, 0.6));
      }
      const double speed = name == "first" ? 1 : random.uniform(0.5, 3);
      for (double samples = 1; samples <= 16; samples *= 2) {
        times.samples.push_back(samples);
        times.forward_ms.emplace_back();
        times.backward_ms.emplace_back();
        for (int i = 0; i < n; ++i) {
          const std::size_t k = static_cast<std::size_t>(i);
          const double ms = profile.c_ms[k] * (fixed[k] + (1 - fixed[k]) * samples / 4) / speed;
          times.forward_ms.back().push_back(forward[k] * ms);
          times.backward_ms.back().push_back((1 - forward[k]) * ms);
        }
      }
      profile.times.push_back(times);
    }
  }
  pipeline::ProblemOptions& options = whole.made.options;
  options.replicas = pipeline::Replicas::kWhole;
  options.micro_batch_samples =
      std::array<double, 6>{2, 3, 4, 6, 8, 12}[static_cast<std::size_t>(random.integer(0, 5))];
  options.micro_batches = random.integer(1, 12);
  options.optimizer = random.uniform() < 0.5;
  options.gradient_sync = random.uniform() < 0.7 ? pipeline::GradientSync::kOverlap : pipeline::GradientSync::kAfter;
  options.bucket_bytes = 2e7;
  options.allow_idle_stages = random.uniform() < 0.4;
  options.allow_empty_stages = random.uniform() < 0.3;
  if (random.uniform() < 0.15) options.value = pipeline::ValueForm::kPaper;
  if (random.uniform() < 0.6) options.variants = {{0, false}, {0, true}, {1, false}, {1, true}};
  if (random.uniform() < 0.15) options.variants = {{0, false}, {2, true}, {3, false}};
  // Half of them: memory that a few stages with all their micro-batches would exceed.
  options.memory = random.uniform() < 0.6;
  if (options.memory) {
    double bytes = 1e6;
    for (int i = 0; i < n; ++i) {
      const std::size_t k = static_cast<std::size_t>(i);
      bytes += 3.5 * profile.w_bytes[k] + 3 * profile.stash_bytes[k];
    }
    for (auto& [name, device] : cluster.devices) {
      device.memory_gib = bytes * random.log_uniform(0.15, 2) / (1024.0 * 1024.0 * 1024.0);
    }
  }
  const std::vector<pipeline::Schedule> schedules = pipeline::alternating_schedules();
  if (random.uniform() < 0.5) {
    whole.schedule = schedules[static_cast<std::size_t>(random.integer(0, static_cast<int>(schedules.size()) - 1))];
  }
  return whole;
}

// A space of so many stages whose points are all instructions.
inline PlanSpaceOptions every_pivot(const pipeline::Problem& problem, int stages, pipeline::Schedule schedule) {
  PlanSpaceOptions options;
  options.stages = stages;
  options.schedule = schedule;
  for (int p = 1; p < problem.num_instructions(); ++p) options.pivots.push_back(p);
  return options;
}

// The variants of a plan by the plan space's rule, told again: of those in the order of the whole model's compute on
// the group the first that fits with what the schedule asks for, else the one that fits with most micro-batches.
inline bool take_variants(const pipeline::Problem& problem, pipeline::Plan& plan) {
  plan.variants.clear();
  bool all = true;
  pipeline::for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    const pipeline::DeviceGroup& group = problem.group(d0, d1);
    if (!group.valid) return all = false;
    const bool adaptive = plan.schedule == pipeline::Schedule::kAdaptive;
    const int wanted = pipeline::in_flight(adaptive ? pipeline::Schedule::k1f1bOverlap : plan.schedule,
                                           plan.num_stages(), s, problem.micro_batches());
    std::vector<int> order;
    for (int v = 0; v < problem.num_variants(); ++v) order.push_back(v);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return problem.compute_ms(0, problem.num_instructions(), group, a) <
             problem.compute_ms(0, problem.num_instructions(), group, b);
    });
    int best = -1, most = 0;
    for (const int v : order) {
      const int k = problem.in_flight(plan.schedule, plan.num_stages(), s, p0, p1, group, v);
      if (best >= 0 && most >= wanted) break;
      if (k > most) {
        most = k;
        best = v;
      }
    }
    all = all && best >= 0;
    plan.variants.push_back(static_cast<std::uint8_t>(std::max(best, 0)));
    return all;
  });
  if (problem.num_variants() == 1) plan.variants.clear();
  return all;
}

// Calls visit(plan, with variants) for every plan of so many stages that may run.
inline void for_each_plan(const pipeline::Problem& problem, int stages, pipeline::Schedule schedule,
                          const std::function<void(const pipeline::Plan&)>& visit) {
  pipeline::Plan plan;
  plan.schedule = schedule;
  const std::function<void(int, int)> place = [&](int cut, int device) {
    if (plan.num_stages() == stages) {
      pipeline::Plan whole = plan;
      if (take_variants(problem, whole) && pipeline::feasible(problem, whole)) visit(whole);
      return;
    }
    for (int p = cut + 1; p < problem.num_instructions(); ++p) {
      for (int d = device + 1; d < problem.num_devices(); ++d) {
        plan.cuts.push_back(p);
        plan.device_cuts.push_back(d);
        place(p, d);
        plan.cuts.pop_back();
        plan.device_cuts.pop_back();
      }
    }
  };
  place(0, 0);
}

}  // namespace automap::models
