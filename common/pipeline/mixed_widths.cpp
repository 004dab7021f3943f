#include "common/pipeline/mixed_widths.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

std::unique_ptr<Problem> problem_at(const CheckedProfile& profile, const machine::Cluster& cluster,
                                    ProblemOptions options, int width) {
  options.width = width;
  for (const machine::ServerGroup& servers : cluster.servers) {
    if (servers.devices % width == 0) continue;
    throw Error(ErrorKind::kUsage,
                "replicas of " + std::to_string(width) + " devices do not divide the " +
                    std::to_string(servers.devices) + " devices of a server of cluster '" + cluster.name + "'",
                "stages of different widths share whole servers");
  }
  if (width == 1) return std::make_unique<Problem>(profile, cluster, options);
  return std::make_unique<Problem>(profile.at_width(width), machine::replicas_of(cluster, width), options);
}

}  // namespace

MixedProblem::MixedProblem(const CheckedProfile& profile, const machine::Cluster& cluster,
                           const ProblemOptions& options)
    : num_devices_(cluster.num_devices()) {
  std::optional<Error> refused;
  for (const int width : known_widths(profile)) {
    try {
      problems_[width] = problem_at(profile, cluster, options, width);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      if (!refused) refused.emplace(e);
    }
  }
  if (problems_.empty()) throw *refused;
}

MixedProblem::MixedProblem(const CheckedProfile& profile, const machine::Cluster& cluster,
                           const ProblemOptions& options, const std::vector<int>& widths)
    : num_devices_(cluster.num_devices()) {
  AM_CHECK(!widths.empty());
  for (const int width : widths) {
    if (problems_.count(width) == 0) problems_[width] = problem_at(profile, cluster, options, width);
  }
}

std::vector<int> MixedProblem::widths() const {
  std::vector<int> out;
  for (const auto& [width, problem] : problems_) out.push_back(width);
  return out;
}

Link MixedProblem::link(int d0, int d1, int width, int d2, int width_behind) const {
  const int wider = std::max(width, width_behind);
  const bool divides = d0 % wider == 0 && d1 % wider == 0 && d2 % wider == 0;
  Link link = any().link_at_width(divides ? wider : 1, d0, d1, d2);
  if (!divides) link.bytes_per_ms /= wider;
  return link;
}

bool MixedProblem::valid_structure(const MixedPlan& plan) const {
  if (!pipeline::valid_structure(plan, num_instructions(), num_devices_, micro_batches(), any().num_variants()) ||
      plan.chunks != 1 || plan.widths.size() != plan.cuts.size() + 1) {
    return false;
  }
  int begin = 0;
  for (std::size_t s = 0; s < plan.widths.size(); ++s) {
    const int end = s < plan.device_cuts.size() ? plan.device_cuts[s] : num_devices_;
    if (problems_.count(plan.widths[s]) == 0 || begin % plan.widths[s] != 0 || end % plan.widths[s] != 0) return false;
    begin = end;
  }
  return true;
}

PlacedPlan MixedProblem::place(const MixedPlan& plan) const {
  AM_CHECK(valid_structure(plan));
  PlacedPlan placed;
  placed.plan = plan;
  int p0 = 0, d0 = 0;
  for (int s = 1; s <= plan.num_stages(); ++s) {
    const bool last = s == plan.num_stages();
    const int p1 = last ? num_instructions() : plan.cuts[at(s - 1)];
    const int d1 = last ? num_devices_ : plan.device_cuts[at(s - 1)];
    const int width = plan.widths[at(s - 1)];
    placed.stages.push_back({&problem(width), {{p0, p1}}, d0 / width, d1 / width, plan.variant(s)});
    if (!last) {
      const int d2 = s + 1 == plan.num_stages() ? num_devices_ : plan.device_cuts[at(s)];
      placed.stages.back().parts.front().behind = link(d0, d1, width, d2, plan.widths[at(s)]);
    }
    p0 = p1;
    d0 = d1;
  }
  return placed;
}

std::optional<PipelineTimes> MixedProblem::times(const MixedPlan& plan) const {
  if (!valid_structure(plan)) return std::nullopt;
  const PlacedPlan placed = place(plan);
  const int stages = plan.num_stages();
  double computed = 0;
  int before = micro_batches();
  for (int s = 1; s <= stages; ++s) {
    const PlacedStage& stage = placed.stages[at(s - 1)];
    const DeviceGroup& group = stage.group();
    if (!group.valid) return std::nullopt;
    const Problem& own = *stage.problem;
    const int p0 = stage.part().p0, p1 = stage.part().p1;
    int k = plan.warmup.empty() ? in_flight(plan.schedule, stages, s, micro_batches()) : plan.warmup[at(s - 1)];
    if (plan.warmup.empty() && plan.schedule == Schedule::kAdaptive) {
      before = k = std::min(before, std::max(1, own.most_in_flight(p0, p1, group, stage.variant)));
    }
    if (!own.stage_fits(p0, p1, group, k, own.stages_need_variables(stages), stage.variant)) {
      return std::nullopt;
    }
    computed += own.compute_ms(p0, p1, group, stage.variant);
  }
  PipelineTimes times = pipeline_times(placed);
  for (std::size_t s = 0; s < at(stages) && !any().options().allow_idle_stages; ++s) {
    if (idles_beside(times.forward_ms[s] + times.backward_ms[s], computed, stages)) return std::nullopt;
  }
  return times;
}

double MixedProblem::simulated_ms(const MixedPlan& plan) const {
  std::optional<PipelineTimes> times = this->times(plan);
  if (!times) return std::numeric_limits<double>::infinity();
  if (plan.schedule == Schedule::kAdaptive && plan.warmup.empty()) return quick_warmup(any(), plan, *times);
  return simulate_step_ms(*times, micro_batches(), plan.schedule);
}

}  // namespace automap::pipeline
