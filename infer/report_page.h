// Makes the answer of automap-infer into one page to look at and to send: --report.
#pragma once

#include <string>

#include "common/machine/cluster.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan_json.h"
#include "infer/report.h"
#include "plan/pictures/timeline_picture.h"

namespace automap::infer {

struct ReportPage {
  const pipeline::PlanDocument* document = nullptr;
  const pipeline::PlacedPlan* placed = nullptr;  // what the document was made from
  const machine::Cluster* cluster = nullptr;     // whole, used or not
  const pictures::TimelinePicture* timeline = nullptr;
  ReportOptions options;
  std::string plan_file;  // -o; empty: none
  std::string asked;      // the options that were given, as typed
};

// Needs nothing else: no network, and without scripts everything is shown but zooming.
std::string report_html(const ReportPage& page);

}  // namespace automap::infer
