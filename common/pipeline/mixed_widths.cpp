#include "common/pipeline/mixed_widths.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/error.h"
#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

bool rises_within(const std::vector<int>& cuts, int end) {
  int before = 0;
  for (const int cut : cuts) {
    if (cut <= before || cut >= end) return false;
    before = cut;
  }
  return true;
}

}  // namespace

MixedProblem::MixedProblem(const Profile& profile, const machine::Cluster& cluster, const ProblemOptions& options)
    : num_devices_(cluster.num_devices()) {
  std::vector<int> widths = {1};
  for (const WidthColumns& columns : profile.widths) widths.push_back(columns.width);
  std::optional<Error> refused;
  for (const int width : widths) {
    ProblemOptions own = options;
    own.width = width;
    try {
      problems_[width] =
          width == 1 ? std::make_unique<Problem>(profile, cluster, own)
                     : std::make_unique<Problem>(profile_at(profile, width), machine::replicas_of(cluster, width), own);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      if (!refused) refused.emplace(e);
    }
  }
  if (problems_.empty()) throw *refused;
}

std::vector<int> MixedProblem::widths() const {
  std::vector<int> out;
  for (const auto& [width, problem] : problems_) out.push_back(width);
  return out;
}

int MixedProblem::num_instructions() const {
  return problems_.begin()->second->num_instructions();
}
int MixedProblem::micro_batches() const {
  return problems_.begin()->second->micro_batches();
}

MixedProblem::Range MixedProblem::range(const MixedPlan& plan, int stage) const {
  const bool first = stage == 1, last = stage == plan.num_stages();
  return {first ? 0 : plan.cuts[at(stage - 2)], last ? num_instructions() : plan.cuts[at(stage - 1)],
          first ? 0 : plan.device_cuts[at(stage - 2)], last ? num_devices_ : plan.device_cuts[at(stage - 1)]};
}

const DeviceGroup* MixedProblem::group(int width, int d0, int d1) const {
  const auto found = problems_.find(width);
  if (found == problems_.end() || d0 % width != 0 || d1 % width != 0) return nullptr;
  const DeviceGroup& group = found->second->group(d0 / width, d1 / width);
  return group.valid ? &group : nullptr;
}

Link MixedProblem::link(int d0, int d1, int width, int d2, int width_behind) const {
  const int wider = std::max(width, width_behind);
  for (const int both : {wider, 1}) {
    const auto found = problems_.find(both);
    if (found == problems_.end() || d0 % both != 0 || d1 % both != 0 || d2 % both != 0) continue;
    const DeviceGroup &from = found->second->group(d0 / both, d1 / both),
                      &to = found->second->group(d1 / both, d2 / both);
    Link link = found->second->link(from, to);
    if (both < wider) link.bytes_per_ms /= wider;
    return link;
  }
  // The wider side's own width divides it, and single devices are always there unless their samples are too many.
  const Problem& some = *problems_.begin()->second;
  return {0, some.port_bytes_per_ms(0, some.num_servers() - 1) / wider};
}

std::optional<PipelineTimes> MixedProblem::times(const MixedPlan& plan) const {
  const int stages = plan.num_stages();
  if (stages < 1 || plan.cuts.size() != plan.device_cuts.size() || plan.cuts.size() + 1 != at(stages) ||
      !rises_within(plan.cuts, num_instructions()) || !rises_within(plan.device_cuts, num_devices_)) {
    return std::nullopt;
  }
  PipelineTimes times;
  double computed = 0;
  for (int s = 1; s <= stages; ++s) {
    const auto [p0, p1, d0, d1] = range(plan, s);
    const auto [width, variant] = plan.stages[at(s - 1)];
    const DeviceGroup* of = group(width, d0, d1);
    if (of == nullptr) return std::nullopt;
    const Problem& own = problem(width);
    if (variant >= own.num_variants()) return std::nullopt;
    const int most = own.most_in_flight(p0, p1, *of, variant);
    if (!own.stage_fits(p0, p1, *of, std::min(1, most), own.stages_need_variables(stages), variant)) {
      return std::nullopt;
    }
    add_stage_times(own, p0, p1, *of, variant, times);
    computed += times.forward_ms.back() + times.backward_ms.back();
    times.value_in_flight.push_back(most);
    times.in_flight.push_back(s == 1 ? most : std::min(most, times.in_flight.back()));
    if (s < stages) {
      const int d2 = range(plan, s + 1).d1;
      times.transfer_ms.push_back(link(d0, d1, width, d2, plan.stages[at(s)].width).ms(own.activation_bytes(p1)));
    }
  }
  if (!problems_.begin()->second->options().allow_idle_stages) {
    for (std::size_t s = 0; s < times.forward_ms.size(); ++s) {
      if (times.forward_ms[s] + times.backward_ms[s] < kIdleShare * computed / stages) return std::nullopt;
    }
  }
  return times;
}

double MixedProblem::simulated_ms(const MixedPlan& plan, PipelineTimes* out) const {
  std::optional<PipelineTimes> times = this->times(plan);
  if (!times) return std::numeric_limits<double>::infinity();
  Plan shape;
  shape.schedule = Schedule::kAdaptive;
  shape.cuts = plan.cuts;
  shape.device_cuts = plan.device_cuts;
  const double ms = quick_warmup(*problems_.begin()->second, shape, *times);
  if (out != nullptr) *out = *std::move(times);
  return ms;
}

double MixedProblem::value_ms(const MixedPlan& plan) const {
  const std::optional<PipelineTimes> times = this->times(plan);
  if (!times) return std::numeric_limits<double>::infinity();
  return step_length_ms(*times, micro_batches(), Schedule::kAdaptive, problems_.begin()->second->options().value);
}

MemoryParts MixedProblem::memory(const MixedPlan& plan, int stage, int in_flight) const {
  const auto [p0, p1, d0, d1] = range(plan, stage);
  const auto [width, variant] = plan.stages[at(stage - 1)];
  return problem(width).memory_parts(p0, p1, *group(width, d0, d1), in_flight, variant);
}

double MixedProblem::capacity_bytes(const MixedPlan& plan, int stage) const {
  const Range of = range(plan, stage);
  return group(plan.stages[at(stage - 1)].width, of.d0, of.d1)->capacity_bytes;
}

}  // namespace automap::pipeline
