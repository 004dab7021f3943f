// Layers with their times: our own form, for whoever has measured by hand.
//
//   layer,forward_ms,backward_ms
//   embed,0.8,1.1
//   h/0,2.1,4.3
//
// A layer is named as automap-profile prints it, or by its number in that order, from 1; a part of a name is all layers
// that have it: "h" every h/N. `ms` in place of the two is both passes together. `optimizer` names the update.
#include <algorithm>
#include <map>
#include <set>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "profile/measured/forms.h"
#include "profile/measured/table.h"

namespace automap::measured {

MeasuredTimes read_layer_csv(std::string_view text, const std::string& source) {
  const std::vector<TableRow> rows = table_rows(text, source);
  const auto fail = [&](const TableRow& row, const std::string& what) {
    throw Error(ErrorKind::kData, source + ":" + std::to_string(row.line) + ": " + what, kMeasuredHint);
  };
  std::map<std::string, std::size_t> column;
  const TableRow& header = rows.front();
  for (std::size_t i = 0; i < header.fields.size(); ++i) {
    const std::string name = lower_case(header.fields[i]);
    if (name != "layer" && name != "forward_ms" && name != "backward_ms" && name != "ms") {
      fail(header, "unknown column '" + excerpt(name, 40) + "', expected layer, forward_ms, backward_ms or ms");
    }
    if (!column.emplace(name, i).second) fail(header, "column " + name + " is given twice");
  }
  if (column.size() < 2) fail(header, "found no column of times, expected forward_ms, backward_ms or ms");
  if (column.count("ms") != 0 && column.size() > 2)
    fail(header, "ms is both passes: give it, or forward_ms and backward_ms");
  MeasuredTimes out;
  out.source = source;
  out.form = "per-layer CSV";
  std::set<std::string> seen;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    const TableRow& row = rows[r];
    if (row.fields.size() != header.fields.size()) {
      fail(row, "found " + std::to_string(row.fields.size()) + " fields, expected " +
                    std::to_string(header.fields.size()) + " as the header has");
    }
    MeasuredTime time;
    time.line = static_cast<std::int64_t>(row.line);
    time.name = row.fields[column.at("layer")];
    time.named = time.name == "optimizer" ? Named::kOptimizer : Named::kLayer;
    if (time.name.empty()) fail(row, "the layer has no name");
    if (!seen.insert(time.name).second) fail(row, "layer '" + excerpt(time.name, kShownColumns) + "' is given twice");
    // An empty field: not measured.
    const auto read = [&](const char* name, std::optional<double>* ms) {
      const auto at = column.find(name);
      if (at == column.end() || row.fields[at->second].empty()) return;
      *ms = time_of_text(row.fields[at->second], source + ":" + std::to_string(row.line) + ": " + name);
    };
    read("forward_ms", &time.forward_ms);
    read("backward_ms", &time.backward_ms);
    read("ms", &time.either_ms);
    if (!time.forward_ms && !time.backward_ms && !time.either_ms) {
      fail(row, "layer '" + excerpt(time.name, kShownColumns) + "' has no time");
    }
    out.times.push_back(std::move(time));
  }
  return out;
}

}  // namespace automap::measured
