#include "infer/no_plan.h"

#include <string>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/base/work.h"
#include "plan/planners/least_change.h"

namespace automap::infer {
namespace {

// Names changes with which a plan would fit into memory; empty where there are none.
std::string fits_with(const std::vector<planners::FittingChange>& changes) {
  std::string text;
  for (const planners::FittingChange& change : changes) {
    text += (text.empty() ? "it would fit with " : ", or ") + change.what + " (a step of " + format_ms(change.step_ms) +
            ")";
  }
  return text;
}

std::string what_would_fit(const planners::Question& question, bool limited) {
  const std::string text = fits_with(planners::fitting_changes(question, limited));
  return text.empty()
             ? "smaller micro-batches, more or larger devices, or a lighter optimizer (--state-factor) may help"
             : text;
}

}  // namespace

void fail_without_plan(const planners::Question& question, const planners::SearchNotes& notes, bool limited) {
  if (StopToken::stop_requested()) throw Error(ErrorKind::kStopped, "stopped by a signal before a plan was found");
  throw Error(
      ErrorKind::kInfeasible, notes.infeasible,
      notes.least_memory_bytes > 0        ? what_would_fit(question, limited)
      : !notes.devices_divide             ? ""
      : limits_plans(*question.framework) ? std::string("drop --for ") + question.framework->name +
                                                ", or allow other stage counts, ZeRO levels or widths"
      : notes.cut_by_time || notes.cut_by_effort
          ? "the search came to no end: ask for --effort thorough, fewer stage counts (--stages), or every planner"
          : std::string("allow ") + (question.request.online.server_radius >= 0 ? "a larger --radius, " : "") +
                "other stage counts, every planner, or --allow-empty-stages");
}

std::string what_makes_fit(const planners::Layout& layout, const planners::Question& question) {
  const std::string text = fits_with(planners::fitting_changes(layout, question));
  return text.empty()
             ? "smaller micro-batches, recomputation and ZeRO do not make this layout fit: it takes more tensor "
               "or pipeline parallelism, or more devices; the same call without --layout plans for what there is"
             : text;
}

std::string no_plan_text(const std::string& why) {
  return "no plan: " + why.substr(0, why.find(". "));
}

}  // namespace automap::infer
