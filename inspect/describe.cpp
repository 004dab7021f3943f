#include "inspect/describe.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/layers.h"
#include "common/graph/trip_count.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/json_cursor.h"
#include "common/io/hdf5_checksum.h"
#include "common/io/profile_file.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/pipeline/plan_json.h"
#include "inspect/links.h"
#include "models/partition_env.h"
#include "models/policy.h"
#include "plan/partition/partition_plan.h"

namespace automap::inspect {
namespace {

using Json = nlohmann::ordered_json;
using Align = TextTable::Align;

// How many rows the longer tables show people; the document has all of them.
constexpr std::size_t kShownOpcodes = 12;
constexpr std::size_t kShownLayers = 24;

// "model     bert48" lines with aligned values, made printable.
class Facts {
 public:
  void add(const std::string& name, const std::string& value) { rows_.emplace_back(printable(name), printable(value)); }
  std::string render() const {
    int width = 0;
    for (const auto& [name, value] : rows_) width = std::max(width, display_width(name));
    std::string out;
    for (const auto& [name, value] : rows_)
      out += "  " + name + std::string(static_cast<std::size_t>(width + 2 - display_width(name)), ' ') + value + "\n";
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

// "2.98 TFLOP"
std::string format_flops(double flops) {
  static constexpr const char* kUnits[] = {" FLOP", " kFLOP", " MFLOP", " GFLOP", " TFLOP", " PFLOP", " EFLOP"};
  std::size_t unit = 0;
  while (flops >= 1000 && unit + 1 < std::size(kUnits)) {
    flops /= 1000;
    ++unit;
  }
  return format_number(flops) + kUnits[unit];
}

std::string count_of(std::int64_t n, const std::string& thing) {
  return format_count(n) + " " + thing + (n == 1 ? "" : thing.back() == 'h' ? "es" : "s");  // micro-batches
}

Json base_document(const char* kind, const std::string& source, std::string_view bytes) {
  Json document;
  document["schema"] = "automap.inspect/1";
  document["kind"] = kind;
  document["source"] = source;
  document["file_bytes"] = bytes.size();
  document["sha256"] = nullptr;
  return document;
}

std::string title(const std::string& source, const std::string& what) {
  return printable(source + ": " + what) + "\n\n";
}

// Counts are printed as integers as long as a double holds them exactly.
Json count_number(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value == std::floor(value) && std::abs(value) <= kExact) return Json(static_cast<std::int64_t>(value));
  return Json(value);
}

const char* form_key(io::ProfileForm form) {
  switch (form) {
    case io::ProfileForm::kHdf5: return "hdf5";
    case io::ProfileForm::kCsv: return "csv";
    case io::ProfileForm::kPipedream: return "pipedream";
  }
  return "";
}

struct LayerRow {
  std::string name;
  std::int64_t instructions = 0;
};

// Consecutive forward instructions of one layer. Empty when the module is too unusual to be cut into layers.
std::vector<LayerRow> layers_of(const graph::TrainingStep& step) {
  const graph::FlowOrder order = graph::order_forward(step);
  const graph::LayerNames names = graph::name_layers(step, order);
  std::vector<LayerRow> rows;
  std::map<std::string, std::size_t> place;
  for (const std::string& name : names.name) {
    const auto [it, added] = place.emplace(name, rows.size());
    if (added) rows.push_back({name, 0});
    ++rows[it->second].instructions;
  }
  return rows;
}

// What one module holds; of several modules, the sums.
struct HloFacts {
  Json parameters = Json::array();
  std::string module;
  std::int64_t instructions = 0, computations = 0, entry_instructions = 0, entry_parameters = 0;
  std::map<std::string, std::int64_t> opcodes;
  std::int64_t unknown_opcodes = 0, whiles = 0, known_trip_counts = 0, custom_calls = 0;
  double flops = 0, transcendentals = 0, bytes_accessed = 0, parameter_bytes = 0, result_bytes = 0;
  bool understood = false, training = false;
  std::string why_not;  // understood: empty
  std::int64_t variables = 0, forward = 0;
  std::vector<LayerRow> layers;
};

HloFacts facts_of(const graph::Graph& g) {
  HloFacts f;
  f.module = std::string(g.name());
  f.instructions = g.num_instructions();
  f.computations = g.num_computations();
  f.entry_instructions = g.entry().count;
  f.entry_parameters = static_cast<std::int64_t>(g.entry().parameters.size());
  for (graph::InstructionId id = 0; id < g.num_instructions(); ++id) {
    const graph::Instruction& i = g.instruction(id);
    ++f.opcodes[std::string(i.opcode_name)];
    if (i.opcode == graph::Opcode::kUnknown) ++f.unknown_opcodes;
    if (i.opcode == graph::Opcode::kWhile) {
      ++f.whiles;
      if (graph::trip_count(g, id)) ++f.known_trip_counts;
    }
  }
  for (const graph::InstructionId id : g.entry().parameters) {
    f.parameter_bytes += static_cast<double>(g.shape_of(id).bytes);
    const std::string name(g.instruction(id).name), path = g.op_name(id);
    f.parameters.push_back({{"parameter", name},
                            {"number", f.parameters.size()},
                            {"name", path.empty() ? name : path},
                            {"shape", std::string(g.shape_of(id).text)},
                            {"bytes", g.shape_of(id).bytes}});
  }
  f.result_bytes = static_cast<double>(g.shape_of(g.entry().root).bytes);
  const graph::ModuleCost cost = graph::analyze_cost(g);
  f.flops = cost.total.flops;
  f.transcendentals = cost.total.transcendentals;
  f.bytes_accessed = cost.total.bytes;
  f.custom_calls = cost.custom_calls;
  // What follows needs to understand the module; a module that cannot be understood is still described.
  try {
    const graph::TrainingStep step = graph::analyze_training_step(g);
    f.training = step.training;
    f.variables = static_cast<std::int64_t>(step.variables.size());
    f.forward = std::count(step.part.begin(), step.part.end(), graph::Part::kForward);
    f.layers = layers_of(step);
    f.understood = true;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInternal) throw;
    f.why_not = e.what();
  }
  return f;
}

void add_to(HloFacts* sum, const HloFacts& f) {
  sum->instructions += f.instructions;
  sum->computations += f.computations;
  sum->entry_instructions += f.entry_instructions;
  sum->entry_parameters += f.entry_parameters;
  for (const auto& [name, count] : f.opcodes) sum->opcodes[name] += count;
  sum->unknown_opcodes += f.unknown_opcodes;
  sum->whiles += f.whiles;
  sum->known_trip_counts += f.known_trip_counts;
  sum->custom_calls += f.custom_calls;
  sum->flops += f.flops;
  sum->transcendentals += f.transcendentals;
  sum->bytes_accessed += f.bytes_accessed;
  sum->parameter_bytes += f.parameter_bytes;
  sum->result_bytes += f.result_bytes;
  sum->training = sum->training || f.training;
  sum->variables += f.variables;
  sum->forward += f.forward;
  if (sum->why_not.empty()) sum->why_not = f.why_not;
}

// One of several modules in a text, which starts at `line`. Errors name the line in the whole text.
graph::Graph read_piece(hlo::HloForm form, std::string_view piece, std::int64_t line, const std::string& source) {
  try {
    return hlo::read_hlo_as(form, std::string(piece), source);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInternal) throw;
  }
  return hlo::read_hlo_as(form, std::string(static_cast<std::size_t>(line - 1), '\n') + std::string(piece), source);
}

Description describe_hlo(Description out, hlo::HloForm form, std::string bytes, const std::string& source,
                         const DescribeOptions& options) {
  double parse_ms = 0;
  const auto timed = [&](const auto& read) {
    const auto start = std::chrono::steady_clock::now();
    graph::Graph g = read();
    parse_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return g;
  };
  std::vector<std::string_view> pieces;
  if (form == hlo::HloForm::kText || form == hlo::HloForm::kProtoText) pieces = hlo::split_modules(bytes);
  if (pieces.size() > 1) {
    // "// -----" may as well be a comment in a single module: then the text as a whole is readable.
    try {
      hlo::read_hlo_as(form, bytes, source);
      pieces.clear();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kInternal) throw;
    }
  }
  HloFacts f;
  Json modules = Json::array();
  if (pieces.size() > 1) {
    std::int64_t line = 1;
    const char* counted = bytes.data();
    for (std::string_view piece : pieces) {
      // A piece starts at the line that parts it from the one before; in protobufs that line is no comment.
      if (piece.substr(0, 8) == "// -----") piece.remove_prefix(std::min(piece.find('\n'), piece.size()));
      piece.remove_prefix(std::min(piece.find_first_not_of("\r\n"), piece.size()));
      line += std::count(counted, piece.data(), '\n');
      counted = piece.data();
      const HloFacts one = facts_of(timed([&] { return read_piece(form, piece, line, source); }));
      modules.push_back({{"module", one.module},
                         {"line", line},
                         {"instructions", one.instructions},
                         {"computations", one.computations},
                         {"entry_instructions", one.entry_instructions},
                         {"entry_parameters", one.entry_parameters},
                         {"flops", count_number(one.flops)},
                         {"training", one.understood ? Json(one.training) : Json(nullptr)}});
      if (modules.size() == 1) f.module = one.module;
      add_to(&f, one);
    }
    f.understood = f.why_not.empty();
  } else {
    f = facts_of(timed([&] { return hlo::read_hlo_as(form, std::move(bytes), source); }));
  }

