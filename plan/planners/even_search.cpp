#include "plan/planners/even_search.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"

namespace automap::planners {
namespace {

using pipeline::DeviceGroup;
using pipeline::EvenPlan;
using pipeline::Problem;

// Moves of cuts that are simulated, of every number of groups, chunks and variant.
constexpr int kMostMoves = 300;

class EvenSearch {
 public:
  EvenSearch(const Problem& problem, EvenPlan shape) : problem_(problem), best_(std::move(shape)) {}

  // Parts of about equal compute, then cuts moved as long as the step gets shorter. Infinite: it cannot run.
  double run(double hopeless_ms) {
    if (bound_ms() >= hopeless_ms || !balance()) return kInfinity;
    best_ms_ = judged(best_);
    int moves = 0;
    for (int reach = std::max(1, problem_.num_instructions() / best_.parts() / 4); reach >= 1; reach /= 2) {
      for (std::size_t cut = 0; cut < best_.cuts.size(); ++cut) {
        for (const int by : {-reach, reach}) {
          while (++moves <= kMostMoves && try_move(cut, by)) {
          }
        }
      }
    }
    return best_ms_;
  }
  const EvenPlan& plan() const { return best_; }

 private:
  const DeviceGroup& group(int part) const {
    const int size = problem_.num_devices() / best_.groups, g = part % best_.groups;
    return problem_.group(g * size, (g + 1) * size);
  }

  // All groups compute all of the model, in parts.
  double bound_ms() const {
    double least = kInfinity;
    for (int g = 0; g < best_.groups; ++g) {
      if (!group(g).valid) return kInfinity;
      least = std::min(least, problem_.compute_ms(0, problem_.num_instructions(), group(g), best_.variant));
    }
    return problem_.micro_batches() * least / best_.groups;
  }

  // The least T of which every part takes at most that, filled up part by part.
  bool balance() {
    const int n = problem_.num_instructions(), parts = best_.parts();
    if (parts > n) return false;
    const auto fill = [&](double limit, std::vector<int>* cuts) {
      int p = 0;
      for (int part = 0; part < parts; ++part) {
        const int most = n - (parts - part - 1);  // leaves a position for each part behind
        int reached = p + 1, beyond = most + 1;
        while (beyond - reached > 1) {
          const int middle = reached + (beyond - reached) / 2;
          (problem_.compute_ms(p, middle, group(part), best_.variant) <= limit ? reached : beyond) = middle;
        }
        if (problem_.compute_ms(p, reached, group(part), best_.variant) > limit) return false;
        p = reached;
        if (cuts != nullptr && part + 1 < parts) cuts->push_back(p);
      }
      return p == n;
    };
    double low = 0, high = 0;
    for (int g = 0; g < best_.groups; ++g) {
      high = std::max(high, problem_.compute_ms(0, n, group(g), best_.variant));
    }
    constexpr int kMostHalvings = 64;  // more leave nothing of any interval at this accuracy
    for (int halvings = 0; halvings < kMostHalvings && high - low > 1e-6 * high; ++halvings) {
      const double middle = low + (high - low) / 2;
      (fill(middle, nullptr) ? high : low) = middle;
    }
    best_.cuts.clear();
    return fill(high, &best_.cuts);
  }

  double judged(const EvenPlan& plan) const {
    return even_feasible(problem_, plan) ? simulate_even_ms(even_times(problem_, plan), problem_.micro_batches())
                                         : kInfinity;
  }

  bool try_move(std::size_t cut, int by) {
    EvenPlan moved = best_;
    moved.cuts[cut] += by;
    const int before = cut == 0 ? 0 : moved.cuts[cut - 1];
    const int behind = cut + 1 == moved.cuts.size() ? problem_.num_instructions() : moved.cuts[cut + 1];
    if (moved.cuts[cut] <= before || moved.cuts[cut] >= behind) return false;
    const double ms = judged(moved);
    if (!(ms < best_ms_)) return false;
    best_ms_ = ms;
    best_ = std::move(moved);
    return true;
  }

  const Problem& problem_;
  EvenPlan best_;
  double best_ms_ = kInfinity;
};

}  // namespace

std::optional<EvenChoice> best_even(const Question& question, int width, const EvenSchedule& schedule) {
  const pipeline::Profile& profile = question.profile();
  const machine::Cluster& cluster = question.cluster;
  const pipeline::ProblemOptions& options = question.options;
  const StepRequest& step = question.step;
  const PlanRequest& request = question.request;
  const pipeline::Profile of_width = width == 1 ? profile : profile_at(profile, width);
  const machine::Cluster replicas = width == 1 ? cluster : machine::replicas_of(cluster, width);
  std::optional<EvenChoice> best;
  for (const StepSize& size : step_sizes(step, profile, options.replicas)) {
    if (request.stopped()) break;
    pipeline::ProblemOptions own = options;
    own.micro_batches = size.micro_batches;
    own.micro_batch_samples = size.samples;
    own.width = width;
    std::unique_ptr<Problem> problem;
    try {
      problem = std::make_unique<Problem>(of_width, replicas, own);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;  // more samples than times are known for
      continue;
    }
    std::optional<EvenChoice> found;
    const int most = std::min(request.max_stages, problem->num_devices());
    for (int groups = std::max(2, request.stages); groups <= (request.stages > 0 ? request.stages : most); ++groups) {
      if (problem->num_devices() % groups != 0) continue;
      if (step.lone_replicas && groups != problem->num_devices()) continue;
      for (const int v : schedule.chunks) {
        if (v > 1 && (groups < 3 || size.micro_batches % groups != 0)) continue;
        const DeviceGroup& first = problem->group(0, problem->num_devices() / groups);
        if (!first.valid) continue;
        for (const int variant : problem->useful_variants(first)) {
          if (schedule.zero_bubble && !zero_bubble_allows(problem->variant(variant))) continue;
          EvenPlan shape;
          shape.groups = groups;
          shape.chunks = v;
          shape.zero_bubble = schedule.zero_bubble;
          shape.variant = variant;
          EvenSearch search(*problem, shape);
          const double hopeless =
              std::min(best ? best->simulated_step_ms : kInfinity, found ? found->simulated_step_ms : kInfinity);
          const double ms = search.run(hopeless);
          if (!(ms < hopeless)) continue;
          found.emplace();
          found->plan = search.plan();
          found->simulated_step_ms = ms;
        }
      }
    }
    if (!found) continue;
    found->problem = std::move(problem);
    best = std::move(found);
  }
  return best;
}

}  // namespace automap::planners
