#include "common/hlo/hlo_writer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/graph/scan.h"
#include "common/hlo/added_lines.h"

namespace automap::hlo {

using namespace graph;

namespace {

// Computations with every callee before its callers, otherwise in their own order.
std::vector<ComputationId> callees_first(const Graph& graph) {
  struct Frame {
    ComputationId computation;
    InstructionId instruction;
    std::size_t called;
  };
  std::vector<ComputationId> order;
  std::vector<bool> seen(static_cast<std::size_t>(graph.num_computations()), false);
  std::vector<Frame> stack;
  for (ComputationId start = 0; start < graph.num_computations(); ++start) {
    if (seen[static_cast<std::size_t>(start)]) continue;
    seen[static_cast<std::size_t>(start)] = true;
    stack.push_back({start, graph.computation(start).first, 0});
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const Computation& computation = graph.computation(frame.computation);
      if (frame.instruction == computation.first + computation.count) {
        order.push_back(frame.computation);
        stack.pop_back();
        continue;
      }
      const Span<const ComputationId> called = graph.called(frame.instruction);
      if (frame.called == called.size()) {
        ++frame.instruction;
        frame.called = 0;
        continue;
      }
      const ComputationId callee = called[frame.called++];
      if (seen[static_cast<std::size_t>(callee)]) continue;
      seen[static_cast<std::size_t>(callee)] = true;
      stack.push_back({callee, graph.computation(callee).first, 0});
    }
  }
  return order;
}

class Writer {
 public:
  Writer(const Graph& graph, const WriteOptions& options) : graph_(graph), options_(options), added_(graph, options) {}

  std::string write() {
    out_.reserve(static_cast<std::size_t>(graph_.num_instructions()) * 200);
    header();
    put(added_.computations());
    for (const ComputationId id : callees_first(graph_)) computation(id);
    return std::move(out_);
  }

 private:
  void put(std::string_view s) { out_.append(s); }

  void attribute(std::string_view key, std::string_view value) {
    put(", ");
    put(key);
    put("=");
    put(value);
  }

  void filtered(InstructionId id, const Attribute& a) {
    const auto value = options_.attribute ? options_.attribute(id, a) : std::nullopt;
    if (!value) {
      attribute(a.key, a.value);
    } else if (!value->empty()) {
      attribute(a.key, *value);
    }
  }

  void header() {
    put("HloModule ");
    put(graph_.name().empty() ? std::string_view("module") : graph_.name());
    bool partitions = options_.num_partitions == 0;
    for (const Attribute& a : graph_.header()) {
      if (options_.num_partitions != 0 && a.key == "num_partitions") {
        partitions = true;
        attribute(a.key, std::to_string(options_.num_partitions));
      } else {
        filtered(kNone, a);
      }
    }
    if (!partitions) attribute("num_partitions", std::to_string(options_.num_partitions));
    put("\n\n");
    if (options_.metadata && !graph_.stack_tables().empty()) {
      put(graph_.stack_tables());
      put("\n\n");
    }
  }

  void computation(ComputationId id) {
    const Computation& computation = graph_.computation(id);
    if (id == graph_.entry_id()) put("ENTRY ");
    put("%");
    put(computation.name);
    put(" (");
    for (std::size_t i = 0; i < computation.parameters.size(); ++i) {
      if (i != 0) put(", ");
      put(graph_.instruction(computation.parameters[i]).name);
      put(": ");
      put(graph_.shape_of(computation.parameters[i]).text);
    }
    put(") -> ");
    put(graph_.shape_of(computation.root).text);
    put(" {\n");
    for (InstructionId i = computation.first; i < computation.first + computation.count; ++i) {
      std::vector<std::string> lines;
      renamed_ = added_.before(i, &lines);
      for (const std::string& line : lines) {
        put("  ");
        put(line);
        put("\n");
      }
      put(i == computation.root ? "  ROOT %" : "  %");
      instruction(i);
      put("\n");
      for (const std::string& line : added_.behind(i)) {
        put("  ");
        put(line);
        put("\n");
      }
    }
    put("}");
    if (!computation.execution_thread.empty()) {
      put(", execution_thread=\"");
      put(computation.execution_thread);
      put("\"");
    }
    put("\n\n");
  }

  // Writes the text between the parentheses.
  void slot(InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    if (instruction.opcode == Opcode::kParameter) {
      put(std::to_string(instruction.number));
    } else if (!instruction.payload.empty()) {
      put(instruction.payload);
    } else {
      const Span<const InstructionId> operands = graph_.operands(id);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const InstructionId operand = operands[i];
        if (i != 0) put(", ");
        const auto renamed = renamed_.find(i);
        if (options_.operand_shapes && (renamed == renamed_.end() || !renamed->second.other_shape)) {
          put(graph_.shape_of(operand).text);
          put(" ");
        }
        put("%");
        put(renamed != renamed_.end() ? renamed->second.name : graph_.instruction(operand).name);
      }
    }
  }

