#include "plan/planners/sensitivity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"
#include "plan/planners/scaled_estimates.h"
#include "plan/planners/score.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using pipeline::PlanSensitivity;
using pipeline::Profile;

// The estimates that a plan is made from, which are varied.
struct Estimates {
  Profile profile;
  Cluster cluster;
};

struct Change {
  std::string what;
  std::function<void(Estimates&)> apply;
};

// The positions that do half of the compute.
std::size_t half_of_compute(const Profile& profile) {
  const double all = std::accumulate(profile.c_ms.begin(), profile.c_ms.end(), 0.0);
  double sum = 0;
  std::size_t i = 0;
  while (i < profile.c_ms.size() && sum < all / 2) sum += profile.c_ms[i++];
  return i;
}

// Collectives inside wide replicas count as compute here: all factors of these rows are of both.
void scale_compute(Profile& profile, std::size_t first, std::size_t last, double factor) {
  scale_times(profile, first, last, factor, factor);
}

constexpr double kShorter = 0.999;  // less is rounding

std::string whole_percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

std::vector<Change> changes_of(const Profile& profile, const Cluster& cluster, const ExpectedErrors& errors) {
  std::vector<Change> changes;
  if (errors.compute_more > 0) {
    const std::string by = whole_percent(errors.compute_more), down_by = whole_percent(errors.compute_less);
    const double up = 1 + errors.compute_more, down = 1 / (1 + errors.compute_less);
    const std::size_t half = half_of_compute(profile), all = profile.c_ms.size();
    changes.push_back({"compute " + by + " slower", [=](Estimates& q) { scale_compute(q.profile, 0, all, up); }});
    changes.push_back(
        {"compute " + down_by + " faster", [=](Estimates& q) { scale_compute(q.profile, 0, all, down); }});
    changes.push_back(
        {"the front half's compute " + by + " slower", [=](Estimates& q) { scale_compute(q.profile, 0, half, up); }});
    changes.push_back(
        {"the back half's compute " + by + " slower", [=](Estimates& q) { scale_compute(q.profile, half, all, up); }});
  }
  const auto links = [&](const std::string& name, Links which, double error) {
    if (error <= 0) return;
    const std::string by = whole_percent(error);
    const double up = 1 + error;
    changes.push_back({name + " " + by + " slower", [=](Estimates& q) { scale_links(q.cluster, which, up, 1); }});
    changes.push_back({name + " " + by + " faster", [=](Estimates& q) { scale_links(q.cluster, which, 1 / up, 1); }});
  };
  links("links inside servers", Links::kInside, errors.links_inside);
  if (cluster.num_servers() > 1) links("links between servers", Links::kBetween, errors.links_between);
  if (errors.memory > 0) {
    const std::string by = whole_percent(errors.memory);
    const double up = 1 + errors.memory;
    changes.push_back({"activations " + by + " larger", [=](Estimates& q) { scale_memory(q.profile, up); }});
    changes.push_back({"activations " + by + " smaller", [=](Estimates& q) { scale_memory(q.profile, 1 / up); }});
  }
  return changes;
}

}  // namespace

std::vector<PlanSensitivity> plan_sensitivity(const Question& question, const Candidate& plan,
                                              const ExpectedErrors& errors) {
  std::vector<PlanSensitivity> rows;
  // The plan as it stands: its own split of the batch, on its own devices; a stage that is short of work still runs.
  const auto score = [](const Profile& of, const Cluster& on, const Candidate& one) {
    pipeline::ProblemOptions own = one.placed.problem().options();
    own.allow_idle_stages = true;
    own.group_size = 0;
    const machine::Cluster used = machine::on_devices(on, one.devices());
    if (!one.of_one_width()) return score_mixed(of, used, own, one.mixed_plan(), "the plan");
    return score_plan(profile_at(of, own.width), machine::replicas_of(used, own.width), own, one.plan, "the plan");
  };
  const PlanRequest& request = question.request;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Change> changes = changes_of(question.profile(), question.cluster, errors);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    if (request.stopped()) break;
    Estimates estimates{question.profile(), question.cluster};
    change.apply(estimates);
    const ScoredPlan scored = score(estimates.profile, estimates.cluster, plan);
    Question changed = question;
    changed.cluster = std::move(estimates.cluster);
    changed.set_profile(std::move(estimates.profile));
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start;
    changed.request.time_limit_s =
        std::max(0.0, request.time_limit_s - gone.count()) / static_cast<double>(changes.size() - i);
    const Candidate best = candidate_of("", plan_step(changed));
    // Half a row is none: what was stopped says nothing about the plan.
    if (request.stopped()) break;
    PlanSensitivity row;
    row.changed = change.what;
    if (scored.infeasible.empty()) row.simulated_step_ms = row.best_ms = scored.simulated_step_ms;
    if (best.found() && (row.best_ms == 0 || best.simulated_step_ms < row.best_ms)) {
      row.best_ms = best.simulated_step_ms;
      if (!plan.of_one_width() || !(best.plan == plan.plan && best.size == plan.size)) {
        row.best = plan_text(best.placed);
        const ScoredPlan unchanged = score(question.profile(), question.cluster, best);
        if (unchanged.infeasible.empty() && unchanged.simulated_step_ms < kShorter * plan.simulated_step_ms) {
          row.best += "; shorter as things are, too: more --effort may find it";
        }
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace automap::planners
