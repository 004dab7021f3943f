#include "inspect/links.h"

#include <cmath>
#include <filesystem>
#include <vector>

#include "common/base/error.h"
#include "common/base/fitted_table.h"
#include "common/base/json_reader.h"
#include "common/base/text_table.h"
#include "common/machine/collectives_json.h"

namespace automap::inspect {
namespace {
using Align = FittedTable::Align;

// Rows of a file's `collectives`, in its order, and their errors.
struct OwnRows {
  machine::MeasuredLinks links;
  std::vector<double> errors;

  // The error of a fitted row; -1: the row was given as lines, or is from a device's known links.
  double error_of(const machine::MeasuredCollective& row) const {
    for (std::size_t i = 0; i < links.rows.size(); ++i) {
      if (links.rows[i] == row) return errors[i];
    }
    return -1;
  }
};

OwnRows read_rows(const JsonValue& object, const std::string& folder) {
  OwnRows rows;
  if (object.has("collectives")) {
    rows.links = machine::read_collectives(object.at("collectives"), folder, &rows.errors);
  }
  return rows;
}

// By group of servers.
std::vector<OwnRows> own_rows(const machine::Cluster& cluster, const std::string& source, std::string_view text) {
  std::vector<OwnRows> out(cluster.servers.size());
  if (text.empty()) return out;
  const JsonSource from{source, ErrorKind::kConfig, ""};
  const Json document = parse_json(text, from);
  const JsonValue root(document, from);
  const std::string folder = std::filesystem::path(source).parent_path().string();
  const OwnRows all = read_rows(root, folder);
  const std::vector<JsonValue> groups = root.at("servers").items();
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = groups[i].has("collectives") ? read_rows(groups[i], folder) : all;
  return out;
}

std::string group_text(const machine::MeasuredCollective& row) {
  if (row.operation == CollectiveKind::kPermute) return row.servers == 1 ? "inside a server" : "between servers";
  return std::to_string(row.devices) + " in " + std::to_string(row.servers) +
         (row.servers == 1 ? " server" : " servers");
}

}  // namespace

std::string describe_links(const machine::Cluster& cluster, const std::string& source, std::string_view text,
                           Json* document) {
  FittedTable table({{"servers[]"},
                     {"operation", Align::kLeft},
                     {"group", Align::kLeft, 80, 10},
                     {"us + GB/s", Align::kLeft, FittedTable::kNeeded, 12},
                     {"fit", Align::kRight, 40},
                     {"source", Align::kLeft, 30, 16}});
  bool any = false;
  const std::vector<OwnRows> own = own_rows(cluster, source, text);
  for (std::size_t i = 0; i < cluster.servers.size(); ++i) {
    const machine::MeasuredLinks& links = cluster.servers[i].links;
    const Json rows = machine::collectives_json(links);
    Json& out = (*document)["groups"][i]["links"];
    out = Json::array();
    for (std::size_t r = 0; r < links.rows.size(); ++r) {
      const machine::MeasuredCollective& row = links.rows[r];
      const double error = own[i].error_of(row);
      std::string lines;
      for (const Json& line : rows[r]["lines"]) {
        lines += (lines.empty() ? "" : ", ") + format_number(line["latency_us"].get<double>()) + " + " +
                 format_number(line["gbytes_per_s"].get<double>());
      }
      out.push_back({{"operation", rows[r]["operation"]},
                     {"devices", row.devices},
                     {"servers", row.servers},
                     {"lines", rows[r]["lines"]},
                     {"largest_fit_error", error < 0 ? Json() : Json(error)},
                     {"assumed", row.assumed}});
      table.add_row({std::to_string(i), machine::file_word(row.operation), group_text(row), lines,
                     error < 0 ? "-" : "within " + format_number(std::ceil(error * 1000 - 1e-6) / 10) + " %",
                     row.assumed ? "assumed" : "measured"});
      any = true;
    }
  }
  return any ? table.render("  ") : "";
}

}  // namespace automap::inspect