  Json& d = out.document;
  d["form"] = hlo::to_string(form);
  d["module"] = f.module;
  d["instructions"] = f.instructions;
  d["computations"] = f.computations;
  d["entry_instructions"] = f.entry_instructions;
  d["entry_parameters"] = f.entry_parameters;
  d["opcodes"] = f.opcodes;
  d["flops"] = count_number(f.flops);
  d["transcendentals"] = count_number(f.transcendentals);
  d["bytes_accessed"] = count_number(f.bytes_accessed);
  d["custom_calls"] = f.custom_calls;
  d["parameter_bytes"] = count_number(f.parameter_bytes);
  d["result_bytes"] = count_number(f.result_bytes);
  d["while_loops"] = f.whiles;
  d["while_loops_with_known_trip_count"] = f.known_trip_counts;
  d["unknown_opcodes"] = f.unknown_opcodes;
  d["training"] = f.understood ? Json(f.training) : Json(nullptr);
  d["trainable_variables"] = f.variables;
  d["layers"] = Json::array();
  for (const LayerRow& row : f.layers) d["layers"].push_back({{"name", row.name}, {"instructions", row.instructions}});
  d["parameters"] = f.parameters;
  if (!modules.empty()) d["modules"] = modules;
  if (options.time) d["parse_ms"] = parse_ms;

