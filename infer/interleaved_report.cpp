#include "infer/interleaved_report.h"

#include <cmath>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "infer/document.h"
#include "infer/summary.h"

namespace automap::infer {
namespace {

pipeline::PlanCorner chunks_corner(const InterleavedUse& of) {
  return corner_of(of.question, of.input, of.scored.candidate, of.scored.candidate.kind);
}

}  // namespace

std::string interleaved_text(const InterleavedUse& of, int width) {
  const pipeline::PlanCorner corner = chunks_corner(of);
  const pipeline::EvenPlan& plan = *of.scored.candidate.even;
  const std::string& model = of.input.profile.model;
  std::string takes = format_ms(corner.simulated_step_ms) + " a step";
  if (corner.utilization.tokens_per_s > 0) {
    takes += ", " + format_count(std::llround(corner.utilization.tokens_per_s)) + " tokens/s";
  }
  if (corner.utilization.mfu > 0) takes += ", MFU " + format_percent(corner.utilization.mfu);
  if (of.scored.missing_bytes > 0) takes += ", DOES NOT FIT";
  takes += ", " + format_bytes(corner.memory_bytes) + " of " + format_bytes(corner.capacity_bytes) +
           " on the fullest device";
  const auto batch = std::llround(corner.micro_batch_samples * corner.micro_batches);
  std::vector<std::pair<std::string, std::string>> lines = {
      {"Plan", "Train " + (model.empty() ? "the model" : model) + " on " + plural(corner.devices, "device") + " of " +
                   of.question.cluster.name + ": interleaved 1F1B of " + plural(plan.groups, "stage") + " with " +
                   plural(plan.chunks, "chunk") + " each (" + corner.layout + ")"},
      {"Takes", takes},
      {"Batch", plural(batch, "sample") + " a step, " + plural(corner.micro_batches, "micro-batch") + " of " +
                    format_amount(corner.micro_batch_samples)},
      {"Why", corner.why},
      {"More",
       "no plan has this schedule yet: it is simulated, no bound speaks of it, and nothing is written; the "
       "same call without chunks says what its 1F1B takes"}};
  std::string out;
  for (auto& [label, text] : lines) {
    label.resize(kSummaryLabel, ' ');
    for (const std::string& line : wrap_words(printable(text), width - static_cast<int>(kSummaryLabel))) {
      out += label + line + "\n";
      label.assign(kSummaryLabel, ' ');
    }
  }
  return out;
}

std::string interleaved_json(const InterleavedUse& of) {
  pipeline::PlanCorner corner = chunks_corner(of);
  Json document = corner_json(corner);
  document["schema"] = "automap.interleaved/1";
  document["model"] = of.input.profile.model;
  document["cluster"] = of.question.cluster.name;
  document["chunks"] = of.scored.candidate.even->chunks;
  document["fits"] = of.scored.missing_bytes <= 0;
  document["missing_bytes"] = std::ceil(of.scored.missing_bytes);
  return json_text(document);
}

}  // namespace automap::infer
