#include "inspect/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/markup.h"
#include "common/base/printable.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"
#include "common/io/dataset.h"
#include "common/io/dataset_format.h"
#include "common/pipeline/row_problem.h"
#include "inspect/facts.h"
#include "inspect/row_shape.h"

namespace automap::inspect {
namespace {
using Align = FittedTable::Align;
using io::DatasetManifest;
using io::DatasetReader;
using pipeline::kGranularity;
using pipeline::RowProblem;

constexpr std::uint64_t kSampledRows = 20000;

std::string count_text(std::uint64_t n) {
  return format_count(static_cast<long long>(n));
}

// A row in a few numbers.
struct RowFacts {
  std::uint8_t family = 0;
  double instructions = 0, devices = 0, stages = 0, samples = 0;
  pipeline::Schedule schedule = pipeline::Schedule::k1f1b;
  double transfer = 0, allreduce = 0;  // the largest activation, all weights: ms at the slowest link over compute ms
};

RowFacts row_facts(const RowProblem& row) {
  RowFacts f;
  f.family = row.distribution;
  f.instructions = row.num_instructions;
  f.devices = pipeline::devices_of_row(row);
  f.stages = row.stages;
  f.samples = row.samples;
  f.schedule = row.schedule;
  const double compute = row.caw[kPoints - 1];
  f.transfer = *std::max_element(row.caw.begin() + kPoints, row.caw.begin() + 2 * kPoints) / compute;
  f.allreduce = row.caw[3 * kPoints - 1] / compute;
  return f;
}

struct Sample {
  std::vector<RowFacts> rows;
  std::uint64_t labelled = 0, infeasible = 0;
};

Sample sample_of(const DatasetReader& reader) {
  Sample sample;
  const std::uint64_t count = std::min(reader.size(), kSampledRows);
  for (std::uint64_t k = 0; k < count; ++k) {
    const std::uint64_t i = reader.size() / count * k + reader.size() % count * k / count;
    sample.rows.push_back(row_facts(reader.row(i)));
    if (const auto label = reader.oracle(i)) ++(std::isinf(label->length_ms) ? sample.infeasible : sample.labelled);
  }
  return sample;
}

std::vector<double> values_of(const Sample& sample, double RowFacts::*value, int family = -1) {
  std::vector<double> values;
  for (const RowFacts& f : sample.rows) {
    if (family < 0 || f.family == family) values.push_back(f.*value);
  }
  return values;
}

// Counts over equal steps of the logarithm; zeros and values beyond the ends count at the ends.
struct LogHistogram {
  static constexpr int kBins = 24;
  static constexpr double kLowest = -4, kHighest = 2;  // decades
  std::array<std::uint64_t, kBins> counts{};