  Facts facts;
  if (modules.empty()) {
    facts.add("module", f.module);
  } else {
    facts.add("modules", format_count(static_cast<std::int64_t>(modules.size())) + ", the first is " + f.module +
                             "; what follows is their sum");
  }
  facts.add("instructions", format_count(f.instructions) + " in " + count_of(f.computations, "computation"));
  facts.add("entry", count_of(f.entry_instructions, "instruction") + ", " + count_of(f.entry_parameters, "parameter"));
  facts.add("parameters", format_bytes(f.parameter_bytes));
  facts.add("result", format_bytes(f.result_bytes));
  facts.add("compute", format_flops(f.flops) + (f.whiles > 0 ? " (loop bodies once)" : ""));
  if (f.whiles > 0) {
    facts.add("while loops", format_count(f.whiles) + ", trip count known for " + format_count(f.known_trip_counts));
  }
  if (f.custom_calls > 0) facts.add("custom calls", format_count(f.custom_calls) + ", counted as no compute");
  if (f.unknown_opcodes > 0) facts.add("unknown opcodes", format_count(f.unknown_opcodes) + ", kept as they are");
  if (f.understood) {
    facts.add("kind", std::string(f.training ? "training step" : "inference") +
                          (f.variables > 0 ? ", " + count_of(f.variables, "trainable variable") : "") +
                          (f.forward > 0 ? ", " + count_of(f.forward, "forward instruction") : ""));
  } else {
    facts.add("kind", "not understood: " + f.why_not);
  }
  if (options.time) facts.add("parsed in", format_ms(parse_ms));

  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [name, count] : f.opcodes) sorted.emplace_back(-count, name);
  std::sort(sorted.begin(), sorted.end());
  TextTable opcode_table({{"opcode", Align::kLeft}, {"count"}});
  std::int64_t others = 0;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    if (k < kShownOpcodes || sorted.size() == kShownOpcodes + 1) {
      opcode_table.add_row({shorten(sorted[k].second, 40), format_count(-sorted[k].first)});
    } else {
      others -= sorted[k].first;
    }
  }
  if (others > 0) {
    opcode_table.add_row({std::to_string(sorted.size() - kShownOpcodes) + " others", format_count(others)});
  }
  out.text = title(source, hlo::form_for_people(form)) + facts.render() + "\n" + opcode_table.render("  ");
  if (f.layers.size() > 1) {
    TextTable layer_table({{"layer", Align::kLeft}, {"forward instructions"}});
    for (std::size_t k = 0; k < std::min(f.layers.size(), kShownLayers); ++k) {
      layer_table.add_row({shorten(f.layers[k].name, 60), format_count(f.layers[k].instructions)});
    }
    out.text += "\n" + layer_table.render("  ");
    if (f.layers.size() > kShownLayers) {
      out.text +=
          "  ... and " + std::to_string(f.layers.size() - kShownLayers) + " more layers (--json lists them all)\n";
    }
  }
  return out;
}

