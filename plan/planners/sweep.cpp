#include "plan/planners/sweep.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/work.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/placed_work.h"
#include "plan/planners/least_work.h"

namespace automap::planners {
namespace {

// Layouts that differ in the size of their micro-batches alone.
struct Grid {
  Layout layout;
  std::vector<std::int64_t> sizes;  // falling
};

// The grid under a schedule, with each number of parts that it may have; nothing where it cannot run.
void add_schedule(Grid grid, pipeline::Schedule schedule, std::int64_t batch, const Question& question,
                  std::vector<Grid>* grids) {
  const pipeline::Profile& profile = question.profile();
  Layout& layout = grid.layout;
  layout.schedule = schedule;
  const bool interleaved = schedule == pipeline::Schedule::kInterleaved;
  if (interleaved && layout.pp < kLeastInterleavedStages) return;
  if (!is_alternating(schedule) && layout.pp == 1) return;
  const bool splits = pipeline::shape_of(schedule)->split_backward;
  if (splits && !(tells_weights_apart(profile) && splits_backward(layout.variant))) return;
  const auto no_lists = [&](std::int64_t size) {
    const auto micro_batches = static_cast<int>(batch / layout.dp / size);
    return !pipeline::micro_batches_fault(schedule, layout.pp, micro_batches).empty();
  };
  grid.sizes.erase(std::remove_if(grid.sizes.begin(), grid.sizes.end(), no_lists), grid.sizes.end());
  if (grid.sizes.empty()) return;
  for (const int chunks : interleaved ? question.beside.chunks : std::vector<int>{1}) {
    layout.chunks = chunks;
    if (layout.pp * layout.parts_of_stage() <= most_layout_stages(profile)) grids->push_back(grid);
  }
}

// The layouts that use all devices and divide the batch. Samples per replica go up to what the profile's times reach.
std::vector<Grid> uniform_grids(const Question& question, std::int64_t batch, const SweepRequest& request) {
  const pipeline::Profile& profile = question.profile();
  const StepRequest& step = question.step;
  std::vector<Grid> grids;
  std::vector<pipeline::Schedule> schedules = request.schedules;
  for (const pipeline::Schedule schedule : question.beside.schedules) {
    if (request.ordered && schedule != pipeline::Schedule::kSearched) schedules.push_back(schedule);
  }
  for (const int tp : pipeline::known_widths(profile)) {
    const int replicas = question.cluster.num_devices() / tp;
    const int most_stages = std::min({replicas, request.max_stages, most_layout_stages(profile)});
    for (int pp = request.min_stages; pp <= most_stages; ++pp) {
      const int dp = replicas / pp;
      if (replicas % pp != 0 || batch % dp != 0) continue;
      const int most = step.micro_batches > 0 ? step.micro_batches : kMostChosenMicroBatches;
      Grid grid{{dp, pp, tp, 0, {}, {}}, replica_sizes(batch / dp, profile, most)};
      const auto left_out = [&](std::int64_t size) {
        return (step.micro_batch > 0 && step.micro_batch != size * dp) ||
               (step.micro_batches > 0 && step.micro_batches != batch / dp / size);
      };
      grid.sizes.erase(std::remove_if(grid.sizes.begin(), grid.sizes.end(), left_out), grid.sizes.end());
      if (grid.sizes.empty()) continue;
      for (const pipeline::StageVariant& variant : question.options.variants) {
        // With one replica there is nothing to shard.
        if (dp == 1 && variant.zero > 0) continue;
        grid.layout.variant = variant;
        for (const pipeline::Schedule schedule : schedules) {
          // One stage is the same under every schedule.
          if (pp == 1 && schedule != schedules.front()) continue;
          add_schedule(grid, schedule, batch, question, &grids);
        }
      }
    }
  }
  return grids;
}

// Says which layouts may still be the best of all, or of those of several stages, by their compute alone.
class Hope {
 public:
  Hope(const Question& question, std::int64_t batch) : question_(question), batch_(batch) {}

  // All stages compute all of the model: the busiest one is busy for as long as the mean at least.
  double bound_ms(const Layout& layout) {
    auto times = times_.find(layout.tp);
    if (times == times_.end()) {
      const machine::Cluster replicas = machine::replicas_of(question_.cluster, layout.tp);
      times =
          times_.try_emplace(layout.tp, *question_.profile_of(layout.tp), replicas, pipeline::Replicas::kWhole).first;
    }
    const auto samples = static_cast<double>(layout.micro_batch_size);
    const double of_replica = static_cast<double>(batch_) / layout.dp;
    return of_replica * times->second.least_ms(samples, layout.variant.recompute) / layout.pp;
  }
  // Longer layouts need not be told apart.
  double hopeless_ms(const Layout& layout) const { return layout.pp > 1 ? best_of_several_ms_ : best_ms_; }
  bool left(const Layout& layout) { return bound_ms(layout) < hopeless_ms(layout); }
  void saw(const Layout& layout, double step_ms) {
    best_ms_ = std::min(best_ms_, step_ms);
    if (layout.pp > 1) best_of_several_ms_ = std::min(best_of_several_ms_, step_ms);
  }

