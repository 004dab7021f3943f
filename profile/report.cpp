#include "profile/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"

namespace automap::profile {

namespace {

// "6 softmaxes of scores as written: 4 since ..., 2 since ..."; empty when there are none.
std::string missed_text(const FusionSummary& fusion) {
  if (fusion.missed == 0) return "";
  const std::int64_t read = fusion.missed - fusion.missed_type - fusion.missed_head;
  std::string reasons;
  for (const auto& [count, why] :
       {std::pair(fusion.missed_type, "their products are no 16-bit ones (--attention fused: in every type)"),
        std::pair(fusion.missed_head, "their heads are longer than the 256 that kernels hold"),
        std::pair(read, "others read what is inside")}) {
    if (count == 0) continue;
    reasons +=
        (reasons.empty() ? "" : ", ") + (count == fusion.missed ? "" : format_count(count) + " ") + "since " + why;
  }
  return format_count(fusion.missed) + (fusion.missed == 1 ? " softmax" : " softmaxes") + " of scores as written, " +
         reasons;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

// Byte counts and FLOPs are whole numbers; JSON should not print them with an exponent while they fit.
Json whole(double value) {
  if (value >= 0 && value < 9e15 && value == std::floor(value)) return static_cast<std::int64_t>(value);
  return value;
}

std::string format_flops(double flops) {
  static const char* const kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  std::size_t unit = 0;
  while (flops >= 1000 && unit + 1 < std::size(kUnits)) {
    flops /= 1000;
    ++unit;
  }
  return format_number(flops) + " " + kUnits[unit];
}

// The totals of each device of a replica for a micro-batch of the module's own samples, on the first device.
struct WidthSums {
  // `collectives`: of those times, by device; empty: none.
  WidthSums(const pipeline::Profile& profile, const std::vector<pipeline::DeviceTimes>& of_devices,
            const std::vector<std::vector<double>>& collectives) {
    if (of_devices.empty()) return;
    const pipeline::DeviceTimes& times = of_devices.front();
    std::size_t own = 0;
    while (own + 1 < times.samples.size() && times.samples[own] < profile.micro_batch_size) ++own;
    forward_ms = sum(times.forward_ms[own]);
    backward_ms = sum(times.backward_ms[own]);
    optimizer_ms = sum(times.optimizer_ms);
    if (!collectives.empty()) collective_ms = sum(collectives.front());
  }
  double forward_ms = 0, backward_ms = 0, optimizer_ms = 0;
  double collective_ms = 0;  // of which collectives between the replica's devices
};

// Layers to show when there are too many: runs of small neighbours become one row.
std::vector<LayerSummary> shown_layers(const ModelProfile& profile, std::size_t limit) {
  std::vector<LayerSummary> layers = profile.layers;
  const double all = std::max(1e-300, sum(profile.profile.c_ms));
  for (double share = 0.0005; layers.size() > limit && share < 1; share *= 2) {
    std::vector<LayerSummary> merged;
    bool last_small = false;
    for (const LayerSummary& layer : layers) {
      const bool small = layer.c_ms < share * all;
      if (small && last_small) {
        LayerSummary& into = merged.back();
        const std::size_t dots = into.name.find(" … ");
        into.name = (dots == std::string::npos ? into.name : into.name.substr(0, dots)) + " … " + layer.name;
        into.last_instruction = layer.last_instruction;
        into.c_ms += layer.c_ms;
        into.w_bytes += layer.w_bytes;
        into.stash_bytes += layer.stash_bytes;
        into.a_bytes = layer.a_bytes;
        last_small = into.c_ms < share * all;
        continue;
      }
      merged.push_back(layer);
      last_small = small;
    }
    layers = std::move(merged);
  }
  return layers;
}

}  // namespace

std::string report_json(const ModelProfile& profile, const std::string& form, const Json& measured) {
  const pipeline::Profile& p = profile.profile;
  Json d = Json::object();
  d["schema"] = "automap.profile-report/1";
  d["model"] = p.model;
  d["form"] = form;
  d["source_sha256"] = p.source_sha256;
  d["device"] = p.device;
  d["training"] = profile.training;
  d["instructions"] = p.size();
  d["forward_flops"] = whole(profile.forward_flops);
  d["total_flops"] = whole(profile.total_flops);
  d["executed_forward_flops"] = whole(profile.executed_forward_flops);
  d["executed_flops"] = whole(profile.executed_flops);
  d["forward_fraction"] = p.forward_fraction;
  d["micro_batch_size"] = whole(p.micro_batch_size);
  d["split"] = profile.split;
  d["variables_found_by"] = profile.variables_found_by;
  d["loss"] = profile.loss_result >= 0 ? Json(profile.loss_result) : Json();
  d["loss_found_by"] = profile.loss_found_by;
  d["totals"] = {{"c_ms", sum(p.c_ms)}, {"w_bytes", whole(sum(p.w_bytes))}, {"stash_bytes", whole(sum(p.stash_bytes))}};
  d["times_ms"] = {{"forward", profile.forward_ms},
                   {"backward", profile.backward_ms},
                   {"optimizer", profile.optimizer_ms},
                   {"other", profile.other_ms}};
  const MemorySummary& m = profile.memory;
  d["memory_bytes"] = {{"variables", whole(m.variable_bytes)},
                       {"slots", whole(m.slot_bytes)},
                       {"frozen", whole(m.frozen_bytes)},
                       {"state", whole(m.state_bytes)},
                       {"inputs", whole(m.input_bytes)},
                       {"stash", whole(m.stash_bytes)},
                       {"gradients", whole(sum(p.gradient_bytes))},
                       {"workspace", whole(largest(p.workspace_bytes))}};
  d["trainable_variables"] = Json::array();
  for (const TrainableVariable& v : profile.variables) {
    d["trainable_variables"].push_back({{"parameter", v.parameter},
                                        {"number", v.number},
                                        {"name", v.name},
                                        {"shape", v.shape},
                                        {"bytes", whole(v.bytes)},
                                        {"gradient_bytes", whole(v.gradient_bytes)},
                                        {"slot_bytes", whole(v.slot_bytes)},
                                        {"first_instruction", v.first_use},
                                        {"last_instruction", v.last_use}});
  }
  d["shared_variables"] = Json::array();
  for (const SharedVariable& s : profile.shared) {
    const TrainableVariable& v = profile.variables[static_cast<std::size_t>(s.variable)];
    d["shared_variables"].push_back({{"parameter", v.parameter},
                                     {"name", v.name},
                                     {"bytes", whole(v.bytes)},
                                     {"first_layer", s.first_layer},
                                     {"last_layer", s.last_layer}});
  }
  d["layers"] = Json::array();
  for (const LayerSummary& l : profile.layers) {
    d["layers"].push_back({{"name", l.name},
                           {"first_instruction", l.first_instruction},
                           {"last_instruction", l.last_instruction},
                           {"c_ms", l.c_ms},
                           {"a_bytes", whole(l.a_bytes)},
                           {"w_bytes", whole(l.w_bytes)},
                           {"stash_bytes", whole(l.stash_bytes)}});
  }
  d["accumulated_micro_batches"] = p.accumulated_micro_batches;
  d["attention_heads"] = p.attention_heads;
  // Totals; per instruction they are in the profile file.
  const FusionSummary& fusion = profile.fusion;
  d["fused_kernels"] = {{"looked_for", !fusion.looked_for  ? "none"
                                       : fusion.only_16bit ? "16-bit"
                                                           : "all"},
                        {"found", fusion.found},
                        {"device_without", fusion.without_kernels},
                        {"softmaxes_as_written", fusion.missed},
                        {"as_written_since",
                         {{"no_16_bit_products", fusion.missed_type},
                          {"longer_heads", fusion.missed_head},
                          {"read_by_others", fusion.missed - fusion.missed_type - fusion.missed_head}}}};
  d["times"] = Json::array();
  for (const pipeline::DeviceTimes& times : p.times) {
    Json points = Json::array();
    for (std::size_t i = 0; i < times.samples.size(); ++i) {
      points.push_back({{"samples", whole(times.samples[i])},
                        {"forward_ms", sum(times.forward_ms[i])},
                        {"backward_ms", sum(times.backward_ms[i])}});
    }
    d["times"].push_back({{"device", times.device}, {"optimizer_ms", sum(times.optimizer_ms)}, {"points", points}});
  }
  d["widths"] = Json::array();
  for (const pipeline::WidthColumns& columns : p.widths) {
    const WidthSums sums(p, columns.times, columns.collective_ms);
    d["widths"].push_back({{"width", columns.width},
                           {"forward_ms", sums.forward_ms},
                           {"backward_ms", sums.backward_ms},
                           {"collective_ms", sums.collective_ms},
                           {"optimizer_ms", sums.optimizer_ms},
                           {"w_bytes", whole(sum(columns.w_bytes))},
                           {"stash_bytes", whole(sum(columns.stash_bytes))}});
  }
  d["times_problem"] = profile.times_problem.empty() ? Json() : Json(profile.times_problem);
  d["uncut_loops"] = Json::array();
  for (const UncutLoop& loop : profile.uncut_loops) {
    d["uncut_loops"].push_back({{"instruction", loop.position},
                                {"turns", loop.turns},
                                {"layers", loop.layers},
                                {"compute_share", loop.compute_share},
                                {"weight_share", loop.weight_share}});
  }
  d["optimized_hlo"] = profile.optimized;
  if (!measured.is_null()) d["measured"] = measured;
  d["warnings"] = profile.warnings;
  return json_text(d);
}

std::string report_text(const ModelProfile& profile, const std::string& form, int width) {
  using Align = FittedTable::Align;
  const pipeline::Profile& p = profile.profile;
  std::string out;
  const auto fact = [&](const std::string& name, const std::string& value) {
    out +=
        wrap_lines(name + std::string(name.size() < 12 ? 12 - name.size() : 1, ' ') + printable(value) + "\n", width);
  };
  const double c = sum(p.c_ms);
  fact("model",
       p.model + " (" + form + "), " + (profile.training ? "a training step" : "inference only") +
           (p.micro_batch_size > 0 ? ", micro-batch of " + format_count(static_cast<long long>(p.micro_batch_size))
                                   : ""));
  fact("device", p.device);
  fact("forward", format_count(p.size()) + " instructions, " + format_flops(profile.executed_forward_flops) + " of " +
                      format_flops(profile.executed_flops) + ", " + format_ms(profile.forward_ms));
  if (profile.training) {
    fact("backward",
         format_ms(profile.backward_ms) + "; forward is " + format_percent(p.forward_fraction) + " of both");
    fact("optimizer",
         format_ms(profile.optimizer_ms) + " (not part of the pipeline's compute)" +
             (profile.other_ms > 0.0005 * c ? "; metrics and statistics " + format_ms(profile.other_ms) : ""));
  }
  if (profile.training || !profile.variables.empty()) {
    fact("variables", format_count(static_cast<long long>(profile.variables.size())) + " trained, " +
                          format_bytes(profile.memory.variable_bytes) + ": " + profile.variables_found_by);
  } else {
    fact("variables", profile.variables_found_by);
  }
  if (profile.training)
    fact("loss", (profile.loss_result >= 0 ? "" : std::string("not returned: ")) + profile.loss_found_by);
  const MemorySummary& m = profile.memory;
  fact("memory", "optimizer state " + format_bytes(m.slot_bytes) + ", frozen weights " + format_bytes(m.frozen_bytes) +
                     ", other state " + format_bytes(m.state_bytes) + ", inputs " + format_bytes(m.input_bytes) +
                     ", activations kept for backward " + format_bytes(m.stash_bytes) + ", gradients " +
                     format_bytes(sum(p.gradient_bytes)) + ", largest workspace " +
                     format_bytes(largest(p.workspace_bytes)));
  if (profile.fusion.looked_for) {
    const FusionSummary& fusion = profile.fusion;
    const std::string missed = missed_text(fusion);
    if (!fusion.found.empty()) {
      fact("fused",
           fusion.found + ", each one kernel of a library (--attention as-written: as the module says)" +
               (fusion.without_kernels.empty()
                    ? ""
                    : "; " + fusion.without_kernels + " has none: its times, and what all keep, are as written") +
               (missed.empty() ? "" : "; " + missed));
    } else if (!missed.empty()) {
      fact("fused", "none; " + missed);
    }
  } else if (!profile.fusion.without_kernels.empty()) {
    fact("fused", "nothing: attention as written, since no kernels of libraries are known for " +
                      profile.fusion.without_kernels + " (--attention fused: as if it had them)");
  }
  for (const pipeline::DeviceTimes& times : p.times) {
    std::string points;
    for (std::size_t i = 0; i < times.samples.size(); ++i) {
      points += (i == 0 ? "" : ", ") + format_count(static_cast<long long>(times.samples[i])) + ": " +
                format_ms(sum(times.forward_ms[i]) + sum(times.backward_ms[i]));
    }
    fact("samples", points + (p.times.size() > 1 ? " (" + times.device + ")" : ""));
  }
  if (!p.widths.empty()) {
    out += "\n";
    FittedTable widths({{"devices of a replica"},
                        {"forward and backward"},
                        {"of which collectives", Align::kRight, 30},
                        {"optimizer", Align::kRight, 10},
                        {"parameters", Align::kRight, 20},
                        {"stash", Align::kRight, 15}});
    const auto row = [&](int devices, const WidthSums& sums, double weights, double stash) {
      widths.add_row({std::to_string(devices), format_ms(sums.forward_ms + sums.backward_ms),
                      format_ms(sums.collective_ms), format_ms(sums.optimizer_ms), format_bytes(weights),
                      format_bytes(stash)});
    };
    row(1, WidthSums(p, p.times, {}), sum(p.w_bytes), sum(p.stash_bytes));
    for (const pipeline::WidthColumns& columns : p.widths) {
      row(columns.width, WidthSums(p, columns.times, columns.collective_ms), sum(columns.w_bytes),
          sum(columns.stash_bytes));
    }
    out += widths.render("", width);
    out += wrap_lines(printable("Of each device, a micro-batch of " + format_number(p.micro_batch_size) +
                                " samples; collectives between devices of " + p.widths.front().servers + ".") +
                          "\n",
                      width);
  }
  out += "\n";
  FittedTable table({{"layer", Align::kLeft, FittedTable::kNeeded, 16},
                     {"instructions", Align::kRight, 10},
                     {"compute"},
                     {"share", Align::kRight, 20},
                     {"parameters"},
                     {"cut behind", Align::kRight, 40},
                     {"stash", Align::kRight, 30}});
  const std::vector<LayerSummary> layers = shown_layers(profile, 60);
  for (const LayerSummary& layer : layers) {
    table.add_row({shorten(layer.name, 44),
                   std::to_string(layer.first_instruction) + "–" + std::to_string(layer.last_instruction),
                   format_ms(layer.c_ms), c > 0 ? format_percent(layer.c_ms / c) : "", format_bytes(layer.w_bytes),
                   format_bytes(layer.a_bytes), format_bytes(layer.stash_bytes)});
  }
  out += table.render("", width);
  if (layers.size() < profile.layers.size()) {
    out += wrap_lines("(" + format_count(static_cast<long long>(profile.layers.size())) +
                          " layers; small neighbours are shown as one row, --json has all)\n",
                      width);
  }
  if (!profile.layers_from_metadata && profile.layers.size() > 1)
    out += wrap_lines("The module carries no layer names; blocks are named by what repeats.\n", width);
  for (const SharedVariable& s : profile.shared) {
    const TrainableVariable& v = profile.variables[static_cast<std::size_t>(s.variable)];
    out += wrap_lines(
        printable("Shared: " + v.name + " (" + format_bytes(v.bytes) + ") is used in " + s.first_layer + " and " +
                  s.last_layer + "; stages that part them both hold it, and its gradient crosses once per step.") +
            "\n",
        width);
  }
  return out;
}

}  // namespace automap::profile
