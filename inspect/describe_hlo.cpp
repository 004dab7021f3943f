#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/fitted_table.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/layers.h"
#include "common/graph/shard_map_step.h"
#include "common/graph/trip_count.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "inspect/facts.h"
#include "inspect/kinds.h"

namespace automap::inspect {
namespace {
using Align = FittedTable::Align;

constexpr std::size_t kShownOpcodes = 12;

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

// Facts about one module; about several modules, the sums.
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
  Json faults = Json::array();  // what XLA's verifier refuses
};

std::string first_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

HloFacts hlo_facts(graph::Graph g) {
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
      if (g.faults().empty() && graph::trip_count(g, id)) ++f.known_trip_counts;
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
  for (const Error& fault : g.faults()) f.faults.push_back(first_line(fault.what()));
  if (!g.faults().empty()) {
    f.why_not = "its parts do not fit each other";
    return f;
  }
  // The rest requires understanding the module; a module that cannot be understood is still described.
  try {
    graph::take_one_device(&g);
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
  for (const Json& fault : f.faults) sum->faults.push_back(fault);
}

// One of several modules in a text, which starts at `line`. Errors name the line in the whole text.
graph::Graph read_piece(hlo::HloForm form, std::string_view piece, std::int64_t line, const std::string& source) {
  try {
    return hlo::read_hlo_as(form, std::string(piece), source, graph::Faults::kRecord);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInternal) throw;
  }
  return hlo::read_hlo_as(form, std::string(static_cast<std::size_t>(line - 1), '\n') + std::string(piece), source,
                          graph::Faults::kRecord);
}

// Everything that was read, and how long that took.
struct ReadModules {
  HloFacts facts;
  Json each = Json::array();  // where there are several modules, one object for each of them
  double parse_ms = 0;
};

template <typename Read>
graph::Graph timed(const Read& read, double* total_ms) {
  const auto start = std::chrono::steady_clock::now();
  graph::Graph g = read();
  *total_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return g;
}

// The modules of a text that holds several; else at most one piece.
std::vector<std::string_view> pieces_of(hlo::HloForm form, const std::string& bytes, const std::string& source) {
  std::vector<std::string_view> pieces;
  if (form == hlo::HloForm::kText || form == hlo::HloForm::kProtoText) pieces = hlo::split_modules(bytes);
  if (pieces.size() > 1) {
    // "// -----" may as well be a comment in a single module: then the text as a whole is readable.
    try {
      hlo::read_hlo_as(form, bytes, source, graph::Faults::kRecord);
      pieces.clear();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kInternal) throw;
    }
  }
  return pieces;
}

ReadModules read_several(hlo::HloForm form, const std::string& bytes, const std::vector<std::string_view>& pieces,
                         const std::string& source) {
  ReadModules out;
  HloFacts& f = out.facts;
  std::int64_t line = 1;
  const char* counted = bytes.data();
  for (std::string_view piece : pieces) {
    // A piece starts at the line that parts it from the one before; in protobufs that line is no comment.
    if (piece.substr(0, 8) == "// -----") piece.remove_prefix(std::min(piece.find('\n'), piece.size()));
    piece.remove_prefix(std::min(piece.find_first_not_of("\r\n"), piece.size()));
    line += std::count(counted, piece.data(), '\n');
    counted = piece.data();
    const HloFacts one = hlo_facts(timed([&] { return read_piece(form, piece, line, source); }, &out.parse_ms));
    out.each.push_back({{"module", one.module},
                        {"line", line},
                        {"instructions", one.instructions},
                        {"computations", one.computations},
                        {"entry_instructions", one.entry_instructions},
                        {"entry_parameters", one.entry_parameters},
                        {"flops", count_number(one.flops)},
                        {"training", one.understood ? Json(one.training) : Json()}});
    if (out.each.size() == 1) f.module = one.module;
    add_to(&f, one);
  }
  f.understood = f.why_not.empty();
  return out;
}

ReadModules read_modules(hlo::HloForm form, std::string bytes, const std::string& source) {
  const std::vector<std::string_view> pieces = pieces_of(form, bytes, source);
  if (pieces.size() > 1) return read_several(form, bytes, pieces, source);
  ReadModules out;
  out.facts = hlo_facts(
      timed([&] { return hlo::read_hlo_as(form, std::move(bytes), source, graph::Faults::kRecord); }, &out.parse_ms));
  return out;
}

void fill_document(Json& d, hlo::HloForm form, const ReadModules& modules, const DescribeOptions& options) {
  const HloFacts& f = modules.facts;
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
  d["training"] = f.understood ? Json(f.training) : Json();
  d["trainable_variables"] = f.variables;
  d["layers"] = Json::array();
  for (const LayerRow& row : f.layers) d["layers"].push_back({{"name", row.name}, {"instructions", row.instructions}});
  d["parameters"] = f.parameters;
  if (!f.faults.empty()) d["faults"] = f.faults;
  if (!modules.each.empty()) d["modules"] = modules.each;
  if (options.time) d["parse_ms"] = modules.parse_ms;
}

Facts facts_for_people(const ReadModules& modules, const DescribeOptions& options) {
  const HloFacts& f = modules.facts;
  Facts facts;
  if (modules.each.empty()) {
    facts.add("module", f.module);
  } else {
    facts.add("modules", format_count(static_cast<std::int64_t>(modules.each.size())) + ", the first is " + f.module +
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
  if (options.time) facts.add("parsed in", format_ms(modules.parse_ms));
  return facts;
}

FittedTable opcode_table(const std::map<std::string, std::int64_t>& opcodes) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [name, count] : opcodes) sorted.emplace_back(-count, name);
  std::sort(sorted.begin(), sorted.end());
  FittedTable table({{"opcode", Align::kLeft}, {"count"}});
  std::int64_t others = 0;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    if (k < kShownOpcodes || sorted.size() == kShownOpcodes + 1) {
      table.add_row({shorten(sorted[k].second, 40), format_count(-sorted[k].first)});
    } else {
      others -= sorted[k].first;
    }
  }
  if (others > 0) {
    table.add_row({std::to_string(sorted.size() - kShownOpcodes) + " others", format_count(others)});
  }
  return table;
}

std::string layers_text(const std::vector<LayerRow>& layers) {
  FittedTable table({{"layer", Align::kLeft, FittedTable::kNeeded, 16}, {"forward instructions"}});
  for (std::size_t k = 0; k < std::min(layers.size(), kShownRows); ++k) {
    table.add_row({shorten(layers[k].name, 60), format_count(layers[k].instructions)});
  }
  std::string text = table.render("  ");
  if (layers.size() > kShownRows) {
    text += "  ... and " + std::to_string(layers.size() - kShownRows) + " more layers (--json lists them all)\n";
  }
  return text;
}

}  // namespace

Description describe_hlo(Description out, hlo::HloForm form, std::string bytes, const std::string& source,
                         const DescribeOptions& options) {
  const ReadModules modules = read_modules(form, std::move(bytes), source);
  for (const Json& fault : modules.facts.faults) log_warning(fault.get<std::string>());
  if (!modules.facts.faults.empty()) {
    log_warning(source + ": compilers and planners refuse this module; its instructions are counted all the same");
  }
  fill_document(out.document, form, modules, options);
  out.text = title(source, hlo::form_for_people(form)) + facts_for_people(modules, options).render() + "\n" +
             opcode_table(modules.facts.opcodes).render("  ");
  if (modules.facts.layers.size() > 1) out.text += "\n" + layers_text(modules.facts.layers);
  return out;
}

}  // namespace automap::inspect