Description describe_profile(Description out, std::string bytes, io::ProfileForm form, const std::string& source) {
  const bool hdf5 = form == io::ProfileForm::kHdf5;
  const char* checksum = hdf5 && io::check_hdf5_bytes(bytes, source).verified ? "verified" : "none";
  const pipeline::Profile p = io::read_profile(std::move(bytes), source);
  const auto sum = [](const std::vector<double>& v) {
    double total = 0;
    for (const double x : v) total += x;
    return total;
  };
  const auto variables = std::count_if(p.w_bytes.begin(), p.w_bytes.end(), [](double w) { return w > 0; });
  const double widest = p.a_bytes.empty() ? 0 : *std::max_element(p.a_bytes.begin(), p.a_bytes.end());
  std::vector<LayerRow> layers;
  std::map<std::string, std::size_t> place;
  for (const std::string& name : p.layer) {
    const auto [it, added] = place.emplace(name, layers.size());
    if (added) layers.push_back({name, 0});
    ++layers[it->second].instructions;
  }
  Json& d = out.document;
  d["form"] = form_key(form);
  d["model"] = p.model;
  d["device"] = p.device;
  d["instructions"] = p.size();
  d["instructions_with_variables"] = variables;
  d["micro_batch_size"] = p.micro_batch_size;
  d["forward_fraction"] = p.forward_fraction;
  d["c_ms"] = sum(p.c_ms);
  d["w_bytes"] = count_number(sum(p.w_bytes));
  d["stash_bytes"] = count_number(sum(p.stash_bytes));
  d["max_a_bytes"] = count_number(widest);
  d["model_sha256"] = p.source_sha256.empty() ? Json(nullptr) : Json(p.source_sha256);
  if (hdf5) d["checksum"] = checksum;
  d["layers"] = Json::array();
  for (const LayerRow& row : layers) d["layers"].push_back({{"name", row.name}, {"instructions", row.instructions}});

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model);
  facts.add("device", p.device.empty() ? "(not said)" : p.device);
  facts.add("instructions", format_count(p.size()) + ", " + format_count(variables) + " of them first use a variable");
  facts.add("micro-batch", p.micro_batch_size > 0 ? format_number(p.micro_batch_size) + " samples" : "size not said");
  facts.add("compute", format_ms(sum(p.c_ms)) + " per micro-batch, " + format_percent(p.forward_fraction) + " forward");
  facts.add("variables", format_bytes(sum(p.w_bytes)));
  facts.add("stash", format_bytes(sum(p.stash_bytes)) + " per micro-batch");
  facts.add("widest cut", format_bytes(widest) + " one way");
  if (!layers.empty()) facts.add("layers", format_count(static_cast<std::int64_t>(layers.size())));
  if (hdf5) facts.add("checksum", checksum);
  out.text = title(source, std::string("profile (") + io::to_string(form) + ")") + facts.render();
  return out;
}