  explicit LogHistogram(const std::vector<double>& values) {
    for (const double value : values) {
      const double decade = value > 0 ? std::log10(value) : kLowest;
      const double bin = (decade - kLowest) / (kHighest - kLowest) * kBins;
      ++counts[static_cast<std::size_t>(std::clamp(static_cast<int>(std::floor(bin)), 0, kBins - 1))];
    }
  }
  std::uint64_t highest() const { return std::max<std::uint64_t>(1, *std::max_element(counts.begin(), counts.end())); }
};

std::string histogram_text(const std::string& title, const std::vector<double>& values) {
  static constexpr const char* kBlocks[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const LogHistogram histogram(values);
  std::string bars;
  for (const std::uint64_t count : histogram.counts) {
    const double share = static_cast<double>(count) / static_cast<double>(histogram.highest());
    bars += kBlocks[count == 0 ? 0 : std::clamp(static_cast<int>(std::ceil(share * 8)), 1, 8)];
  }
  const int width = display_width(title);
  return "  " + title + std::string(static_cast<std::size_t>(std::max(1, 46 - width)), ' ') + "1e-4 " + bars +
         " 1e2   median " + format_number(quantile(values, 0.5)) + ", 5-95 % " + format_number(quantile(values, 0.05)) +
         " to " + format_number(quantile(values, 0.95)) + "\n";
}

std::string range_text(const std::vector<double>& values) {
  if (values.empty()) return "";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const auto whole = [](double value) { return std::to_string(static_cast<long long>(value)); };
  return *low == *high ? whole(*low) : whole(*low) + "-" + whole(*high);
}

Json range_json(const std::vector<double>& values) {
  return {{"p5", quantile(values, 0.05)}, {"median", quantile(values, 0.5)}, {"p95", quantile(values, 0.95)}};
}

// --- the picture ---

std::string fixed(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

class Svg {
 public:
  Svg(double width, double height) {
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + fixed(width) + "\" height=\"" + fixed(height) +
           "\" viewBox=\"0 0 " + fixed(width) + " " + fixed(height) +
           "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  }
  void text(double x, double y, const std::string& value, const char* more = "") {
    out_ += "<text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" " + more + ">" + escape_markup(value) + "</text>\n";
  }
  void box(double x, double y, double w, double h, const char* style) {
    out_ += "<rect x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" width=\"" + fixed(w) + "\" height=\"" + fixed(h) +
            "\" " + style + "/>\n";
  }
  // 0..1 over the box, y upward.
  void curve(double x, double y, double w, double h, const float* values, const char* color) {
    out_ += "<polyline fill=\"none\" stroke-width=\"1.3\" stroke=\"" + std::string(color) + "\" points=\"";
    for (std::size_t k = 0; k < kPoints; ++k) {
      out_ += fixed(x + w * static_cast<double>(k + 1) / kGranularity) + "," + fixed(y + h * (1 - values[k])) + " ";
    }
    out_ += "\"/>\n";
  }
  std::string done() && { return std::move(out_) + "</svg>\n"; }

 private:
  std::string out_;
};

void draw_histogram(Svg& svg, double x, double y, double w, double h, const std::string& title,
                    const std::vector<double>& values, const char* fill) {
  const LogHistogram histogram(values);
  svg.text(x, y - 6, title);
  svg.box(x, y, w, h, "fill=\"none\" stroke=\"#bbb\"");
  const double step = w / LogHistogram::kBins;
  for (std::size_t b = 0; b < histogram.counts.size(); ++b) {
    const double share = static_cast<double>(histogram.counts[b]) / static_cast<double>(histogram.highest());
    svg.box(x + step * static_cast<double>(b), y + h * (1 - share), step - 1, h * share, fill);
  }
  for (int decade = -4; decade <= 2; ++decade) {
    const double at = x + w * (decade - LogHistogram::kLowest) / (LogHistogram::kHighest - LogHistogram::kLowest);
    svg.text(at, y + h + 14, "1e" + std::to_string(decade), "text-anchor=\"middle\" fill=\"#666\"");
  }
}

// Describes a sample of the rows.
void describe_rows(const DatasetReader& reader, const std::function<void(const std::string&, const std::string&)>& fact,
                   Json& document, std::string& text) {
  const DatasetManifest& manifest = reader.manifest();
  const Sample sample = sample_of(reader);
  const auto of_rows = [&](std::uint64_t n) {
    return format_percent(static_cast<double>(n) / static_cast<double>(sample.rows.size()));
  };
  std::map<std::string, std::uint64_t> schedules;
  std::uint64_t whole = 0;
  for (const RowFacts& f : sample.rows) {
    ++schedules[pipeline::to_string(f.schedule)];
    whole += f.samples > 0 ? 1 : 0;
  }
  std::string shares;
  for (const auto& [name, rows] : schedules) shares += (shares.empty() ? "" : ", ") + of_rows(rows) + " " + name;
  fact("questions", of_rows(whole) + " of whole samples; " + shares);
  document["whole_samples"] = whole;
  document["schedules"] = schedules;
  if (manifest.oracle) {
    const std::uint64_t none = sample.rows.size() - sample.labelled - sample.infeasible;
    document["labels"] = {{"optimal", sample.labelled}, {"infeasible", sample.infeasible}, {"none", none}};
    fact("labels", of_rows(sample.labelled) + " optimal, " + of_rows(sample.infeasible) + " without a feasible plan, " +
                       of_rows(none) + " not labelled");
  }
  text +=
      "\n  " +
      (sample.rows.size() == reader.size() ? std::string("all") : "of a sample of " + count_text(sample.rows.size())) +
      " rows:\n\n";
  FittedTable table({{"family", Align::kLeft},
                     {"rows"},
                     {"instructions", Align::kRight, 60},
                     {"devices", Align::kRight, 50},
                     {"stages", Align::kRight, 40},
                     {"largest transfer", Align::kRight, 30},
                     {"weights' transfer", Align::kRight, 20}});
  Json families = Json::array();
  for (std::size_t family = 0; family < manifest.distributions.size(); ++family) {
    const int id = static_cast<int>(family);
    const std::vector<double> transfer = values_of(sample, &RowFacts::transfer, id);
    if (transfer.empty()) continue;
    const std::vector<double> allreduce = values_of(sample, &RowFacts::allreduce, id);
    table.add_row({manifest.distributions[family], of_rows(transfer.size()),
                   range_text(values_of(sample, &RowFacts::instructions, id)),
                   range_text(values_of(sample, &RowFacts::devices, id)),
                   range_text(values_of(sample, &RowFacts::stages, id)), format_number(quantile(transfer, 0.5)),
                   format_number(quantile(allreduce, 0.5))});
    families.push_back({{"name", manifest.distributions[family]},
                        {"rows", transfer.size()},
                        {"transfer_over_compute", range_json(transfer)},
                        {"weights_over_compute", range_json(allreduce)}});
  }
  document["sampled_rows"] = sample.rows.size();
  document["families"] = std::move(families);
  text += table.render("  ");
  text += "\n  transfers: medians, ms at the slowest link over all compute ms. Their distribution:\n\n";
  text += histogram_text("largest activation over compute", values_of(sample, &RowFacts::transfer));
  text += histogram_text("all weights over compute", values_of(sample, &RowFacts::allreduce));
}

}  // namespace

DatasetDescription describe_dataset(const std::string& folder, const DatasetOptions& options) {
  const DatasetManifest manifest = io::read_manifest(folder);
  const bool complete = manifest.shards.size() == manifest.num_shards();
  std::uint64_t bytes = 0, rows_there = 0;
  for (const io::ShardEntry& entry : manifest.shards) {
    bytes += entry.bytes;
    rows_there += entry.rows;
  }
  DatasetDescription out;
  Json& document = out.description.document;
  document = {{"schema", "automap.inspect/1"},
              {"kind", "dataset"},
              {"source", folder},
              {"file_bytes", bytes},
              {"sha256", nullptr},
              {"fingerprint", manifest.fingerprint()},
              {"generator", manifest.generator},
              {"rows", manifest.rows},
              {"rows_there", rows_there},
              {"shards", manifest.num_shards()},
              {"shards_there", manifest.shards.size()},
              {"shard_rows", manifest.shard_rows},
              {"seed", manifest.seed},
              {"compressed", manifest.compressed},
              {"oracle", manifest.oracle},
              {"config", Json::parse(manifest.config_json)}};
  std::string& text = out.description.text;
  text = printable(folder) + ": a dataset of random planning problems\n\n";
  const auto fact = [&](const std::string& name, const std::string& value) {
    text += "  " + name + std::string(13 - name.size(), ' ') + printable(value) + "\n";
  };
  fact("rows", count_text(manifest.rows) + " in " + count_text(manifest.num_shards()) +
                   (manifest.num_shards() == 1 ? " shard of up to " : " shards of ") + count_text(manifest.shard_rows) +
                   (complete ? "" : ", not complete: " + count_text(manifest.shards.size()) + " shards are there"));
  fact("size", format_bytes(static_cast<double>(bytes)) + (manifest.compressed ? ", compressed" : ""));
  fact("seed", std::to_string(manifest.seed));
  fact("made by", manifest.generator);
  fact("fingerprint", manifest.fingerprint().substr(0, 16));
  constexpr int kShownConfig = 200;
  const std::string config = excerpt(manifest.config_json, kShownConfig);
  fact("config", config + (config == printable(manifest.config_json) ? "" : " (--json shows all)"));

  std::vector<io::DatasetProblem> problems;
  if (options.verify) {
    Progress progress("verify", manifest.rows, "rows");
    problems = io::verify_dataset(folder, [&](std::uint64_t done, std::uint64_t) { progress.update(done); });
    progress.finish();
    out.intact = problems.empty();
    Json list = Json::array();
    for (const io::DatasetProblem& p : problems) {
      Json item = {{"shard", p.shard}, {"row", nullptr}, {"what", p.what}};
      if (p.row) item["row"] = *p.row;
      list.push_back(std::move(item));
    }
    document["intact"] = out.intact;
    document["problems"] = std::move(list);
    fact("verified",
         out.intact ? "every byte and every row is as it was written" : std::to_string(problems.size()) + " problems");
    if (!manifest.checksum) {
      text += "    " + std::string(io::kManifestName) +
              " has no checksum of its own, as older versions wrote it: the automap-datagen command adds it\n";
    }
    for (const io::DatasetProblem& p : problems) {
      text += "    " + printable(p.shard + (p.row ? ", row " + std::to_string(*p.row) : "") + ": " + p.what) + "\n";
    }
  }
  if (!complete || !out.intact) return out;

  describe_rows(DatasetReader(folder), fact, document, text);
  return out;
}

std::string plot_dataset(const std::string& folder) {
  const DatasetReader reader(folder);
  const Sample sample = sample_of(reader);
  // The first row of each family met, at most this many.
  constexpr std::size_t kRows = 12, kColumns = 4;
  std::map<std::uint8_t, std::uint64_t> first;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(reader.size(), 1000); ++i) {
    first.emplace(reader.row(i).distribution, i);
  }
  std::vector<std::uint64_t> shown;
  for (const auto& [family, i] : first) {
    if (shown.size() < kRows) shown.push_back(i);
  }
  const std::size_t lines = (shown.size() + kColumns - 1) / kColumns;
  constexpr double kWidth = 240, kHeight = 110, kGap = 30, kTop = 60, kHistogram = 160;
  const double rows_height = static_cast<double>(lines) * (kHeight + kGap + 16);
  Svg svg(kColumns * (kWidth + kGap) + kGap, kTop + rows_height + kHistogram + 90);
  svg.text(kGap, 22,
           folder + ": " + std::to_string(reader.size()) + " rows, seed " + std::to_string(reader.manifest().seed),
           "font-size=\"15\"");
  svg.text(kGap, 40, "C' (compute, summed)", "fill=\"#1f77b4\"");
  svg.text(kGap + 150, 40, "A' (activations)", "fill=\"#d62728\"");
  svg.text(kGap + 270, 40, "W' (weights, summed)", "fill=\"#2ca02c\"");
  for (std::size_t k = 0; k < shown.size(); ++k) {
    const RowProblem row = reader.row(shown[k]);
    const double x = kGap + static_cast<double>(k % kColumns) * (kWidth + kGap);
    const double y = kTop + 14 + static_cast<double>(k / kColumns) * (kHeight + kGap + 16);
    svg.text(x, y - 5,
             "row " + std::to_string(shown[k]) + ", " + reader.distributions()[row.distribution] +
                 ", n = " + std::to_string(row.num_instructions));
    svg.box(x, y, kWidth, kHeight, "fill=\"none\" stroke=\"#bbb\"");
    svg.curve(x, y, kWidth, kHeight, row.caw.data(), "#1f77b4");
    svg.curve(x, y, kWidth, kHeight, row.caw.data() + kPoints, "#d62728");
    svg.curve(x, y, kWidth, kHeight, row.caw.data() + 2 * kPoints, "#2ca02c");
  }
  const double y = kTop + rows_height + 30;
  const double width = (kColumns * (kWidth + kGap) - kGap - kGap) / 2;
  draw_histogram(
      svg, kGap, y, width, kHistogram,
      "largest activation over compute, ms at the slowest link (" + std::to_string(sample.rows.size()) + " rows)",
      values_of(sample, &RowFacts::transfer), "fill=\"#d62728\" fill-opacity=\"0.6\"");
  draw_histogram(svg, 2 * kGap + width, y, width, kHistogram, "all weights over compute, ms at the slowest link",
                 values_of(sample, &RowFacts::allreduce), "fill=\"#2ca02c\" fill-opacity=\"0.6\"");
  return std::move(svg).done();
}

}  // namespace automap::inspect
