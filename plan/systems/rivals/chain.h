// Shared parts of published planners of pipelines: a model as a chain of units, stages as runs of units on consecutive
// devices, and the dynamic program for the least of
//
//     sum_i t_i + (M - 1) max_i t_i
//
// over all such plans (Alpa, arXiv 2201.12023, equation 2). t_i, in ms: forward and backward of one micro-batch; the
// work of stage i once per step (whole sync, optimizer), spread over the M micro-batches; and, where the planner counts
// them, the transfers behind it, both ways, to a group as large as its own. Stages run 1F1B: memory is asked for K =
// min(M, stages left). Of the stage variants that fit, the one with the least t is taken.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/problem.h"
#include "plan/planners/question.h"

namespace automap::rivals {

// Group sizes that a stage may have whose first device is d0 (0-based), each at most D - d0.
using GroupSizes = std::function<std::vector<int>(int d0)>;

// The ends of at most `most` units, ascending, the last one n: between layers where the profile names them, nearest to
// equal compute where there are more.
std::vector<int> unit_ends(const pipeline::Profile& profile, int most);

struct ChainPlan {
  pipeline::Plan plan;
  double objective_ms = 0;  // the sum above
};

enum class Transfers { kIgnored, kCounted };

// The least `ms_of(variant)` below `below_ms` of the variants of a stage that fit with so many micro-batches in flight,
// and that variant; infinite when there is none. Times are compared first: memory costs more to ask for.
template <typename MsOf>
double least_of_variants(const pipeline::Problem& problem, int p0, int p1, const pipeline::DeviceGroup& group,
                         int in_flight, bool needs_variable, const MsOf& ms_of, int* variant,
                         double below_ms = std::numeric_limits<double>::infinity()) {
  double least = below_ms;
  bool found = false;
  for (int v = 0; v < problem.num_variants(); ++v) {
    const double ms = ms_of(v);
    if (ms >= least || !problem.stage_fits(p0, p1, group, in_flight, needs_variable, v)) continue;
    least = ms;
    found = true;
    if (variant != nullptr) *variant = v;
  }
  return found ? least : std::numeric_limits<double>::infinity();
}

// True if the stage computes so long, however it runs, that no plan with it has a simulated step below below_ms; then
// so does every longer stage on these devices.
bool hopeless_stage(const pipeline::Problem& problem, int p0, int p1, const pipeline::DeviceGroup& group,
                    double below_ms);

// t_i of a stage, the least over the variants that fit; infinite when none does. `stages_left` with this one.
double stage_ms(const pipeline::Problem& problem, int p0, int p1, int d0, int d1, int stages_left, Transfers transfers,
                int* variant = nullptr);

// The sum above from its two parts, sum_i t_i and max_i t_i.
double chain_ms(const pipeline::Problem& problem, double sum_ms, double longest_ms);

// The best plan of up to max_stages stages that uses all devices, within a share `gap` of the largest t (0: the best of
// all), and of those whose stages leave hope of a simulated step below below_ms; nothing when none fits. Every plan
// returned is feasible(). O(thresholds S U^2 D sizes) for U units.
std::optional<ChainPlan> best_chain(const pipeline::Problem& problem, const std::vector<int>& ends,
                                    const GroupSizes& sizes, int max_stages, double gap, Transfers transfers,
                                    double below_ms = std::numeric_limits<double>::infinity());

// A whole plan of a published planner; `problem` is null when it has none.
struct RivalPlan {
  std::unique_ptr<pipeline::Problem> problem;
  pipeline::Plan plan;
  double objective_ms = 0;  // its own
  // By our simulation; infinite when it has none.
  double simulated_step_ms = std::numeric_limits<double>::infinity();
  std::size_t planner = 0;  // whose it is, of those asked
};

// The splits of the batch that published planners are asked for: each with every width, on all devices.
std::vector<planners::StepSize> splits_of(const planners::Question& question);

// Asks each planner for a plan of every width and split of the batch (all devices); of these the one that is simulated
// shortest, with as much in flight as our own plans may have: no rival is held back by its choice among splits, nor by
// its schedule. Equal ones: the first.
// They need find no plan that takes below_ms or more.
using Planner = std::function<std::optional<ChainPlan>(const pipeline::Problem& problem, double below_ms)>;
// Stages count up to the request's max_stages. Splits are left out whose simplest bound says that no simulated step
// below below_ms can come of them, and plans with stages that alone take as long.
RivalPlan best_over_splits(const planners::Question& question, const std::vector<Planner>& planners,
                           double below_ms = std::numeric_limits<double>::infinity());

}  // namespace automap::rivals