// `text`: of the file; empty for a preset.
Description describe_cluster(Description out, const machine::Cluster& c, const std::string& source,
                             std::string_view text) {
  Json& d = out.document;
  d["name"] = c.name;
  d["servers"] = c.num_servers();
  d["devices"] = c.num_devices();
  d["intra_latency_us"] = c.intra_latency_us;
  d["inter_latency_us"] = c.inter_latency_us;
  d["groups"] = Json::array();
  double memory_gib = 0;
  TextTable table({{"servers"},
                   {"devices each"},
                   {"device", Align::kLeft},
                   {"memory"},
                   {"speed"},
                   {"within GB/s"},
                   {"between GB/s"}});
  for (const machine::ServerGroup& g : c.servers) {
    const auto type = c.devices.find(g.device);
    const double gib = type == c.devices.end() ? 0 : type->second.memory_gib;
    const double speed = type == c.devices.end() ? 1 : type->second.relative_speed;
    memory_gib += gib * g.count * g.devices;
    d["groups"].push_back({{"count", g.count},
                           {"devices", g.devices},
                           {"device", g.device},
                           {"memory_gib", gib},
                           {"relative_speed", speed},
                           {"intra_gbytes_per_s", g.intra_gbytes_per_s},
                           {"inter_gbytes_per_s", g.inter_gbytes_per_s}});
    table.add_row({std::to_string(g.count), std::to_string(g.devices), g.device, format_number(gib) + " GiB",
                   format_number(speed), format_number(g.intra_gbytes_per_s), format_number(g.inter_gbytes_per_s)});
  }
  d["memory_gib"] = memory_gib;
  out.text = title(source, "cluster " + c.name + ": " + count_of(c.num_devices(), "device") + " in " +
                               count_of(c.num_servers(), "server") + ", " + format_number(memory_gib) + " GiB in all") +
             table.render("  ") + describe_links(c, source, text, &d);
  return out;
}

Description describe_device(Description out, const machine::DeviceModel& device, const std::string& source) {
  Json& d = out.document;
  d["name"] = device.name;
  d["peak_tflops"] = device.peak_tflops;
  d["memory_gbytes_per_s"] = device.memory_gbytes_per_s;
  d["memory_gib"] = device.memory_gib;
  Facts facts;
  for (const auto& [type, tflops] : device.peak_tflops) facts.add(type, format_number(tflops) + " TFLOP/s");
  facts.add("memory",
            format_number(device.memory_gib) + " GiB at " + format_number(device.memory_gbytes_per_s) + " GB/s");
  d["constants"] = Json::array();
  for (const machine::DeviceConstant& constant : machine::device_constants(device)) {
    facts.add(constant.name, constant.value + (constant.source.empty() ? ", assumed" : ", from " + constant.source));
    d["constants"].push_back({{"name", constant.name},
                              {"value", constant.value},
                              {"source", constant.source.empty() ? Json(nullptr) : Json(constant.source)}});
  }
  out.text = title(source, "device " + device.name) + facts.render();
  return out;
}