  void instruction(InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    put(instruction.name);
    put(" = ");
    put(graph_.shape_with_layout(id));
    put(" ");
    const auto edit = options_.opcode ? options_.opcode(id) : std::nullopt;
    put(edit ? std::string_view(edit->opcode) : instruction.opcode_name);
    put("(");
    if (!edit || edit->keep_operands) slot(id);
    put(")");
    if (edit) {
      const auto metadata = options_.metadata ? graph_.attribute(id, "metadata") : std::nullopt;
      if (metadata) attribute("metadata", *metadata);
      return;
    }
    std::optional<std::string> sharding;
    if (options_.sharding) sharding = options_.sharding(id);
    bool printed = false;
    for (const Attribute& a : graph_.attributes(id)) {
      if (!options_.metadata && a.key == "metadata") continue;
      if (sharding && a.key == "sharding") {
        if (!printed && !sharding->empty()) attribute("sharding", *sharding);
        printed = true;
        continue;
      }
      filtered(id, a);
    }
    if (sharding && !printed && !sharding->empty()) attribute("sharding", *sharding);
  }

  const Graph& graph_;
  const WriteOptions& options_;
  AddedLines added_;
  std::map<std::size_t, AddedLines::Renamed> renamed_;  // operands of the instruction that is being written
  std::string out_;
};

// Replaces pieces of the source text, in order.
class Editor {
 public:
  Editor(const Graph& graph, const WriteOptions& options)
      : graph_(graph),
        options_(options),
        added_(graph, options),
        source_(graph.source_text()),
        end_(source_.data() + source_.size()) {}

