#include "inspect/against.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/hlo/hlo_reader.h"
#include "common/io/dataset.h"
#include "common/io/profile_file.h"
#include "common/io/profile_folder.h"
#include "inspect/facts.h"
#include "profile/profile_hlo.h"

namespace automap::inspect {
namespace {
using Align = FittedTable::Align;

// Profiles as they are, a module's HLO profiled as automap-profile does it by default.
pipeline::Profile read_any(std::string bytes, const std::string& source) {
  bytes = gunzip_if_gzip(std::move(bytes), source);
  if (io::detect_profile(bytes)) return io::read_profile(std::move(bytes), source, io::ProfileColumns::kForPlanning);
  const hlo::HloModule module = profile::read_module(std::move(bytes), source, {}).module;
  return profile::profile_module(module, source, profile::ProfileRequest{}).profile;
}

// One of the statistics that tell real models from random rows.
struct Statistic {
  const char* key;
  const char* title;
  double ShapeFacts::*value;
};
constexpr Statistic kStatistics[] = {
    {"corr_c_w", "correlation of C and W", &ShapeFacts::corr_cw},
    {"corr_c_a", "correlation of C and A", &ShapeFacts::corr_ca},
    {"lag1_a", "autocorrelation of A, next point", &ShapeFacts::lag1_a},
    {"top_share_c", "share of C in its top 5 %", &ShapeFacts::top_share_c},
    {"top_share_w", "share of W in its top 5 %", &ShapeFacts::top_share_w},
    {"centre_c", "centre of C, 0 first, 1 last", &ShapeFacts::centre_c},
    {"centre_w", "centre of W", &ShapeFacts::centre_w},
    {"mean_a", "mean of A over its largest", &ShapeFacts::mean_a},
};

// A histogram of `values` over equal steps from 0 to `most`.
std::string bars(const std::vector<double>& values, double most) {
  static constexpr const char* kBlocks[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr int kBins = 48;
  std::vector<std::size_t> counts(kBins, 0);
  for (const double value : values) {
    ++counts[static_cast<std::size_t>(std::clamp(static_cast<int>(value / most * kBins), 0, kBins - 1))];
  }
  const auto highest = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  std::string text;
  for (const std::size_t count : counts) {
    const double share = static_cast<double>(count) / highest;
    text += kBlocks[count == 0 ? 0 : std::clamp(static_cast<int>(std::ceil(share * 8)), 1, 8)];
  }
  return text;
}

struct SampledRows {
  std::vector<Shape> shapes;
  std::vector<std::uint64_t> index;  // in the dataset
  std::vector<ShapeFacts> facts;
  std::vector<std::uint8_t> family;
};

SampledRows sample(const io::DatasetReader& reader) {
  SampledRows rows;
  const std::uint64_t count = std::min(reader.size(), kReferenceRows);
  for (std::uint64_t k = 0; k < count; ++k) {
    const std::uint64_t i = reader.size() / count * k + reader.size() % count * k / count;
    const pipeline::RowProblem row = reader.row(i);
    rows.index.push_back(i);
    rows.shapes.push_back(shape_of(row.caw));
    rows.facts.push_back(facts_of(rows.shapes.back(), row.num_instructions));
    rows.family.push_back(row.distribution);
  }
  return rows;
}

std::string profiles_text(const Comparison& comparison, const io::DatasetReader& reader, const SampledRows& rows) {
  FittedTable table({{"profile", Align::kLeft},
                     {"positions", Align::kRight, 20},
                     {"distance"},
                     {"percentile", Align::kRight, 80},
                     {"by facts", Align::kRight, 40},
                     {"nearest row", Align::kRight, 60},
                     {"family", Align::kLeft, 50, 12}});
  constexpr int kNameWidth = 40;
  std::size_t shown = 0;
  for (const ComparedProfile& p : comparison.profiles) {
    if (++shown > kShownRows * 2) break;
    table.add_row({shorten(p.source, kNameWidth), std::to_string(p.instructions), format_number(p.distance),
                   format_number(p.percentile), format_number(p.facts_percentile),
                   std::to_string(rows.index[p.nearest]), reader.distributions()[rows.family[p.nearest]]});
  }
  std::string text = table.render("  ");
  if (shown > kShownRows * 2) text += "  ... (--json shows all)\n";
  return text;
}

}  // namespace

double percentile_of(double value, const std::vector<double>& sorted) {
  const auto [low, high] = std::equal_range(sorted.begin(), sorted.end(), value);
  const double below = static_cast<double>(low - sorted.begin()) + 0.5 * static_cast<double>(high - low);
  return 100 * below / static_cast<double>(sorted.size());
}

Comparison compare(std::vector<ComparedProfile> profiles, const std::vector<Shape>& shapes,
                   const std::vector<Shape>& rows, const std::vector<ShapeFacts>& row_facts) {
  Comparison out;
  const std::size_t queries = std::min<std::size_t>(rows.size(), kQueryRows);
  for (std::size_t q = 0; q < queries; ++q) {
    const std::size_t i = rows.size() * q / queries;
    out.row_distances.push_back(nearest(rows[i], rows, i).distance);
    out.row_facts_distances.push_back(nearest(row_facts[i], row_facts, i).distance);
  }
  std::sort(out.row_distances.begin(), out.row_distances.end());
  std::sort(out.row_facts_distances.begin(), out.row_facts_distances.end());
  std::vector<double> percentiles, facts_percentiles;
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    ComparedProfile& p = profiles[i];
    const Neighbour found = nearest(shapes[i], rows);
    p.nearest = found.index;
    p.distance = found.distance;
    p.percentile = percentile_of(found.distance, out.row_distances);
    p.facts_distance = nearest(p.facts, row_facts).distance;
    p.facts_percentile = percentile_of(p.facts_distance, out.row_facts_distances);
    percentiles.push_back(p.percentile);
    facts_percentiles.push_back(p.facts_percentile);
  }
  out.median_percentile = quantile(percentiles, 0.5);
  out.median_facts_percentile = quantile(facts_percentiles, 0.5);
  out.profiles = std::move(profiles);
  return out;
}

void describe_against(const std::string& folder, const std::vector<std::string>& paths, Description* out) {
  const io::ProfileSet set = io::load_profiles(paths, read_any);
  const io::DatasetReader reader(folder);
  if (reader.size() < 2) {
    throw Error(ErrorKind::kData, folder + ": one row, and --against asks how far rows are apart",
                "automap-datagen --rows 20000 extends it");
  }
  const SampledRows rows = sample(reader);
  std::vector<ComparedProfile> profiles;
  std::vector<Shape> shapes;
  for (const io::NamedProfile& named : set.profiles) {
    ComparedProfile p;
    p.source = named.path;
    p.model = named.profile.model;
    p.instructions = named.profile.size();
    shapes.push_back(shape_of(named.profile));
    p.facts = facts_of(shapes.back(), p.instructions);
    profiles.push_back(std::move(p));
  }
  const Comparison comparison = compare(std::move(profiles), shapes, rows.shapes, rows.facts);

  Json document = Json::object();
  document["compared_rows"] = rows.shapes.size();
  document["asked_rows"] = comparison.row_distances.size();
  document["median_percentile"] = comparison.median_percentile;
  document["median_facts_percentile"] = comparison.median_facts_percentile;
  document["row_distances"] = {{"p5", quantile(comparison.row_distances, 0.05)},
                               {"median", quantile(comparison.row_distances, 0.5)},
                               {"p95", quantile(comparison.row_distances, 0.95)}};
  document["profiles"] = Json::array();
  std::vector<double> distances;
  for (const ComparedProfile& p : comparison.profiles) {
    distances.push_back(p.distance);
    Json item = {{"source", p.source},
                 {"model", p.model},
                 {"instructions", p.instructions},
                 {"distance", p.distance},
                 {"percentile", p.percentile},
                 {"facts_distance", p.facts_distance},
                 {"facts_percentile", p.facts_percentile},
                 {"nearest_row", rows.index[p.nearest]},
                 {"nearest_family", reader.distributions()[rows.family[p.nearest]]}};
    for (const Statistic& s : kStatistics) item[s.key] = p.facts.*s.value;
    document["profiles"].push_back(std::move(item));
  }
  document["skipped"] = Json::array();
  for (const io::SkippedFile& file : set.skipped)
    document["skipped"].push_back({{"file", file.path}, {"why", file.why}});

  std::string& text = out->text;
  text += "\n  against " + count_of(static_cast<std::int64_t>(set.profiles.size()), "profile") +
          (set.skipped.empty() ? ""
                               : " (" + count_of(static_cast<std::int64_t>(set.skipped.size()), "file") +
                                     " of the folder left out, --json says why)") +
          ", " + format_count(static_cast<long long>(rows.shapes.size())) + " rows:\n\n";
  text += profiles_text(comparison, reader, rows);
  text += "\n  median percentile " + format_number(comparison.median_percentile) + ", by the facts below " +
          format_number(comparison.median_facts_percentile) +
          ":\n  of the distance to the nearest row, among those of " +
          format_count(static_cast<long long>(comparison.row_distances.size())) + " rows to their own nearest\n";
  const double most = std::max(1e-9, std::max(quantile(distances, 1), quantile(comparison.row_distances, 0.99)));
  text += "\n  distance   0 " + bars(comparison.row_distances, most) + " " + format_number(most) + "  rows\n";
  text += "             0 " + bars(distances, most) + " " + format_number(most) + "  profiles\n\n";

  Json statistics = Json::object();
  FittedTable table({{"", Align::kLeft, FittedTable::kNeeded, 12},
                     {"profiles: median"},
                     {"5-95 %", Align::kRight, 40},
                     {"rows: median"},
                     {"5-95 %", Align::kRight, 30}});
  for (const Statistic& s : kStatistics) {
    std::vector<std::string> cells = {s.title};
    for (const bool real : {true, false}) {
      std::vector<double> values;
      for (const ComparedProfile& p : comparison.profiles) {
        if (real) values.push_back(p.facts.*s.value);
      }
      for (const ShapeFacts& facts : rows.facts) {
        if (!real) values.push_back(facts.*s.value);
      }
      const double low = quantile(values, 0.05), middle = quantile(values, 0.5), high = quantile(values, 0.95);
      cells.push_back(format_number(middle, 2));
      cells.push_back(format_number(low, 2) + " to " + format_number(high, 2));
      statistics[s.key][real ? "profiles" : "rows"] = {{"p5", low}, {"median", middle}, {"p95", high}};
    }
    table.add_row(cells);
  }
  text += table.render("  ");
  document["statistics"] = std::move(statistics);
  out->document["against"] = std::move(document);
}

}  // namespace automap::inspect