Description describe_policy(Description out, const std::string& bytes, const std::string& source) {
  const models::Policy policy = models::Policy::parse(bytes, source);
  const models::Architecture& a = policy.architecture();
  const bool flat = a.family == models::Family::kFlat;
  const char* const heads[] = {"plain", "residual", "categorical", "residual-categorical", "bounded"};
  Json& d = out.document;
  d["family"] = flat ? "flat" : "after-state";
  d["features"] = a.features;
  d["feature_version"] = a.feature_version;
  d["hidden"] = a.hidden;
  d["head"] = heads[static_cast<std::size_t>(a.head)];
  d["atoms"] = a.atoms;
  const bool partition = !flat && a.feature_version == models::PartitionEnv::kFeatureVersion;
  if (partition) {
    d["objective"] = a.objective == 0 ? "count" : "time";
  } else {
    d["objective"] = a.objective == 0 ? "value" : "simulated";
  }
  d["weights"] = policy.weights().size();
  d["provenance"] = Json::parse(policy.provenance(), nullptr, false);
  if (d["provenance"].is_discarded()) d["provenance"] = nullptr;
  std::string layers = std::to_string(a.features);
  for (const int width : a.hidden) layers += "-" + std::to_string(width);
  layers += "-" + std::to_string(a.actions * a.atoms);
  Facts facts;
  facts.add("network", layers + ", " + std::to_string(policy.weights().size()) + " weights, head " +
                           heads[static_cast<std::size_t>(a.head)]);
  facts.add("inputs", flat ? "the paper's flat state" : "features of version " + std::to_string(a.feature_version));
  // One for partitionings serves both objectives.
  if (!partition) facts.add("objective", d["objective"].get<std::string>());
  if (d["provenance"].is_object()) {
    for (const auto& [key, value] : d["provenance"].items()) {
      facts.add(key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  out.text = title(source, flat        ? "policy of the paper's flat network"
                           : partition ? "policy for partitionings"
                                       : "policy") +
             facts.render();
  return out;
}

Description describe_plan(Description out, const std::string& text, const std::string& source) {
  const pipeline::PlanDocument p = pipeline::parse_plan(text, source);
  Json& d = out.document;
  d["plan_kind"] = "pipeline";
  d["model"] = p.model;
  d["cluster"] = p.cluster;
  d["planner"] = p.planner;
  d["schedule"] = pipeline::to_string(p.plan.schedule);
  d["micro_batches"] = p.micro_batches;
  d["instructions"] = p.num_instructions;
  d["devices"] = p.num_devices;
  d["stages"] = p.plan.num_stages();
  d["cuts"] = p.plan.cuts;
  d["device_cuts"] = p.plan.device_cuts;
  d["step_ms"] = p.step_ms;
  d["simulated_step_ms"] = p.simulated_step_ms;
  d["lower_bound_ms"] = p.lower_bound_ms > 0 ? Json(p.lower_bound_ms) : Json(nullptr);
  d["gap"] = p.lower_bound_ms > 0 ? Json(p.gap) : Json(nullptr);

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model + ", " + count_of(p.num_instructions, "instruction"));
  facts.add("cluster", p.cluster + ", " + count_of(p.num_devices, "device"));
  facts.add("schedule",
            std::string(pipeline::to_string(p.plan.schedule)) + ", " + count_of(p.micro_batches, "micro-batch"));
  facts.add("planner", p.planner);
  facts.add("step", format_ms(p.step_ms) + ", simulated " + format_ms(p.simulated_step_ms));
  if (p.lower_bound_ms > 0) {
    facts.add("lower bound", format_ms(p.lower_bound_ms) + ", gap " + format_percent(p.gap));
  }
  TextTable table({{"stage"},
                   {"first layer", Align::kLeft},
                   {"last layer", Align::kLeft},
                   {"instructions"},
                   {"devices"},
                   {"compute"},
                   {"transfer"},
                   {"all-reduce"},
                   {"memory"}});
  int number = 0;
  for (const pipeline::PlanStage& s : p.stages) {
    table.add_row({std::to_string(++number), shorten(s.first_layer, 28), shorten(s.last_layer, 28),
                   std::to_string(s.first_instruction) + "-" + std::to_string(s.last_instruction),
                   std::to_string(s.first_device) + "-" + std::to_string(s.first_device + s.devices - 1),
                   format_ms(s.compute_ms), format_ms(s.transfer_ms), format_ms(s.allreduce_ms),
                   format_bytes(s.memory_bytes)});
  }
  out.text = title(source, "pipeline plan with " + count_of(p.plan.num_stages(), "stage")) + facts.render() + "\n" +
             table.render("  ");
  return out;
}

// Plans of the kinds operator and data.
Description describe_partition_plan(Description out, const std::string& text, const std::string& source) {
  const partition::PartitionPlan p = partition::parse_partition_plan(text, source);
  Json partition = Json::object();
  for (const partition::PlanTensor& tensor : partition::decided_tensors(p)) partition[tensor.name] = tensor.dim;
  Json& d = out.document;
  d["plan_kind"] = p.kind;
  d["model"] = p.model;
  d["cluster"] = p.cluster;
  d["planner"] = p.planner;
  d["objective"] = p.objective;
  d["shards"] = p.shards;
  d["partition"] = partition;
  d["decided"] = p.decided.size();
  d["partitioned"] = p.partitioned;
  d["all_reduces"] = p.all_reduces;
  d["partial_sums"] = p.partial_sums;
  d["all_gathers"] = p.all_gathers;
  d["all_reduce_bytes"] = count_number(p.all_reduce_bytes);
  d["all_gather_bytes"] = count_number(p.all_gather_bytes);
  d["step_ms"] = p.step_ms;
  d["replicated_step_ms"] = p.replicated_step_ms;
  d["memory_bytes"] = count_number(p.memory_bytes);
  d["value"] = p.value;
  d["bound"] = std::isfinite(p.bound) ? Json(p.bound) : Json(nullptr);
  d["proven"] = p.proven;

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model);
  if (!p.cluster.empty()) facts.add("cluster", p.cluster);
  facts.add("shards", format_count(p.shards));
  if (!p.planner.empty()) facts.add("planner", p.planner + (p.objective.empty() ? "" : ", objective " + p.objective));
  facts.add("split",
            format_count(p.partitioned) + " of " +
                count_of(static_cast<std::int64_t>(p.decided.size()), p.kind == "data" ? "data input" : "variable"));
  if (p.step_ms > 0) {
    facts.add("step",
              format_ms(p.step_ms) +
                  (p.replicated_step_ms > 0 ? ", " + format_ms(p.replicated_step_ms) + " with nothing split" : ""));
  }
  if (p.memory_bytes > 0) facts.add("memory", format_bytes(p.memory_bytes) + " per device");
  if (p.all_reduces > 0) {
    facts.add("all-reduces", format_count(p.all_reduces) + " of " + count_of(p.partial_sums, "partial sum") + ", " +
                                 format_bytes(p.all_reduce_bytes) + " per step");
  }
  if (p.all_gathers > 0) {
    facts.add("all-gathers", format_count(p.all_gathers) + ", " + format_bytes(p.all_gather_bytes) + " per step");
  }
  TextTable table({{"tensor", Align::kLeft}, {"shape", Align::kLeft}, {"split along"}});
  std::size_t shown = 0, more = 0;
  for (const partition::PlanTensor& tensor : partition::decided_tensors(p)) {
    if (tensor.dim < 0) continue;
    if (++shown > kShownLayers) {
      ++more;
      continue;
    }
    table.add_row({shorten(tensor.name, 80), tensor.shape, std::to_string(tensor.dim)});
  }
  out.text = title(source, p.kind + " plan for " + count_of(p.shards, "shard")) + facts.render();
  if (shown > 0) out.text += "\n" + table.render("  ");
  if (more > 0) out.text += "  ... and " + std::to_string(more) + " more (--json lists them all)\n";
  return out;
}

struct TopLevel {
  std::string schema, kind;
  bool servers = false, functions_or_module = false;
};

// The keys of a JSON object that tell what it is. Throws on malformed JSON.
TopLevel top_level_of(std::string_view text, const std::string& source) {
  TopLevel top;
  std::deque<std::string> arena;
  hlo::JsonCursor json(text, source, &arena);
  std::string_view key;
  for (json.enter_object(); json.next_key(&key);) {
    if (key == "schema" && json.peek() == hlo::JsonCursor::Kind::kString) {
      top.schema = std::string(json.string());
      continue;
    }
    if (key == "kind" && json.peek() == hlo::JsonCursor::Kind::kString) {
      top.kind = std::string(json.string());
      continue;
    }
    if (key == "servers") top.servers = true;
    if (key == "Functions" || key == "hloModule" || key == "hlo_module" || key == "computations") {
      top.functions_or_module = true;
      return top;  // large: the reader that it goes to checks the rest
    }
    json.skip();
  }
  return top;
}

bool starts_with(const std::string& s, const char* prefix) {
  return s.rfind(prefix, 0) == 0;
}

}  // namespace