  // Is it a text that XLA reads, and is everything that may change in it?
  bool possible() const {
    if (source_.empty() || !holds(graph_.name()) || !holds(graph_.entry().name)) return false;
    const std::string_view before_name(source_.data(), offset(graph_.name()));
    const std::size_t header = before_name.rfind("HloModule");
    if (header == std::string_view::npos) return false;
    const char* entry = graph_.entry().name.data();
    while (entry > source_.data() && (entry[-1] == '%' || scan::is(scan::kSpace, entry[-1]))) --entry;
    if (entry - source_.data() < 5 || std::string_view(entry - 5, 5) != "ENTRY") return false;
    const char* last = source_.data();
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      const Instruction& instruction = graph_.instruction(id);
      if (!holds(instruction.name) || !holds(instruction.opcode_name)) return false;
      if (!le_(last, instruction.name.data()) || !le_(instruction.name.data(), instruction.opcode_name.data())) {
        return false;
      }
      last = instruction.opcode_name.data() + instruction.opcode_name.size();
      for (const Attribute& a : graph_.attributes(id)) {
        if (!holds(a.key) || !holds(a.value) || !le_(last, a.key.data())) return false;
        last = a.value.data() + a.value.size();
      }
      for (const ComputationId called : graph_.called(id)) {
        if (called >= instruction.computation) return false;
      }
    }
    for (const Attribute& a : graph_.header()) {
      if (!holds(a.key) || !holds(a.value)) return false;
    }
    return true;
  }

  std::string edit() {
    out_.reserve(source_.size() + source_.size() / 8);
    next_ = source_.data();
    const char* at = graph_.name().data() + graph_.name().size();
    bool partitions = options_.num_partitions == 0;
    for (const Attribute& a : graph_.header()) {
      if (options_.num_partitions != 0 && a.key == "num_partitions") {
        partitions = true;
        replace(a.value, std::to_string(options_.num_partitions));
      } else {
        filter(kNone, a, at);
      }
      at = a.value.data() + a.value.size();
    }
    if (!partitions) insert(at, ", num_partitions=" + std::to_string(options_.num_partitions));
    const std::string computations = added_.computations();
    if (!computations.empty()) insert(computation_begin(graph_.computation(0)), computations);
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) instruction(id);
    out_.append(next_, static_cast<std::size_t>(end_ - next_));
    return std::move(out_);
  }

 private:
  bool holds(std::string_view piece) const {
    return !piece.empty() && le_(source_.data(), piece.data()) && le_(piece.data() + piece.size(), end_);
  }
  std::size_t offset(std::string_view piece) const { return static_cast<std::size_t>(piece.data() - source_.data()); }

  void copy_to(const char* at) {
    out_.append(next_, static_cast<std::size_t>(at - next_));
    next_ = at;
  }
  void insert(const char* at, std::string_view text) {
    copy_to(at);
    out_.append(text);
  }
  void replace(std::string_view piece, std::string_view text) {
    insert(piece.data(), text);
    next_ = piece.data() + piece.size();
  }
  // `at` is where the piece before the attribute ends: its comma goes with it.
  void drop(const Attribute& a, const char* at) {
    copy_to(at);
    next_ = a.value.data() + a.value.size();
  }
  void filter(InstructionId id, const Attribute& a, const char* at) {
    const auto value = options_.attribute ? options_.attribute(id, a) : std::nullopt;
    if (!value) return;
    if (value->empty()) {
      drop(a, at);
    } else {
      replace(a.value, *value);
    }
  }

  // Where "ENTRY %name (...) -> ... {" begins.
  const char* computation_begin(const Computation& computation) const {
    const char* begin = computation.name.data();
    while (begin > next_ && begin[-1] != '\n') --begin;
    return begin;
  }

  // Where "ROOT %name = ..." begins.
  const char* statement_begin(const Instruction& instruction) const {
    const auto back_over_space = [&](const char* at) {
      while (at > next_ && scan::is(scan::kSpace, at[-1]) && at[-1] != '\n') --at;
      return at;
    };
    const char* begin = instruction.name.data();
    if (begin > next_ && begin[-1] == '%') --begin;
    const char* const before = back_over_space(begin);
    if (before - next_ >= 4 && std::string_view(before - 4, 4) == "ROOT") begin = before - 4;
    return begin;
  }

  // Other names for the operands between `begin` and `end`, each "f32[2,3]{1,0} %name", or with less before the name.
  // The text in front of a name is dropped when the operand has another shape.
  void rename(const std::map<std::size_t, AddedLines::Renamed>& names, const char* begin, const char* end) {
    const auto in_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
             c == '-';
    };
    std::size_t number = 0;
    int depth = 0;
    const char* piece = begin;
    for (const char* at = begin; at <= end; ++at) {
      if (at != end && (*at == '{' || *at == '[' || *at == '(')) ++depth;
      if (at != end && (*at == '}' || *at == ']' || *at == ')')) --depth;
      if (at != end && (*at != ',' || depth != 0)) continue;
      const char* const from = piece;
      piece = at + 1;
      const auto found = names.find(number++);
      if (found == names.end()) continue;
      const char* last = at;
      while (last > begin && !in_name(last[-1])) --last;
      const char* first = last;
      while (first > begin && in_name(first[-1])) --first;
      if (found->second.other_shape) {
        replace({from, static_cast<std::size_t>(last - from)}, (from == begin ? "%" : " %") + found->second.name);
      } else {
        replace({first, static_cast<std::size_t>(last - first)}, found->second.name);
      }
    }
  }

  void instruction(InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    const auto opcode = options_.opcode ? options_.opcode(id) : std::nullopt;
    std::optional<std::string> sharding;
    if (!opcode && options_.sharding) sharding = options_.sharding(id);
    const bool add = sharding && !sharding->empty() && !graph_.attribute(id, "sharding");
    std::vector<std::string> lines;
    const std::map<std::size_t, AddedLines::Renamed> renamed = added_.before(id, &lines);
    const std::vector<std::string> behind = added_.behind(id);
    if (!opcode && !add && renamed.empty() && behind.empty() && graph_.attributes(id).empty()) return;
    for (const std::string& line : lines) insert(statement_begin(instruction), line + "\n  ");
    // Behind the operands.
    const char* at = instruction.opcode_name.data() + instruction.opcode_name.size();
    while (at < end_ && *at != '(') ++at;
    const char* const open = at;
    at = scan::skip_balanced<'(', ')'>(at, end_);
    AM_CHECK(at != nullptr);
    if (opcode) replace(instruction.opcode_name, opcode->opcode);
    if (opcode && !opcode->keep_operands) {
      replace({open, static_cast<std::size_t>(at - open)}, "()");
    } else if (!renamed.empty()) {
      rename(renamed, open + 1, at - 1);
    }
    bool added = !add;
    for (const Attribute& a : graph_.attributes(id)) {
      if (opcode) {
        if (a.key != "metadata") drop(a, at);
      } else if (sharding && a.key == "sharding") {
        if (sharding->empty()) {
          drop(a, at);
        } else {
          replace(a.value, *sharding);
        }
      } else {
        if (!added && (a.key == "metadata" || a.key == "frontend_attributes")) {
          insert(at, ", sharding=" + *sharding);
          added = true;
        }
        filter(id, a, at);
      }
      at = a.value.data() + a.value.size();
    }
    if (!added) insert(at, ", sharding=" + *sharding);
    for (const std::string& line : behind) insert(at, "\n  " + line);
  }

  const Graph& graph_;
  const WriteOptions& options_;
  AddedLines added_;
  std::string_view source_;
  const char* end_;
  const char* next_ = nullptr;  // what is copied up to here
  std::less_equal<const char*> le_;
  std::string out_;
};

}  // namespace

std::string write_hlo_text(const Graph& graph, const WriteOptions& options) {
  return Writer(graph, options).write();
}

std::string edit_hlo_text(const Graph& graph, const WriteOptions& options) {
  Editor editor(graph, options);
  return editor.possible() ? editor.edit() : write_hlo_text(graph, options);
}

}  // namespace automap::hlo
