#include "plan/systems/rivals/dapple.h"

#include <algorithm>
#include <utility>

#include "common/base/numbers.h"
#include "common/pipeline/cost.h"

namespace automap::rivals {
namespace {

using pipeline::Plan;
using pipeline::Problem;

// The shortest variant of a stage that fits with so many stages left, if it is below below_ms; infinite when none is.
double stage_compute_ms(const Problem& problem, int p0, int p1, int d0, int d1, int left, bool needs_variable,
                        int* variant, double below_ms = kInfinity) {
  const pipeline::DeviceGroup& group = problem.group(d0, d1);
  if (!group.valid) return kInfinity;
  const int in_flight = std::min(problem.micro_batches(), left);
  const auto ms_of = [&](int v) { return problem.compute_ms(p0, p1, group, v); };
  return least_of_variants(problem, p0, p1, group, in_flight, needs_variable, ms_of, variant, below_ms);
}

// Plans of one problem whose cuts are ends of units.
class DappleSearch {
 public:
  DappleSearch(const Problem& problem, const std::vector<int>& ends, double below_ms)
      : problem_(problem), ends_(ends), hopeless_ms_(below_ms / problem.micro_batches()) {}

  // Takes the plan when it is shorter than the best so far.
  void consider(const std::vector<int>& cuts, const std::vector<int>& device_cuts) {
    Plan plan;
    plan.schedule = pipeline::Schedule::k1f1b;
    plan.cuts = cuts;
    plan.device_cuts = device_cuts;
    const int stages = static_cast<int>(cuts.size()) + 1;
    for (int s = 0; s < stages; ++s) {
      const int p0 = s == 0 ? 0 : cuts[at(s - 1)];
      const int p1 = s + 1 == stages ? problem_.num_instructions() : cuts[at(s)];
      const int d0 = s == 0 ? 0 : device_cuts[at(s - 1)];
      const int d1 = s + 1 == stages ? problem_.num_devices() : device_cuts[at(s)];
      int variant = 0;
      const bool needs_variable = problem_.stages_need_variables(stages);
      if (stage_compute_ms(problem_, p0, p1, d0, d1, stages - s, needs_variable, &variant, hopeless_ms_) == kInfinity) {
        return;
      }
      plan.variants.push_back(static_cast<std::uint8_t>(variant));
    }
    if (!pipeline::feasible(problem_, plan)) return;
    const double ms = dapple_length_ms(problem_, plan);
    if (best_ && ms >= best_->objective_ms) return;
    best_ = ChainPlan{std::move(plan), ms};
  }

  void two_stages() {
    for (int unit = 1; unit < static_cast<int>(ends_.size()); ++unit) {
      for (int device = 1; device < problem_.num_devices(); ++device) consider({ends_[at(unit - 1)]}, {device});
    }
  }

  std::optional<ChainPlan> best() && { return std::move(best_); }

 private:
  const Problem& problem_;
  const std::vector<int>& ends_;
  const double hopeless_ms_;  // of a stage and a micro-batch
  std::optional<ChainPlan> best_;
};

// The programme behind dapple_blocks. Whether stages need variables depends on how many a plan has, which the programme
// learns last: it is run for either.
class Blocks {
 public:
  Blocks(const Problem& problem, const std::vector<int>& ends, int max_stages, bool needs_variable, double below_ms)
      : problem_(problem),
        ends_(ends),
        units_(static_cast<int>(ends.size())),
        devices_(problem.num_devices()),
        needs_variable_(needs_variable),
        below_ms_(below_ms),
        best_(state(most(max_stages) + 1, 0, 0)) {
    for (int left = 1; left <= most(max_stages); ++left) {
      for (int u0 = 0; u0 <= units_ - left; ++u0) {
        for (int d0 = 0; d0 <= devices_ - left; ++d0) choose(left, u0, d0);
      }
    }
  }

  DappleBlocks of(int stages) const {
    DappleBlocks out;
    out.longest_ms = best_[state(stages, 0, 0)].longest_ms;
    if (out.longest_ms == kInfinity) return out;
    for (int left = stages, unit = 0, device = 0; left > 1; --left) {
      const Choice& one = best_[state(left, unit, device)];
      unit = one.unit;
      device = one.device;
      out.cuts.push_back(start(unit));
      out.device_cuts.push_back(device);
    }
    return out;
  }
  int most(int max_stages) const { return std::min({max_stages, units_, devices_}); }

 private:
  struct Choice {
    double longest_ms = kInfinity;
    int unit = 0, device = 0;
  };
  int start(int unit) const { return unit == 0 ? 0 : ends_[at(unit - 1)]; }
  std::size_t state(int left, int unit, int device) const {
    return (at(left) * at(units_) + at(unit)) * at(devices_) + at(device);
  }