Description describe_bytes(std::string bytes, const std::string& source, const DescribeOptions& options) {
  Description out;
  Json base = base_document("hlo", source, bytes);
  const bool packed = is_gzip(bytes);
  if (packed) base["sha256"] = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  // Called once it is known what the bytes are: a gigabyte of garbage is refused without being hashed.
  const auto begin = [&](const char* kind) {
    if (!packed) base["sha256"] = sha256_hex(bytes);
    out.document = std::move(base);
    out.document["kind"] = kind;
  };
  if (starts_with(bytes, "automap.policy/")) {
    begin("policy");
    return describe_policy(std::move(out), bytes, source);
  }
  if (const auto form = io::detect_profile(bytes)) {
    begin("profile");
    return describe_profile(std::move(out), std::move(bytes), *form, source);
  }
  std::size_t first = bytes.rfind("\xef\xbb\xbf", 0) == 0 ? 3 : 0;
  first = bytes.find_first_not_of(" \t\r\n", first);
  if (first != std::string::npos && bytes[first] == '{') {
    const TopLevel top = top_level_of(bytes, source);
    if (starts_with(top.schema, "automap.plan/")) {
      begin("plan");
      if (top.kind == "operator" || top.kind == "data") {
        return describe_partition_plan(std::move(out), bytes, source);
      }
      return describe_plan(std::move(out), bytes, source);
    }
    if (starts_with(top.schema, "automap.device/")) {
      begin("device");
      return describe_device(std::move(out), machine::parse_device(bytes, source), source);
    }
    if (starts_with(top.schema, "automap.cluster/") || (top.servers && !top.functions_or_module)) {
      begin("cluster");
      return describe_cluster(std::move(out), machine::parse_cluster(bytes, source), source, bytes);
    }
    if (!top.schema.empty() && !top.functions_or_module) {
      throw Error(ErrorKind::kData,
                  source + ": found schema \"" + excerpt(top.schema, 60) + "\", which automap-inspect does not know",
                  "known are automap.plan/1, automap.cluster/1 and automap.device/1");
    }
  }
  const hlo::HloForm form = hlo::detect_hlo_form(bytes, source);
  begin("hlo");
  return describe_hlo(std::move(out), form, std::move(bytes), source, options);
}

Description describe(const std::string& path, const DescribeOptions& options) {
  struct stat info = {};
  if (path != "-" && ::stat(path.c_str(), &info) != 0) {
    const std::vector<std::string> presets = machine::cluster_preset_names();
    if (std::find(presets.begin(), presets.end(), path) != presets.end()) {
      Description out;
      const machine::Cluster cluster = machine::load_cluster(path);
      out.document = base_document("cluster", path, machine::to_json_text(cluster));
      out.document["file_bytes"] = nullptr;
      return describe_cluster(std::move(out), cluster, path, "");
    }
  }
  return describe_bytes(read_file(path), input_name(path), options);
}

}  // namespace automap::inspect
