// Prints the results of --vary and --compare-clusters: a table for people, JSON with every plan, CSV, a chart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"

namespace automap::infer {

// One value and the answer to its question.
struct VariedRow {
  std::string value;
  std::optional<pipeline::PlanDocument> plan;
  std::string why;  // there is no plan
};

struct VariedRows {
  std::string name;  // what was changed
  bool clusters = false;
  std::string model, cluster;  // the latter empty where clusters are compared
  std::vector<VariedRow> rows;
  std::size_t asked = 0;  // values; more than rows where a signal stopped them
};

// What rows are compared by: samples, or tokens where the samples of the rows are of different lengths.
bool counts_tokens(const VariedRows& rows);
double trained_per_s(const pipeline::PlanUtilization& use, bool tokens);

// `width` in columns; 0: any.
std::string vary_text(const VariedRows& rows, int width);
// Schema automap.vary/1 (docs/formats/printed.md).
std::string vary_json(const VariedRows& rows);
// A line for each row below a line of titles.
std::string vary_csv(const VariedRows& rows);

}  // namespace automap::infer
