#include "infer/sweep_report.h"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/text_table.h"
#include "infer/utilization.h"

namespace automap::infer {

using planners::SweptLayout;

namespace {

using Align = FittedTable::Align;

pipeline::PlanUtilization use_of(const SweepUse& of, const SweptLayout& one) {
  std::vector<int> devices(static_cast<std::size_t>(one.layout.dp * one.layout.pp * one.layout.tp));
  std::iota(devices.begin(), devices.end(), 0);
  return utilization_of(of.input, of.cluster, devices, one.batch(), one.simulated_step_ms,
                        one.layout.variant.recompute ? 1 : 0);
}

}  // namespace

std::string sweep_text(const SweepUse& of) {
  const std::vector<SweptLayout>& layouts = of.sweep.layouts;
  const double batch = layouts.front().batch();
  FittedTable table({{"layout", Align::kLeft, FittedTable::kNeeded, 22},
                     {"micro-batches", Align::kRight, 20},
                     {"step"},
                     {"samples/s", Align::kRight, 40},
                     {"MFU", Align::kRight, 30},
                     {"memory", Align::kLeft, FittedTable::kNeeded, 8}});
  for (const SweptLayout& one : layouts) {
    const bool fits = one.missing_bytes <= 0;
    table.add_row({one.layout.text(), std::to_string(one.micro_batches), format_ms(one.simulated_step_ms),
                   format_number(batch / one.simulated_step_ms * 1e3), mfu_text(use_of(of, one)),
                   fits ? format_percent(one.fullest_share)
                        : "lacks " + format_bytes(one.missing_bytes) +
                              (one.layout.pp == 1 ? std::string() : " in stage " + std::to_string(one.missing_stage))});
  }
  return "Every uniform layout, whole layers spread evenly; steps of " + format_count(std::llround(batch)) +
         " samples\n" + table.render("  ");
}

std::string sweep_json(const SweepUse& of) {
  const std::vector<SweptLayout>& layouts = of.sweep.layouts;
  Json rows = Json::array();
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
                    {"utilization", utilization_json(use_of(of, one))},
                    {"fits", one.missing_bytes <= 0},
                    {"missing_bytes", static_cast<std::int64_t>(std::ceil(one.missing_bytes))},
                    {"missing_stage", one.missing_stage},
                    {"memory_share", one.fullest_share}});
  }
  const Json document = {{"schema", "automap.sweep/1"},
                         {"batch", layouts.front().batch()},
                         {"left_out", of.sweep.left_out},
                         {"layouts", rows}};
  return json_text(document);
}

}  // namespace automap::infer
