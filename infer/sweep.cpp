// Every uniform layout of a cluster, scored.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/text_table.h"
#include "infer/score.h"

namespace automap::infer {
namespace {

constexpr int kMostStages = 64;

// The layouts that use all devices and divide the batch. Samples per replica go up to what the profile's times reach.
std::vector<Layout> uniform_layouts(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                    const pipeline::ProblemOptions& options, std::int64_t batch, int micro_batches,
                                    pipeline::Schedule schedule) {
  const int devices = cluster.num_devices();
  std::int64_t most_samples = batch;
  for (const pipeline::DeviceTimes& times : profile.times) {
    most_samples = std::min<std::int64_t>(most_samples, std::llround(times.samples.back()));
  }
  std::vector<Layout> layouts;
  for (int pp = 1; pp <= std::min(devices, kMostStages); ++pp) {
    if (devices % pp != 0) continue;
    const int dp = devices / pp;
    for (std::int64_t size = 1; size <= most_samples && size * dp <= batch; ++size) {
      const std::int64_t count = batch / (size * dp);
      if (batch % (size * dp) != 0 || (micro_batches > 0 ? count != micro_batches : count > kMostMicroBatches))
        continue;
      for (const pipeline::StageVariant& variant : options.variants) {
        // With one replica there is nothing to shard.
        if (dp == 1 && variant.zero > 0) continue;
        Layout layout;
        layout.dp = dp;
        layout.pp = pp;
        layout.micro_batch_size = size;
        layout.variant = variant;
        layout.schedule = schedule;
        layouts.push_back(layout);
      }
    }
  }
  return layouts;
}

}  // namespace

std::vector<SweptLayout> sweep_layouts(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                       const pipeline::ProblemOptions& options, const StepRequest& step,
                                       pipeline::Schedule schedule) {
  const double own = profile.micro_batch_size > 0 ? profile.micro_batch_size : 1;
  const std::int64_t batch = step.batch > 0 ? step.batch : std::llround(own * kDefaultMicroBatches);
  std::vector<SweptLayout> swept;
  for (const Layout& layout : uniform_layouts(profile, cluster, options, batch, step.micro_batches, schedule)) {
    StepRequest asked = step;
    asked.batch = batch;
    if (step.micro_batch > 0 && step.micro_batch != layout.micro_batch_size * layout.dp) continue;
    SweptLayout one;
    try {
      const ScoredPlan scored = score_layout(layout, profile, cluster, options, asked);
      one.micro_batches = scored.problem->micro_batches();
      one.simulated_step_ms = scored.simulated_step_ms;
      one.missing_bytes = scored.missing_bytes;
      one.missing_stage = scored.missing_stage;
      one.fullest_share = scored.fullest_share;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      continue;  // more stages than whole layers
    }
    one.layout = layout;
    swept.push_back(one);
  }
  if (swept.empty()) {
    throw Error(ErrorKind::kUsage,
                "no uniform layout of " + std::to_string(cluster.num_devices()) + " devices divides a batch of " +
                    std::to_string(batch) + " samples",
                "give another --batch");
  }
  std::stable_sort(swept.begin(), swept.end(), [](const SweptLayout& a, const SweptLayout& b) {
    const bool a_fits = a.missing_bytes <= 0, b_fits = b.missing_bytes <= 0;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.simulated_step_ms < b.simulated_step_ms : a.missing_bytes < b.missing_bytes;
  });
  return swept;
}

std::string sweep_text(const std::vector<SweptLayout>& layouts) {
  const double batch = layouts.front().batch();
  using Align = TextTable::Align;
  TextTable table({{"layout", Align::kLeft}, {"micro-batches"}, {"step"}, {"samples/s"}, {"memory", Align::kLeft}});
  for (const SweptLayout& one : layouts) {
    const bool fits = one.missing_bytes <= 0;
    table.add_row({one.layout.text(), std::to_string(one.micro_batches), format_ms(one.simulated_step_ms),
                   format_number(batch / one.simulated_step_ms * 1e3),
                   fits ? format_percent(one.fullest_share)
                        : "lacks " + format_bytes(one.missing_bytes) + " on each device of stage " +
                              std::to_string(one.missing_stage)});
  }
  return "Every uniform layout, whole layers spread evenly; steps of " + format_number(batch) + " samples\n" +
         table.render("  ");
}

std::string sweep_json(const std::vector<SweptLayout>& layouts) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SweptLayout& one : layouts) {
    rows.push_back({{"layout", one.layout.text()},
                    {"dp", one.layout.dp},
                    {"pp", one.layout.pp},
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
  const nlohmann::ordered_json document = {
      {"schema", "automap.sweep/1"}, {"batch", layouts.front().batch()}, {"layouts", rows}};
  return json_text(document);
}

}  // namespace automap::infer
