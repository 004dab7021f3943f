#include "common/hlo/added_lines.h"

#include <cstdio>
#include <optional>
#include <utility>

namespace automap::hlo {

using namespace graph;

namespace {

// "f32" of "f32[2,3]".
std::string_view element_type_of(const Shape& shape) {
  return std::string_view(shape.text).substr(0, std::string_view(shape.text).find('['));
}

std::string custom_call(const std::string& name, const std::string& shape, const std::string& operand,
                        const char* target, const std::string& sharding) {
  return "%" + name + " = " + shape + " custom-call(%" + operand + "), custom_call_target=\"" + target +
         "\", sharding=" + sharding;
}

}  // namespace

AddedLines::AddedLines(const Graph& graph, const WriteOptions& options) : graph_(graph), options_(options) {}

bool AddedLines::is_summed(InstructionId id) const {
  return options_.summed && options_.summed(id).has_value();
}

std::map<std::size_t, AddedLines::Renamed> AddedLines::before(InstructionId id, std::vector<std::string>* lines) {
  std::map<std::size_t, Renamed> names;
  if (!options_.operand_shardings && !options_.local_operand && !options_.summed) return names;
  const bool edited = options_.opcode && options_.opcode(id);
  const Span<const InstructionId> operands = graph_.operands(id);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::string name(graph_.instruction(operands[i]).name);
    if (is_summed(operands[i]) && !(options_.read_partial && options_.read_partial(id, i))) {
      name = sum_name(operands[i]);
      names[i] = {name, false};
    }
    if (edited) continue;
    std::optional<LocalOperand> local;
    if (options_.local_operand) local = options_.local_operand(id, i);
    std::vector<std::string> shardings;
    if (local) {
      shardings = {local->sharding};
    } else if (options_.operand_shardings) {
      shardings = options_.operand_shardings(id, i);
    }
    if (shardings.empty()) continue;
    const std::string annotated = annotate(operands[i], std::move(name), shardings, lines);
    names[i] = {annotated, false};
    if (!local) continue;
    const std::string part = new_name(graph_.instruction(operands[i]).name, ".part.");
    lines->push_back(custom_call(part, local->shape + std::string(graph_.instruction(operands[i]).layout), annotated,
                                 "SPMDFullToShardShape", "{manual}"));
    names[i] = {part, true};
    if (local->share) names[i].name = share_of(operands[i], part, *local, lines);
  }
  return names;
}

std::string AddedLines::annotate(InstructionId operand, std::string name, const std::vector<std::string>& shardings,
                                 std::vector<std::string>* lines) {
  for (std::size_t i = 0; i < shardings.size(); ++i) {
    const auto step = std::make_pair(name, shardings[i]);
    const bool between = i + 1 < shardings.size();
    if (const auto known = between_.find(step); between && known != between_.end()) {
      name = known->second;
      continue;
    }
    const std::string annotated = new_name(graph_.instruction(operand).name, ".sharded.");
    lines->push_back(custom_call(annotated, graph_.shape_with_layout(operand), name, "Sharding", shardings[i]));
    if (between) between_.emplace(step, annotated);
    name = annotated;
  }
  return name;
}

std::string AddedLines::share_of(InstructionId operand, const std::string& part, const LocalOperand& local,
                                 std::vector<std::string>* lines) {
  const std::string_view base = graph_.instruction(operand).name;
  const std::string shape = local.shape + std::string(graph_.instruction(operand).layout),
                    scalar = std::string(element_type_of(graph_.shape_of(operand))) + "[]";
  const std::string one = new_name(base, ".nth."), all = new_name(base, ".nths."), share = new_name(base, ".share.");
  char value[32];
  std::snprintf(value, sizeof value, "%.17g", 1.0 / options_.num_partitions);
  lines->push_back("%" + one + " = " + scalar + " constant(" + value + "), sharding={manual}");
  lines->push_back("%" + all + " = " + shape + " broadcast(%" + one + "), dimensions={}, sharding={manual}");
  lines->push_back("%" + share + " = " + shape + " multiply(%" + part + ", %" + all + "), sharding={manual}");
  return share;
}

std::vector<std::string> AddedLines::behind(InstructionId id) {
  std::vector<std::string> lines;
  if (!is_summed(id)) return lines;
  const std::string name(graph_.instruction(id).name), reduced = new_name(name, ".reduced.");
  std::string devices;
  for (int d = 0; d < options_.num_partitions; ++d) devices += (d == 0 ? "" : ",") + std::to_string(d);
  lines.push_back("%" + reduced + " = " + graph_.shape_with_layout(id) + " all-reduce(%" + name +
                  "), channel_id=" + std::to_string(++channels_) + ", replica_groups={{" + devices +
                  "}}, use_global_device_ids=true, to_apply=%" + adder(graph_.shape_of(id)) + ", sharding={manual}");
  lines.push_back(
      custom_call(sum_name(id), graph_.shape_with_layout(id), reduced, "SPMDShardToFullShape", *options_.summed(id)));
  return lines;
}

std::string AddedLines::computations() {
  std::string out;
  if (!options_.summed) return out;
  for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
    if (is_summed(id)) adder(graph_.shape_of(id));
  }
  for (const auto& [type, name] : adders_) {
    const std::string scalar = type + "[]";
    out += "%" + name + " (a: " + scalar + ", b: " + scalar + ") -> " + scalar + " {\n  %a = " + scalar +
           " parameter(0)\n  %b = " + scalar + " parameter(1)\n  ROOT %sum = " + scalar + " add(%a, %b)\n}\n\n";
  }
  return out;
}

std::string AddedLines::new_name(std::string_view base, const char* kind) {
  if (names_.empty()) {
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) names_.emplace(graph_.instruction(id).name);
    for (ComputationId id = 0; id < graph_.num_computations(); ++id) names_.emplace(graph_.computation(id).name);
  }
  for (int i = 1;; ++i) {
    std::string name = std::string(base) + kind + std::to_string(i);
    if (names_.insert(name).second) return name;
  }
}

std::string AddedLines::sum_name(InstructionId id) {
  std::string& name = sums_[id];
  if (name.empty()) name = new_name(graph_.instruction(id).name, ".sum.");
  return name;
}

std::string AddedLines::adder(const Shape& shape) {
  std::string& name = adders_[std::string(element_type_of(shape))];
  if (name.empty()) name = new_name("add." + std::string(element_type_of(shape)), ".");
  return name;
}

}  // namespace automap::hlo