  // The first of `left` stages from unit u0 and device d0 on.
  void choose(int left, int u0, int d0) {
    Choice& here = best_[state(left, u0, d0)];
    for (const int size : problem_.group_sizes()) {
      const int d1 = d0 + size;
      if (d1 > devices_ - left + 1) break;
      if ((left == 1) != (d1 == devices_)) continue;
      const pipeline::DeviceGroup& group = problem_.group(d0, d1);
      if (!group.valid) continue;
      for (int u1 = left == 1 ? units_ : u0 + 1; u1 <= units_ - left + 1; ++u1) {
        if (hopeless_stage(problem_, start(u0), start(u1), group, below_ms_)) break;
        // The rest is looked at first, since its time is known; the stage itself costs more to ask for.
        double behind_ms = 0;
        if (left > 1) {
          behind_ms = best_[state(left - 1, u1, d1)].longest_ms;
          if (behind_ms >= here.longest_ms) continue;
          behind_ms = std::max(behind_ms, 2 * problem_.transfer_ms(start(u1), d0, d1, std::min(devices_, d1 + size)));
          if (behind_ms >= here.longest_ms) continue;
        }
        const double own_ms =
            stage_compute_ms(problem_, start(u0), start(u1), d0, d1, left, needs_variable_, nullptr, here.longest_ms);
        if (own_ms < here.longest_ms) here = {std::max(own_ms, behind_ms), u1, d1};
      }
    }
  }

  const Problem& problem_;
  const std::vector<int>& ends_;
  const int units_, devices_;
  const bool needs_variable_;
  const double below_ms_;
  std::vector<Choice> best_;
};

}  // namespace

int dapple_pivot(const std::vector<DappleStage>& stages, int micro_batches) {
  const double steady = micro_batches - 1;
  int pivot = static_cast<int>(stages.size()) - 1;
  double between = 0;  // sum over the stages between s and the pivot
  for (int s = pivot - 1; s >= 0; --s) {
    const DappleStage& one = stages[at(s)];
    const DappleStage& other = stages[at(pivot)];
    const double ms = one.forward_ms + one.backward_ms;
    if (steady * ms > steady * (other.forward_ms + other.backward_ms) + between) {
      pivot = s;
      between = 0;
    } else {
      between += ms;
    }
  }
  return pivot;
}

double dapple_length_ms(const std::vector<DappleStage>& stages, int micro_batches) {
  const int pivot = dapple_pivot(stages, micro_batches), count = static_cast<int>(stages.size());
  const DappleStage& slowest = stages[at(pivot)];
  double warmup = 0, ending = 0, backward = 0;
  for (int s = 0; s <= pivot; ++s) warmup += stages[at(s)].forward_ms;
  for (int s = pivot; s >= 0; --s) {
    backward += stages[at(s)].backward_ms;
    ending = std::max(ending, stages[at(s)].sync_ms + backward);
  }
  double ahead = 0;
  for (int s = pivot + 1; s < count; ++s) {
    ending = std::max(ending, stages[at(s)].sync_ms - ahead);
    ahead += stages[at(s)].backward_ms;
  }
  return warmup + (micro_batches - 1) * (slowest.forward_ms + slowest.backward_ms) + ending;
}

double dapple_length_ms(const Problem& problem, const Plan& plan) {
  std::vector<DappleStage> stages;
  int from0 = 0, from1 = 0;  // the devices of the stage before
  pipeline::for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    if (s > 1) {
      const double sent = problem.transfer_ms(p0, from0, from1, d1);
      stages.push_back({sent, sent, 0});
    }
    const pipeline::DeviceGroup& group = problem.group(d0, d1);
    const int variant = plan.variants.empty() ? 0 : plan.variants[at(s - 1)];
    const double backward = problem.backward_ms(p0, p1, group, variant);
    stages.push_back({problem.compute_ms(p0, p1, group, variant) - backward, backward,
                      problem.sync_ms(p0, p1, group, variant) + problem.optimizer_ms(p0, p1, group, variant)});
    from0 = d0;
    from1 = d1;
    return true;
  });
  return dapple_length_ms(stages, problem.micro_batches());
}

std::vector<DappleBlocks> dapple_blocks(const Problem& problem, const std::vector<int>& ends, int max_stages,
                                        double below_ms) {
  std::vector<DappleBlocks> out;
  // Few stages may need variables, more of them than there are variables do not.
  for (int stages = 1; stages <= max_stages;) {
    const bool needs_variable = problem.stages_need_variables(stages);
    const Blocks programme(problem, ends, max_stages, needs_variable, below_ms);
    if (stages > programme.most(max_stages)) break;
    for (; stages <= programme.most(max_stages) && problem.stages_need_variables(stages) == needs_variable; ++stages)
      out.push_back(programme.of(stages));
  }
  return out;
}

std::optional<ChainPlan> dapple_chain(const Problem& problem, const std::vector<int>& ends, int max_stages,
                                      double below_ms) {
  DappleSearch search(problem, ends, below_ms);
  for (const DappleBlocks& blocks : dapple_blocks(problem, ends, max_stages, below_ms)) {
    if (blocks.longest_ms < kInfinity) search.consider(blocks.cuts, blocks.device_cuts);
  }
  if (max_stages >= 2) search.two_stages();
  return std::move(search).best();
}

Planner dapple(const pipeline::Profile& profile, int max_stages) {
  return [ends = unit_ends(profile, kDappleUnits), max_stages](const Problem& problem, double below_ms) {
    return dapple_chain(problem, ends, max_stages, below_ms);
  };
}

}  // namespace automap::rivals
