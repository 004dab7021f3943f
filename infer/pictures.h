// Writes the files with pictures of an answer: --timeline, --trace, --report.
#pragma once

#include "common/base/atomic_file.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan_json.h"
#include "infer/options.h"
#include "infer/report_page.h"

namespace automap::infer {

bool asks_for_pictures(const InferOptions& options);
// True if one of the files asked for is standard output; then no report is printed.
bool writes_standard_output(const InferOptions& options);
// Throws Error(kUsage) where a file's name does not say a form that there is, or where --json prints where a
// picture goes.
void check_pictures(const InferOptions& options);

// Throws Error(kUsage) where a step of so many micro-batches (0: not known) in so many parts has more events than a
// picture can have.
void check_timeline_events(double micro_batches, double parts, bool split_backward = false);

class PictureFiles {
 public:
  // Opens them, so that what cannot be written is refused before the work. Throws as AtomicFile.
  PictureFiles(const InferOptions& options, OutputSet* outputs);
  // `page` but for its timeline. Throws Error(kUsage) where the step has more events than a picture can have.
  void write(ReportPage page) const;

 private:
  AtomicFile *timeline_ = nullptr, *trace_ = nullptr, *report_ = nullptr;
  bool page_ = false;  // the timeline is one
};

}  // namespace automap::infer
