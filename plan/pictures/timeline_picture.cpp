#include "plan/pictures/timeline_picture.h"

#include <algorithm>

#include "common/base/numbers.h"
#include "common/base/text_table.h"

namespace automap::pictures {

using pipeline::PlanDocument;
using pipeline::PlanStage;
using pipeline::Timeline;
using pipeline::TimelineGroup;

namespace {

double waiting_share(const Timeline& timeline) {
  double busy = 0;
  for (const TimelineGroup& group : timeline.groups) busy += group.busy_ms();
  const double all = timeline.step_ms * static_cast<double>(timeline.groups.size());
  return all > 0 ? std::clamp(1 - busy / all, 0.0, 1.0) : 0;
}

// "h/0 to 5": a common beginning is written once.
std::string layers_text(const std::string& first, const std::string& last) {
  if (first == last) return first;
  const std::size_t slash = first.rfind('/');
  const bool shared =
      slash != std::string::npos && last.rfind('/') == slash && last.compare(0, slash, first, 0, slash) == 0;
  return first + " to " + (shared ? last.substr(slash + 1) : last);
}

// The one whose devices compute for the longest.
int busiest(const Timeline& timeline) {
  const auto most =
      std::max_element(timeline.groups.begin(), timeline.groups.end(),
                       [](const TimelineGroup& a, const TimelineGroup& b) { return a.busy_ms() < b.busy_ms(); });
  return static_cast<int>(most - timeline.groups.begin()) + 1;
}

}  // namespace

TimelinePicture timeline_picture(const PlanDocument& document, const Timeline& timeline) {
  TimelinePicture picture;
  picture.timeline = &timeline;
  picture.title = (document.model.empty() ? "The model" : document.model) + " on " + document.cluster;
  const std::size_t groups = timeline.groups.size();
  for (const PlanStage& stage : document.stages) {
    picture.groups.push_back({layers_text(stage.first(), stage.last()),
                              (stage.devices > 1 ? "devices " : "device ") + spans_text(stage.device_numbers)});
  }
  std::string step = "A step takes " + format_ms(timeline.step_ms) + ": " +
                     plural(timeline.micro_batches, "micro-batch") + " of " +
                     plural_amount(document.micro_batch_samples, "sample");
  if (groups > 1) step += " through " + plural(static_cast<long long>(groups), "group");
  picture.sentences.push_back(step + ".");
  picture.sentences.push_back((groups > 1 ? "Groups wait " : "The devices wait ") +
                              format_percent(waiting_share(timeline)) + " of the time" +
                              (groups > 1 ? ", on average" : "") + ".");
  if (!document.limits.empty()) {
    const pipeline::PlanLimitText& limit = document.limits.front();
    if (groups > 1) picture.bottleneck = limit.stage;
    picture.sentences.push_back("What limits it: " + limit.text + ".");
  } else if (groups > 1) {
    picture.bottleneck = busiest(timeline);
  }
  if (std::any_of(document.stages.begin(), document.stages.end(),
                  [](const PlanStage& s) { return s.variant.zero == 3; })) {
    picture.sentences.emplace_back("Gathering weights (ZeRO 3) is part of the forwards and backwards.");
  }
  return picture;
}

}  // namespace automap::pictures
