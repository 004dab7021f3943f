// Sums up the answer in fifteen lines: what to do, how long a step takes, the alternatives, why, and how sure that is.
#pragma once

#include <string>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/pipeline/plan_json.h"
#include "infer/report.h"

namespace automap::infer {

constexpr std::size_t kSummaryLines = 15;
constexpr int kSummaryWidth = kReportColumns;
constexpr std::size_t kSummaryLabel = 8;  // columns in front of every line

// "FSDP (ZeRO 3)", "a pipeline of 4 stages, tensor parallelism of 2, recomputation": what the plan is.
std::string kind_text(const pipeline::PlanDocument& document);

// Ends with a newline; at most `most_lines` lines of at most `width` columns (of kLeastColumns at least): what matters
// least is left out. With options.details paragraphs are whole.
std::string summary_text(const pipeline::PlanDocument& document, const ReportOptions& options,
                         int width = kSummaryWidth, std::size_t most_lines = kSummaryLines);

// The same sentences in full, for pages and documents.
std::vector<pipeline::PlanSentence> summary_sentences(const pipeline::PlanDocument& document,
                                                      const ReportOptions& options);

// The columns of the terminal on standard output, kSummaryWidth at most; without one kSummaryWidth.
int summary_width();
// The columns of the longer parts (report_columns); 0: --details through a pipe leaves nothing out.
int report_width(bool details);

}  // namespace automap::infer
