#include "common/pipeline/exact_program.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/pipeline/exact_state.h"

namespace automap::pipeline::internal {

Program::Program(const ProgramInput& input, Work& work)
    : in_(input),
      problem_(*input.problem),
      points_(*input.points),
      coarse_(input.coarse == nullptr ? *input.points : *input.coarse),
      budget_(work),
      tables_(problem_, points_),
      coarse_tables_(problem_, coarse_),
      micro_batches_(problem_.micro_batches()),
      full_(problem_.options().value == ValueForm::kFull),
      plain_(tables_.plain()),
      relaxed_(tables_.relaxed()),
      whole_work_(problem_.work_ms(0, problem_.num_instructions())),
      devices_(problem_.num_devices()),
      last_(static_cast<int>(points_.size()) - 1) {
  tables_.find_shares(!corridor());
  for (int i = 1; i + 1 < static_cast<int>(coarse_.size()); ++i) coarse_points_.push_back(i);
}

Program::StageCost Program::stage_cost(const DeviceGroup& group, int variant) const {
  StageCost cost;
  cost.scale = group.scale;
  cost.sync = problem_.sync_terms(group, variant);
  return cost;
}

// The first stage as one variant in front of every suffix of a list.
void Program::complete(const Layer& from, const LabelList& list, int stages, int variant, std::vector<Complete>& best) {
  const DeviceGroup& group = problem_.group(0, list.d0);
  const PointColumns& columns = tables_.columns(group, variant);
  const StageCost cost = stage_cost(group, variant);
  const bool behind = list.d0 < devices_;
  Link link;
  if (behind) link = problem_.link(0, list.d0, list.d1);
  const double either = relaxed_ && behind ? std::min(tables_.ms_per_work(group), list.ms_per_work) : 0;
  const double balanced = relaxed_ ? whole_work_ / speed_behind_[0] * (1 - 1e-12) : 0;
  const terms::InFlight scheduled = in_flight_before(stages - 1);
  const bool binds = tables_.memory_binds(group, variant, scheduled.k);
  for (std::size_t q = list.begin; q < list.end; ++q) {
    const std::size_t j = at(from.point[q]);
    if (in_.needs_variable && points_.variables_high[j] == 0) continue;
    if (tables_.idles(0, j, group)) continue;
    int held = scheduled.k;
    if (binds && adaptive()) held = tables_.most_in_flight(0, j, group, variant);
    if (held == 0 || (binds && !adaptive() && !tables_.fits(0, j, group, variant, held))) continue;
    const terms::InFlight k(micro_batches_, held);
    const double bytes = behind ? points_.activation[j] : 0;
    const double transfer = link.ms(bytes);
    const double t = columns.both_low[j] * cost.scale, b = columns.backward_low[j] * cost.scale;
    const double of_run = (points_.work_high[j] - points_.work_low[j]) * either;
    const double p = from.p[q] + 2 * transfer + of_run;
    double x = terms::x_behind_transfer(from.x[q] + of_run, transfer, micro_batches_);
    x = terms::x_behind_stage(x, p, t, std::min(t - b, b), k, full_);
    if (relaxed_) {
      x = std::max(x, micro_batches_ * balanced);
      if (full_) x = std::max(x, p + t + least_weight(scheduled) * balanced);
    }
    const double drain = relaxed_ ? columns.backward_high[j] * cost.scale : b;
    double own =
        cost.sync.exposed_ms(points_.gradient_low[j], points_.last_bucket[0], drain) + columns.optimizer_low[j];
    if (problem_.shares_gradients()) own += problem_.exchange_ms(tables_.shared_gradients(0, j), group);
    const double y = from.y[q] - (relaxed_ && behind ? slowest_transfer(link, j) : transfer);
    const double value = x + std::max(0.0, terms::y_behind_stage(y, own, drain));
    if (value <= limit(stages)) best.push_back({value, from.id[q], variant});
  }
}

// The whole model: the first stage in front of every suffix of S - 1 stages.
void Program::finish(const Layer& from, int stages, std::vector<Completion>& out) {
  std::vector<Complete> best;
  units_ += kPerFinished * static_cast<std::int64_t>(from.point.size());
  for (const LabelList& list : from.lists) {
    const DeviceGroup& group = problem_.group(0, list.d0);
    if (!group.valid) continue;
    for (const int variant : problem_.useful_variants(group)) complete(from, list, stages, variant, best);
  }
  if (in_.mark) {
    followed_.resize(steps_.size(), 0);
    for (const Complete& completed : best) {
      for (int step = completed.label; step > 0 && !followed_[at(step)]; step = steps_[at(step)].next) {
        followed_[at(step)] = 1;
        used_[at(steps_[at(step)].point)] = 1;
      }
    }
  }
  const std::size_t keep = in_.all_plans ? best.size() : std::min(best.size(), at(in_.keep));
  std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(keep), best.end());
  best.resize(keep);
  const bool variants = problem_.num_variants() > 1;
  for (const Complete& chosen : best) {
    Completion completion;
    completion.value_ms = chosen.value;
    if (variants) completion.variants.push_back(static_cast<std::uint8_t>(chosen.variant));
    for (int step = chosen.label; step >= 0; step = steps_[at(step)].next) {
      if (steps_[at(step)].d0 == devices_) break;
      completion.points.push_back(steps_[at(step)].point);
      completion.device_cuts.push_back(steps_[at(step)].d0);
      if (variants) completion.variants.push_back(static_cast<std::uint8_t>(steps_[at(step)].variant));
    }
    out.push_back(std::move(completion));
  }
}

ProgramOutput Program::run() {
  ProgramOutput output;
  speed_behind_.assign(at(devices_) + 1, 0);
  for (int d = devices_ - 1; d >= 0; --d) {
    const double speed = problem_.device_speed(d);
    speed_behind_[at(d)] = speed_behind_[at(d) + 1] + speed;
    slowest_ = std::min(slowest_, speed);
  }
  output.by_stages.resize(at(in_.max_stages - in_.min_stages + 1));
  reached_.assign(points_.size(), 0);
  used_.assign(points_.size(), 0);
  make_thresholds();
  if (over() || too_large_) return output;
  Layer layer;
  layer.lists.push_back({devices_, devices_, 0, 1, 0});
  layer.point = {last_};
  layer.x = layer.p = layer.y = {0.0};
  layer.id = {0};
  steps_.assign(1, Step{-1, last_, devices_, 0});
  for (int length = 1; length <= in_.max_stages; ++length) {
    if (length >= in_.min_stages) finish(layer, length, output.by_stages[at(length - in_.min_stages)]);
    if (length == in_.max_stages) break;
    Layer next;
    extend(layer, next, length, in_.max_stages - length);
    if (over()) return output;
    output.gave_up = too_many();
    if (output.gave_up) return output;
    if (in_.keep_layers && length > 1) output.layers.push_back(std::move(layer));
    layer = std::move(next);
  }
  if (in_.keep_layers && in_.max_stages > 1) output.layers.push_back(std::move(layer));
  output.labels = static_cast<std::int64_t>(steps_.size());
  output.reached = std::move(reached_);
  output.used = std::move(used_);
  output.tried = tried_;
  output.transitions = transitions_;
  output.finished = true;
  return output;
}

ProgramOutput run_program(const ProgramInput& input, Work& work) {
  AM_CHECK(input.limit_ms.size() == at(input.max_stages - input.min_stages + 1));
  Program program(input, work);
  ProgramOutput output = program.run();
  program.pay();
  return output;
}

}  // namespace automap::pipeline::internal
