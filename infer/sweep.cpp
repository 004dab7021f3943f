// Every uniform layout of a cluster, scored.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/text_table.h"
#include "common/base/work.h"
#include "infer/score.h"

namespace automap::infer {
namespace {

// The layouts that use all devices and divide the batch. Samples per replica go up to what the profile's times reach.
std::vector<Layout> uniform_layouts(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                    const std::vector<pipeline::StageVariant>& variants, std::int64_t batch,
                                    const planners::StepRequest& step, const SweepRequest& request) {
  const double most_samples = std::min(static_cast<double>(batch), pipeline::most_samples(profile));
  std::vector<Layout> layouts;
  std::vector<int> widths = {1};
  for (const pipeline::WidthColumns& columns : profile.widths) widths.push_back(columns.width);
  for (const int tp : widths) {
    const int replicas = cluster.num_devices() / tp;
    const int most_stages = std::min({replicas, request.max_stages, most_layout_stages(profile)});
    for (int pp = request.min_stages; pp <= most_stages; ++pp) {
      const int dp = replicas / pp;
      if (replicas % pp != 0 || batch % dp != 0) continue;
      for (const std::int64_t size : planners::divisors(batch / dp)) {
        const std::int64_t count = batch / dp / size;
        if (static_cast<double>(size) > most_samples || (step.micro_batch > 0 && step.micro_batch != size * dp)) {
          continue;
        }
        if (step.micro_batches > 0 ? count != step.micro_batches : count > planners::kMostMicroBatches) continue;
        for (const pipeline::StageVariant& variant : variants) {
          // With one replica there is nothing to shard.
          if (dp == 1 && variant.zero > 0) continue;
          // One stage is the same under every schedule.
          for (const pipeline::Schedule schedule : request.schedules) {
            if (pp == 1 && schedule != request.schedules.front()) continue;
            layouts.push_back({dp, pp, tp, size, variant, schedule});
          }
        }
      }
    }
  }
  return layouts;
}

// Where no layout is left: what would leave one.
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

Sweep sweep_layouts(const pipeline::Profile& profile, const machine::Cluster& cluster,
                    const pipeline::ProblemOptions& options, const planners::StepRequest& step,
                    const SweepRequest& request) {
  std::int64_t batch = step.batch;
  if (batch == 0) {
    batch = (step.micro_batch > 0 ? step.micro_batch : pipeline::own_samples(profile)) *
            (step.micro_batches > 0 ? step.micro_batches : planners::kDefaultMicroBatches);
  }
  const std::vector<Layout> layouts = uniform_layouts(profile, cluster, options.variants, batch, step, request);
  Work work(request.limits);
  Sweep sweep;
  std::vector<SweptLayout>& swept = sweep.layouts;
  for (const Layout& layout : layouts) {
    if (!swept.empty() && work.over()) {
      sweep.left_out = static_cast<std::size_t>(layouts.data() + layouts.size() - &layout);
      break;
    }
    planners::StepRequest asked = step;
    asked.batch = batch;
    const ScoredPlan scored = score_layout(layout, profile, cluster, options, asked);
    swept.push_back({layout, scored.problem->micro_batches(), scored.simulated_step_ms, scored.missing_bytes,
                     scored.missing_stage, scored.fullest_share});
  }
  if (swept.empty()) refuse_none(profile, cluster, batch, request);
  std::stable_sort(swept.begin(), swept.end(), [](const SweptLayout& a, const SweptLayout& b) {
    const bool a_fits = a.missing_bytes <= 0, b_fits = b.missing_bytes <= 0;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.simulated_step_ms < b.simulated_step_ms : a.missing_bytes < b.missing_bytes;
  });
  return sweep;
}

std::string sweep_text(const std::vector<SweptLayout>& layouts) {
  const double batch = layouts.front().batch();
  TextTable table({{"layout", TextTable::Align::kLeft},
                   {"micro-batches"},
                   {"step"},
                   {"samples/s"},
                   {"memory", TextTable::Align::kLeft}});
  for (const SweptLayout& one : layouts) {
    const bool fits = one.missing_bytes <= 0;
    table.add_row({one.layout.text(), std::to_string(one.micro_batches), format_ms(one.simulated_step_ms),
                   format_number(batch / one.simulated_step_ms * 1e3),
                   fits ? format_percent(one.fullest_share)
                        : "lacks " + format_bytes(one.missing_bytes) + " on each device of stage " +
                              std::to_string(one.missing_stage)});
  }
  return "Every uniform layout, whole layers spread evenly; steps of " + format_count(std::llround(batch)) +
         " samples\n" + table.render("  ");
}

std::string sweep_json(const Sweep& sweep) {
  const std::vector<SweptLayout>& layouts = sweep.layouts;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SweptLayout& one : layouts) {
    rows.push_back({{"layout", one.layout.text()},
                    {"dp", one.layout.dp},
                    {"pp", one.layout.pp},
                    {"tp", one.layout.tp},
                    {"micro_batch_size", one.layout.micro_batch_size},
                    {"zero", one.layout.variant.zero},
                    {"recompute", one.layout.variant.recompute ? "layer" : "none"},
                    {"schedule", to_string(one.layout.schedule)},
                    {"micro_batches", one.micro_batches},
                    {"simulated_step_ms", one.simulated_step_ms},
                    {"fits", one.missing_bytes <= 0},
                    {"missing_bytes", static_cast<std::int64_t>(std::ceil(one.missing_bytes))},
                    {"missing_stage", one.missing_stage},
                    {"memory_share", one.fullest_share}});
  }
  const nlohmann::ordered_json document = {{"schema", "automap.sweep/1"},
                                           {"batch", layouts.front().batch()},
                                           {"left_out", sweep.left_out},
                                           {"layouts", rows}};
  return json_text(document);
}

}  // namespace automap::infer