 private:
  const Question& question_;
  const std::int64_t batch_;
  std::map<int, SampleTimes> times_;  // by width
  double best_ms_ = kInfinity, best_of_several_ms_ = kInfinity;
};

// Refuses with a hint, where no layout is left.
[[noreturn]] void refuse_none(const pipeline::Profile& profile, const machine::Cluster& cluster, std::int64_t batch,
                              const SweepRequest& request) {
  const int devices = cluster.num_devices(), layers = most_layout_stages(profile);
  std::string stages;
  for (int pp = 1; pp <= std::min({devices, pipeline::kMaxPlanStages, layers}); ++pp) {
    if (devices % pp == 0 && batch % (devices / pp) == 0) stages += (stages.empty() ? "" : ", ") + std::to_string(pp);
  }
  const std::string range = request.min_stages == request.max_stages ? std::to_string(request.min_stages)
                                                                     : "up to " + std::to_string(request.max_stages);
  throw Error(ErrorKind::kUsage,
              "no uniform layout of " + range + " stages on " + std::to_string(devices) + " devices takes a batch of " +
                  std::to_string(batch) + " samples" +
                  (layers == 1 ? " (the profile names no layers to spread)"
                               : " and whole layers (the model has " + std::to_string(layers) + ")"),
              stages.empty() ? "give a --batch that the devices divide"
                             : "the devices, the batch and the layers allow " + stages + " stages; beyond that " +
                                   "--micro-batch, --micro-batches and the profile's samples decide");
}

}  // namespace

Sweep sweep_layouts(const Question& question, const SweepRequest& request) {
  const pipeline::Profile& profile = question.profile();
  const StepRequest& step = question.step;
  const auto batch =
      static_cast<std::int64_t>(std::llround(step_sizes(step, profile, pipeline::Replicas::kWhole).front().batch()));
  const std::vector<Grid> grids = uniform_grids(question, batch, request);
  Question of_batch = question;
  of_batch.step.batch = batch;
  Work work(request.limits);
  Sweep sweep;
  std::vector<SweptLayout>& swept = sweep.layouts;
  Hope hope(question, batch);
  // The most promising first, where those without hope are left out; in the end as they stood.
  const auto least_ms = [&](const Grid& grid) {
    Layout layout = grid.layout;
    layout.micro_batch_size = grid.sizes.front();  // the more samples at once, the less each takes at least
    return hope.bound_ms(layout);
  };
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < grids.size(); ++i) order.emplace_back(request.only_best ? least_ms(grids[i]) : 0, i);
  std::stable_sort(order.begin(), order.end());
  std::vector<std::vector<SweptLayout>> scored_of(grids.size());
  bool any = false;
  for (const auto& [bound_ms, index] : order) {
    const Grid& grid = grids[index];
    MoreMicroBatches more(step.micro_batches > 0);
    for (const std::int64_t size : grid.sizes) {
      Layout layout = grid.layout;
      layout.micro_batch_size = size;
      if (!more.worth_a_look(batch / layout.dp / size)) break;
      if (request.only_best && !hope.left(layout)) break;  // nor is any of fewer samples at once
      if (any && work.over()) {
        ++sweep.left_out;
        continue;
      }
      const ScoredPlan scored =
          score_layout(layout, of_batch, {}, request.only_best ? hope.hopeless_ms(layout) : kInfinity);
      more.saw(scored.missing_bytes > 0 ? kInfinity : scored.simulated_step_ms);
      if (!inexpressible(*question.framework, scored.placed, profile).empty()) continue;
      if (scored.missing_bytes <= 0) hope.saw(layout, scored.simulated_step_ms);
      scored_of[index].push_back({layout, scored.problem->micro_batches(), scored.simulated_step_ms,
                                  scored.missing_bytes, scored.missing_stage, scored.fullest_share});
      any = true;
    }
  }
  for (const std::vector<SweptLayout>& of_grid : scored_of) swept.insert(swept.end(), of_grid.begin(), of_grid.end());
  if (swept.empty() && !grids.empty()) {
    throw Error(ErrorKind::kUsage,
                std::string(question.framework->name) + " can run none of the uniform layouts of " +
                    std::to_string(grids.size()) + " shapes that there are: it has " +
                    framework_text(*question.framework),
                "drop --for, or allow other stage counts, ZeRO levels and schedules");
  }
  if (swept.empty()) refuse_none(profile, question.cluster, batch, request);
  std::stable_sort(swept.begin(), swept.end(), [](const SweptLayout& a, const SweptLayout& b) {
    const bool a_fits = a.missing_bytes <= 0, b_fits = b.missing_bytes <= 0;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.simulated_step_ms < b.simulated_step_ms : a.missing_bytes < b.missing_bytes;
  });
  return sweep;
}

}  // namespace automap::planners
