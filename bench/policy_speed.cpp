// Measures planning with a policy, whole and by part: processor time of one thread, an untrained network of the shipped
// size, random problems on 4 servers.
//   bench-policy_speed [PROBLEMS]
// Each problem is measured several times and its best time counts; the tables show the mean and the 95th percentile
// over the problems. The stages, D and the search width are those of the columns.
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "models/features.h"
#include "models/forward.h"
#include "models/policy_search.h"

namespace automap::models {
namespace {

using pipeline::Problem;
using pipeline::RandomProblem;

constexpr int kRepetitions = 7;

double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double best_us(const std::function<void()>& work) {
  double best = 1e300;
  for (int i = 0; i < kRepetitions; ++i) {
    const double start = cpu_us();
    work();
    best = std::min(best, cpu_us() - start);
  }
  return best;
}

struct Samples {
  std::vector<double> values;
  void add(double value) { values.push_back(value); }
  double mean() const {
    double sum = 0;
    for (const double value : values) sum += value;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
  }
  double p95() const {
    if (values.empty()) return 0;
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[(sorted.size() - 1) * 95 / 100];
  }
};

Policy untrained() {
  Architecture a;
  a.features = kFeatures;
  a.feature_version = kFeatureVersion;
  Rng rng(1, 1, 1);
  std::vector<float> weights(Policy::num_weights(a));
  for (float& weight : weights) weight = static_cast<float>(rng.uniform(-0.15, 0.15));
  return Policy(a, weights);
}

void forward_speed(const Policy& policy) {
  const Architecture& a = policy.architecture();
  const ForwardNetwork network(a.features, a.hidden, {1}, policy.weights().data());
  constexpr int kStates = 192;
  std::vector<float> features(kStates * kFeatures, 0.5f), y(kStates);
  std::printf("\nNetwork alone (%d-64-64-1), batch of %d\n  %-10s %12s %14s\n", kFeatures, kStates, "variant",
              "us per state", "states per s");
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    constexpr int kRuns = 20;
    const double us = best_us([&] {
                        for (int run = 0; run < kRuns; ++run) network.run(features.data(), kStates, y.data(), isa);
                      }) /
                      (kRuns * kStates);
    std::printf("  %-10s %12.3f %13.2fM\n", to_string(isa), us, 1 / us);
  }
}

void search_speed(const Policy& policy, int problems, int stages, int devices_per_server) {
  Samples tables, greedy, beam, corridor, all, rollout_beam;
  Samples expand_root, expand_beam, promising_root, promising_beam, rollouts_us, features_us, forward_us, finish_us;
  for (int i = 0; i < problems; ++i) {
    pipeline::RandomProblemOptions options;
    options.min_devices = options.max_devices = devices_per_server;
    options.heterogeneous = 0.25;
    options.with_latency = 0.25;
    options.with_memory_limit = 0.25;
    const RandomProblem made = pipeline::random_problem(static_cast<std::uint64_t>(i) + 1000, options);
    const Problem problem = made.problem();
    PlanSpaceOptions space_options;
    space_options.stages = stages;
    if (problem.num_devices() < stages) continue;
    tables.add(best_us([&] { PlanSpace made_again(problem, space_options); }));
    // Rollouts fill a table as they go: what a first search costs needs a fresh one.
    const auto search_us = [&](const Policy* with, int width) {
      double best = 1e300;
      for (int repetition = 0; repetition < kRepetitions; ++repetition) {
        const PlanSpace fresh(problem, space_options);
        PolicySearchOptions search;
        search.beam = width;
        const double start = cpu_us();
        search_plan(fresh, with, search);
        best = std::min(best, cpu_us() - start);
      }
      return best;
    };
    greedy.add(search_us(&policy, 1));
    beam.add(search_us(&policy, 16));
    rollout_beam.add(search_us(nullptr, 16));
    const PlanSpace space(problem, space_options);
    PolicySearchOptions search;
    search.beam = 16;
    const std::optional<FoundPlan> found = search_plan(space, &policy, search);
    if (found) {
      corridor.add(best_us([&] { pipeline::refine_in_corridor(problem, found->plan); }));
      OneShotOptions one_shot;
      one_shot.space = space_options;
      one_shot.search = search;
      all.add(best_us([&] { plan_in_one_shot(problem, &policy, one_shot); }));
    }

    std::vector<Prefix> parents, children;
    std::vector<int> parent_of;
    expand_root.add(best_us([&] { space.expand({space.root()}, kMostChildren, children, parent_of); }));
    if (children.empty()) continue;
    std::vector<Rollouts> rollouts;
    promising_root.add(best_us([&] { space.promising({space.root()}, kMostChildren, children, parent_of, rollouts); }));
    parents.assign(children.begin(),
                   children.begin() + std::min<std::ptrdiff_t>(16, static_cast<std::ptrdiff_t>(children.size())));
    if (parents.front().stages + 1 < stages) {
      expand_beam.add(best_us([&] { space.expand(parents, 192, children, parent_of); }));
      promising_beam.add(best_us([&] { space.promising(parents, 192, children, parent_of, rollouts); }));
    }
    const double count = static_cast<double>(children.size());
    rollouts.resize(children.size());
    std::vector<float> features(children.size() * kFeatures), bounds(children.size()), y(children.size());
    rollouts_us.add(best_us([&] {
                      for (std::size_t k = 0; k < children.size(); ++k) rollouts[k] = space.rollouts(children[k]);
                    }) /
                    count);
    features_us.add(best_us([&] {
                      for (std::size_t k = 0; k < children.size(); ++k) {
                        after_state_features(space, children[k], rollouts[k], children[k].bound_ms,
                                             features.data() + k * kFeatures);
                      }
                    }) /
                    count);
    forward_us.add(
        best_us([&] { policy.predict(features.data(), bounds.data(), static_cast<int>(children.size()), y.data()); }) /
        count);
    if (children.front().stages == stages - 2) {
      const double incumbent = found ? found->length_ms * 1.02 : std::numeric_limits<double>::infinity();
      const std::size_t finished = std::min<std::size_t>(16, children.size());
      finish_us.add(best_us([&] {
                      for (std::size_t k = 0; k < finished; ++k) space.finish(children[k], incumbent, nullptr);
                    }) /
                    static_cast<double>(finished));
    }
  }
  std::printf("\nS = %d, D = %d, %zu problems\n  %-34s %9s %9s\n", stages, 4 * devices_per_server, greedy.values.size(),
              "ms", "mean", "p95");
  const auto line_ms = [](const char* name, const Samples& samples) {
    if (!samples.values.empty()) std::printf("  %-34s %9.3f %9.3f\n", name, samples.mean() / 1e3, samples.p95() / 1e3);
  };
  line_ms("plan space", tables);
  line_ms("greedy", greedy);
  line_ms("beam 16", beam);
  line_ms("beam 16 without the network", rollout_beam);
  line_ms("corridor behind beam 16", corridor);
  line_ms("space + beam 16 + corridor", all);
  std::printf("  %-34s %9s %9s\n", "us", "mean", "p95");
  const auto line_us = [](const char* name, const Samples& samples) {
    if (!samples.values.empty()) std::printf("  %-34s %9.2f %9.2f\n", name, samples.mean(), samples.p95());
  };
  line_us("expand the root, 48 children", expand_root);
  line_us("expand 16, 192 children", expand_beam);
  line_us("promising of the root, 48", promising_root);
  line_us("promising of 16, 192", promising_beam);
  line_us("rollouts, per after-state", rollouts_us);
  line_us("features, per after-state", features_us);
  line_us("network, per after-state", forward_us);
  line_us("finish, per prefix", finish_us);
}

}  // namespace
}  // namespace automap::models

int main(int argc, char** argv) {
  using namespace automap::models;
  const int problems = argc > 1 ? std::atoi(argv[1]) : 40;
  if (problems < 1) {
    std::fprintf(stderr, "usage: bench-policy_speed [PROBLEMS]\n");
    return 2;
  }
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  std::printf("Processor time of one thread; load of the machine %.1f on %d processors\n", load, get_nprocs());
  const Policy policy = untrained();
  forward_speed(policy);
  search_speed(policy, problems, 4, 8);
  search_speed(policy, problems, 8, 4);
  search_speed(policy, problems, 8, 16);
  search_speed(policy, problems, 16, 16);
}
