#include "infer/measured.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/text_table.h"
#include "common/machine/device.h"
#include "plan/planners/believable.h"

namespace automap::infer {
namespace {

using pipeline::MeasuredStep;

std::string times_text(double factor) {
  return format_number(factor) + " times";
}

// Devices, what they compute, and what runs it: what the times are of. The first two tell which errors are usual.
std::string times_of(const planners::Question& question, const std::string& software) {
  std::vector<std::string> parts;
  for (const machine::ServerGroup& servers : question.cluster.servers) {
    const std::string type = machine::device_type(servers.device);
    if (std::find(parts.begin(), parts.end(), type) == parts.end()) parts.push_back(type);
  }
  if (!question.profile().work.empty()) parts.push_back(question.profile().work);
  parts.push_back(software);
  return join(parts);
}

std::string how_parallel(const planners::Layout& layout) {
  std::vector<std::string> parallel;
  if (layout.pp > 1) parallel.emplace_back("pipeline");
  if (layout.tp > 1) parallel.emplace_back("tensor");
  if (layout.dp > 1) parallel.emplace_back(layout.variant.zero > 0 ? "sharded data" : "data");
  return parallel.empty() ? "one replica of one device" : join(parallel, " and ") + " parallel";
}

// "compute takes 1.2 times as long"; empty: nothing is corrected.
std::string corrected_what(const MeasuredStep& step) {
  if (step.compute_factor == 1 && step.network_factor == 1) return "";
  const char* const what = step.network_factor == 1 ? "compute takes " : "compute and network take ";
  return what + times_text(step.compute_factor) + " as long";
}

}  // namespace

MeasuredStep measured_step(const planners::Layout& layout, const planners::ScoredPlan& scored,
                           const planners::Question& question, double measured_ms, const std::string& software) {
  MeasuredStep step;
  step.layout = layout.text();
  step.batch = scored.placed.problem().micro_batch_samples() * scored.placed.problem().micro_batches();
  step.measured_ms = measured_ms;
  step.estimated_ms = scored.simulated_step_ms;
  const double factor = step.factor();
  if (!(factor <= planners::kFarthestMeasurement && factor >= 1 / planners::kFarthestMeasurement)) {
    throw Error(ErrorKind::kUsage,
                "--measured-step " + format_ms(measured_ms) + " is more than " +
                    format_amount(planners::kFarthestMeasurement) + " times " + (factor > 1 ? "longer" : "shorter") +
                    " than the estimate, " + format_ms(step.estimated_ms) + " for --layout " + step.layout +
                    " at a batch of " + format_amount(step.batch) + " samples",
                "is it one whole step of that batch and layout? --batch and --layout say what was measured");
  }
  const planners::ExpectedErrors errors = planners::expected_errors(question.profile(), question.cluster);
  step.usual_factor_least = 1 / (1 + errors.compute_less);
  step.usual_factor_most = 1 + errors.compute_more;
  step.error_class = join(std::vector<std::string>{times_of(question, software), how_parallel(layout)});
  const planners::Correction found = find_correction(layout, scored, question, measured_ms);
  step.compute_factor = found.compute;
  step.network_factor = found.network;
  return step;
}

std::vector<std::string> measured_warnings(const MeasuredStep& step, const planners::ScoredPlan& scored) {
  std::vector<std::string> warnings;
  for (const std::string& departure : scored.departures) warnings.push_back("--measured-step: " + departure);
  if (scored.missing_bytes > 0) {
    warnings.push_back("by the estimate the measured layout does not fit, and it ran: stage " +
                       std::to_string(scored.missing_stage) + " lacks " + format_bytes(scored.missing_bytes) +
                       " on each of its devices. Memory is not corrected, so that plans that would run may be left out "
                       "(--memory-reserve 0 leaves none to the framework)");
  }
  if (step.network_factor != 1) {
    warnings.push_back("no factor from " + format_number(planners::kFastestCompute) + " to " +
                       format_number(planners::kSlowestCompute) + " on compute alone makes the measured layout take " +
                       format_ms(step.measured_ms) + ": compute and network are corrected by one factor");
  }
  return warnings;
}

std::string other_times(const MeasuredStep& step, const planners::Question& question, const std::string& software) {
  const std::string now = times_of(question, software);
  if (step.error_class.rfind(now + ", ", 0) == 0) return "";
  return "the correction by " + step.layout + ", which took " + format_ms(step.measured_ms) +
         ", is left out: it was measured of " + step.error_class + "; these times are of " + now;
}

std::string beyond_peak(const pipeline::PlanUtilization& plan) {
  if (!(plan.mfu > 1)) return "";
  return "the plan computes " + format_percent(plan.mfu) +
         " of what its devices can do at most: is --measured-step one whole step of that batch and layout?";
}

planners::Correction correction_of(const MeasuredStep& step) {
  return {step.compute_factor, step.network_factor};
}

std::string measured_text(const MeasuredStep& step) {
  const std::string what = corrected_what(step);
  // The last part is cut off where there is no room.
  return format_ms(step.measured_ms) + " measured, " + format_ms(step.estimated_ms) +
         " estimated: " + times_text(step.factor()) + " as long, " + (step.usual() ? "usual" : "unusual") + " (" +
         format_number(step.usual_factor_least) + " to " + format_number(step.usual_factor_most) + "). " +
         (what.empty() ? "Nothing is corrected" : "Corrected here: " + what) + ". Measured of " + step.layout + " (" +
         step.error_class + "); the range above is that of other layouts";
}

std::string correction_text(const MeasuredStep& step) {
  const std::string what = corrected_what(step);
  if (what.empty()) return "a step that was measured (" + step.layout + ") takes as long as estimated";
  return what + " as estimated, so that " + step.layout + " takes the " + format_ms(step.measured_ms) +
         " that were measured";
}

}  // namespace automap::infer
