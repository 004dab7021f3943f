#include "infer/pictures.h"

#include <cmath>
#include <string>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/pipeline/timeline.h"
#include "plan/pictures/timeline_picture.h"

namespace automap::infer {
namespace {

// The most events, over the micro-batches of all groups; an event takes 110 bytes in a trace.
constexpr double kMostEvents = 2e6;

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

bool is_page(const std::string& name) {
  return ends_with(name, ".html") || ends_with(name, ".htm");
}

void expect_form(const char* option, const std::string& name, bool known, const char* expected) {
  if (name.empty() || name == "-" || known) return;
  throw Error(ErrorKind::kUsage,
              std::string("--") + option + ": found '" + name + "', expected a name that ends in " + expected,
              "the end of the name says what is written");
}

}  // namespace

bool asks_for_pictures(const InferOptions& options) {
  return !options.timeline.empty() || !options.trace.empty() || !options.report.empty();
}

bool writes_standard_output(const InferOptions& options) {
  return options.output == "-" || options.timeline == "-" || options.trace == "-" || options.report == "-";
}

void check_pictures(const InferOptions& options) {
  expect_form("timeline", options.timeline, ends_with(options.timeline, ".svg") || is_page(options.timeline),
              ".svg or .html (- writes SVG to standard output)");
  expect_form("trace", options.trace, ends_with(options.trace, ".json"), ".json");
  expect_form("report", options.report, is_page(options.report), ".html");
  if (options.json && options.output != "-" && writes_standard_output(options)) {
    throw Error(ErrorKind::kUsage, "--json and a picture named - both want standard output", "give the picture a file");
  }
}

void check_timeline_events(double micro_batches, double parts, bool split_backward) {
  const double events = pipeline::timeline_events(parts, micro_batches, split_backward);
  if (events <= kMostEvents) return;
  throw Error(ErrorKind::kUsage,
              "a step of " + plural(std::llround(micro_batches), "micro-batch") + " on " +
                  plural(std::llround(parts), "part") + " has " + format_count(std::llround(events)) +
                  " events, more than the " + format_count(std::llround(kMostEvents)) + " of a picture",
              "give a smaller --batch, or larger micro-batches");
}

PictureFiles::PictureFiles(const InferOptions& options, OutputSet* outputs) : page_(is_page(options.timeline)) {
  if (!options.timeline.empty()) timeline_ = &outputs->add(options.timeline);
  if (!options.trace.empty()) trace_ = &outputs->add(options.trace);
  if (!options.report.empty()) report_ = &outputs->add(options.report);
}

void PictureFiles::write(ReportPage page) const {
  if (timeline_ == nullptr && trace_ == nullptr && report_ == nullptr) return;
  const pipeline::PlacedPlan& placed = *page.placed;
  check_timeline_events(placed.problem().micro_batches(), placed.plan.num_parts(), placed.plan.split_backward);
  const pipeline::Timeline timeline = record_timeline(placed);
  const pictures::TimelinePicture picture = pictures::timeline_picture(*page.document, timeline);
  if (timeline_ != nullptr) timeline_->write(page_ ? timeline_html(picture) : timeline_svg(picture));
  if (trace_ != nullptr) trace_->write(trace_json(picture));
  page.timeline = &picture;
  if (report_ != nullptr) report_->write(report_html(page));
}

}  // namespace automap::infer
