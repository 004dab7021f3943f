#include "datagen/preview.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"

namespace automap::datagen {
namespace {

using pipeline::kGranularity;
using pipeline::RowProblem;

constexpr int kBars = 64;

std::string bars(const std::array<double, kBars>& heights) {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const double highest = *std::max_element(heights.begin(), heights.end());
  std::string text;
  for (const double height : heights) {
    const double share = highest > 0 ? height / highest : 0;
    // Anything above nothing is seen.
    const int level = share <= 0 ? 0 : std::clamp(static_cast<int>(std::ceil(share * 8)), 1, 8);
    text += kBlocks[level];
  }
  return text;
}

// Differences of a running sum, or the largest value of each part.
std::array<double, kBars> parts(const float* values, bool summed) {
  constexpr int kEach = kGranularity / kBars;
  std::array<double, kBars> out{};
  double before = 0;
  for (int b = 0; b < kBars; ++b) {
    const float* part = values + b * kEach;
    out[static_cast<std::size_t>(b)] = summed ? part[kEach - 1] - before : *std::max_element(part, part + kEach);
    before = part[kEach - 1];
  }
  return out;
}

const std::string& family_of(const RowProblem& row, const std::vector<std::string>& distributions) {
  static const std::string unknown = "?";
  return row.distribution < distributions.size() ? distributions[row.distribution] : unknown;
}

// The line that only rows of whole samples have.
std::string step_text(const RowProblem& row) {
  return "  " + std::to_string(row.samples) + " samples a micro-batch, " + format_number(100 * row.launch_share) +
         " % of one sample's time fixed; gradients " + format_number(row.gradient_share) + "x, optimizer state " +
         format_number(row.slot_factor) + "x all weights, " +
         (row.gradient_sync == 1 ? "reduced beside the backward" : "reduced behind the backward") +
         (row.optimizer_factor > 0 ? "" : ", no optimizer") + "; ZeRO up to " + std::to_string(row.zero) +
         (row.layers > 0 ? ", recomputation of " + std::to_string(row.layers) + " layers" : "") + "\n";
}

}  // namespace

std::string row_text(const RowProblem& row, const std::vector<std::string>& distributions, std::uint64_t index) {
  const float* c = row.caw.data();
  const float* a = c + kGranularity;
  const float* w = a + kGranularity;
  const double compute = c[kGranularity - 1];
  std::string out = "row " + std::to_string(index) + "  " + printable(family_of(row, distributions)) + "  " +
                    format_count(row.num_instructions) + " instructions, " + format_ms(compute * row.scale_ms) +
                    " a micro-batch; " + std::to_string(row.servers) + " x " + std::to_string(row.devices_per_server) +
                    (row.server_seed == 0 ? "" : " different") + " devices, " + std::to_string(row.stages) +
                    " stages, " + std::to_string(row.micro_batches) + " micro-batches, " + to_string(row.schedule) +
                    "\n";
  out += "  links inside servers " + format_number(row.intra_over_inter) + "x faster; forward share " +
         format_number(row.forward_fraction) + "; memory limit " +
         (std::isinf(row.memory_limit)
              ? std::string("none")
              : format_number(row.memory_limit / std::max(1e-30f, w[kGranularity - 1])) + "x all weights") +
         "; all-reduce of all weights " + format_number(2 * w[kGranularity - 1] / compute) + "x, largest transfer " +
         format_number(*std::max_element(a, a + kGranularity) / compute) + "x the compute time\n";
  if (row.samples > 0) out += step_text(row);
  out += "  compute     " + bars(parts(c, true)) + "\n";
  out += "  activations " + bars(parts(a, false)) + "\n";
  out += "  weights     " + bars(parts(w, true)) + "\n";
  return out;
}

Json row_json(const RowProblem& row, const std::vector<std::string>& distributions, std::uint64_t index) {
  Json document = {{"index", index},
                   {"distribution", family_of(row, distributions)},
                   {"num_instructions", row.num_instructions},
                   {"scale_ms", row.scale_ms},
                   {"servers", row.servers},
                   {"devices_per_server", row.devices_per_server},
                   {"intra_over_inter", row.intra_over_inter},
                   {"micro_batches", row.micro_batches},
                   {"stages", row.stages},
                   {"memory_limit", nullptr},
                   {"schedule", to_string(row.schedule)},
                   {"forward_fraction", row.forward_fraction},
                   {"stash_factor", row.stash_factor},
                   {"hop_latency", row.hop_latency},
                   {"server_seed", row.server_seed},
                   {"samples", row.samples}};
  if (std::isfinite(row.memory_limit)) document["memory_limit"] = row.memory_limit;
  if (row.samples > 0) {
    document["launch_share"] = row.launch_share;
    document["launch_even"] = row.launch_even;
    document["gradient_share"] = row.gradient_share;
    document["slot_factor"] = row.slot_factor;
    document["gradient_sync"] = row.gradient_sync == 1 ? "overlap" : "after";
    document["bucket"] = row.bucket;
    document["optimizer_factor"] = row.optimizer_factor;
    document["workspace_factor"] = row.workspace_factor;
    document["zero"] = row.zero;
    document["layers"] = row.layers;
  }
  const auto array = [&](int which) {
    const auto first = row.caw.begin() + which * kGranularity;
    return std::vector<float>(first, first + kGranularity);
  };
  document["c"] = array(0);
  document["a"] = array(1);
  document["w"] = array(2);
  return document;
}

}  // namespace automap::datagen
