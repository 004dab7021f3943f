#include "common/hlo/proto_graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/graph/graph_builder.h"
#include "common/graph/scan.h"
#include "common/hlo/proto_attributes.h"

namespace automap::hlo::proto {

using namespace graph;

namespace {

std::int64_t low32(std::int64_t id) {
  return static_cast<std::int64_t>(static_cast<std::uint32_t>(id));
}

std::string short_name(std::string_view s) {
  constexpr int kMost = 80;
  return "'" + excerpt(s, kMost) + "'";
}

// Ids of one computation's instructions (or of the module's computations) -> their position in the message.
class IdTable {
 public:
  // The position of another holder of this id, or -1.
  std::int64_t insert(std::int64_t id, std::int32_t position) {
    const auto [it, added] = full_.emplace(id, position);
    if (!added) return it->second;
    const auto [low, first] = low_.emplace(low32(id), position);
    if (!first) low->second = kAmbiguous;
    return -1;
  }
  // -1: no such id.
  std::int32_t find(std::int64_t id) const {
    const auto exact = full_.find(id);
    if (exact != full_.end()) return exact->second;
    const auto low = low_.find(low32(id));
    return low == low_.end() || low->second == kAmbiguous ? -1 : low->second;
  }

 private:
  static constexpr std::int32_t kAmbiguous = -2;
  std::unordered_map<std::int64_t, std::int32_t> full_, low_;
};

class ProtoConverter {
 public:
  ProtoConverter(HloModuleProto module, const std::string& source, const std::vector<std::string>& unknown_types,
                 graph::Faults faults)
      : module_(std::move(module)), types_{&unknown_types}, builder_(source, faults) {}

  Graph run() {
    if (module_.computations.empty()) fail("the module has no computations");
    builder_.set_module_name(builder_.keep(identifier(module_.name.empty() ? "module" : module_.name)));
    AttributeList header;
    header_attributes(module_, types_, &header);
    const std::string_view text = builder_.keep(header.buffer);
    for (const AttributeText& a : header.items) {
      builder_.add_header_attribute(a.key, text.substr(a.begin, a.end - a.begin));
    }
    if (module_.stack_frame_index != nullptr) {
      builder_.set_stack_tables(builder_.keep(stack_tables(*module_.stack_frame_index)));
    }
    name_computations();
    const std::size_t entry = entry_position();
    for (std::size_t c = 0; c < module_.computations.size(); ++c) {
      builder_.begin_computation(computation_names_[c], c == entry);
      computation(&module_.computations[c]);
      std::vector<HloInstructionProto>().swap(module_.computations[c].instructions);
    }
    return builder_.finish();
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& hint = "") const {
    builder_.fail({}, message, hint);
  }

  // A name that HLO text can hold: letters, digits and "_.-", not starting with a digit, '.' or '-'.
  static std::string identifier(std::string_view name) {
    std::string out(name);
    for (char& c : out) {
      if (!scan::is(scan::kIdentifier, c)) c = '_';
    }
    if (!out.empty() && (scan::is(scan::kDigit, out[0]) || out[0] == '.' || out[0] == '-')) out.insert(0, "_");
    return out;
  }

  void name_computations() {
    std::unordered_set<std::string> taken;
    for (std::size_t c = 0; c < module_.computations.size(); ++c) {
      const HloComputationProto& computation = module_.computations[c];
      const std::int64_t other = computation_ids_.insert(computation.id, static_cast<std::int32_t>(c));
      if (other >= 0) {
        fail("computations " + short_name(module_.computations[static_cast<std::size_t>(other)].name) + " and " +
                 short_name(computation.name) + " have the same id " + std::to_string(computation.id),
             "give every computation an id of its own");
      }
      std::string name = identifier(computation.name.empty() ? "computation" : computation.name);
      if (!taken.insert(name).second) {
        // The message tells computations apart by id, the graph by name.
        const std::string base = name;
        for (std::size_t n = c;; ++n) {
          name = base + "." + std::to_string(n);
          if (taken.insert(name).second) break;
        }
      }
      computation_names_.push_back(builder_.keep(name));
    }
  }

  std::size_t entry_position() const {
    const std::string_view name = module_.entry_computation_name;
    const std::int32_t by_id = computation_ids_.find(module_.entry_computation_id);
    if (by_id >= 0 && (name.empty() || module_.computations[static_cast<std::size_t>(by_id)].name == name)) {
      if (!name.empty() || module_.entry_computation_id != 0) return static_cast<std::size_t>(by_id);
    }
    if (!name.empty()) {
      for (std::size_t c = module_.computations.size(); c-- > 0;) {
        if (module_.computations[c].name == name) return c;
      }
      fail("the entry computation " + short_name(name) + " is not in the module");
    }
    if (module_.entry_computation_id != 0) {
      fail("the entry computation's id " + std::to_string(module_.entry_computation_id) + " names no computation");
    }
    return module_.computations.size() - 1;  // callees come first
  }

  void computation(HloComputationProto* c) {
    const std::vector<HloInstructionProto>& instructions = c->instructions;
    if (instructions.empty()) fail("the computation has no instructions");
    IdTable ids;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const std::int64_t other = ids.insert(instructions[i].id, static_cast<std::int32_t>(i));
      if (other >= 0) {
        fail("instructions " + short_name(instructions[static_cast<std::size_t>(other)].name) + " and " +
                 short_name(instructions[i].name) + " have the same id " + std::to_string(instructions[i].id),
             "ids must be unique within a computation; a missing id counts as 0");
      }
    }
    // Operands, resolved to positions.
    std::vector<std::int32_t> first(instructions.size() + 1, 0);
    std::vector<std::int32_t> operands;
    bool in_order = true;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      for (const std::int64_t id : instructions[i].operand_ids) {
        const std::int32_t position = ids.find(id);
        if (position < 0) {
          fail("operand id " + std::to_string(id) + " of " + short_name(instructions[i].name) +
                   " names no instruction of this computation",
               "the module is incomplete or its ids were rewritten in one place only");
        }
        in_order = in_order && position < static_cast<std::int32_t>(i);
        operands.push_back(position);
      }
      first[i + 1] = static_cast<std::int32_t>(operands.size());
    }
    const std::vector<std::int32_t> order =
        in_order ? std::vector<std::int32_t>() : sort(instructions, first, operands);

    const std::int32_t root = ids.find(c->root_id);
    if (root < 0) {
      fail(c->root_id == 0 ? "the computation has no root_id, and no instruction has the id 0"
                           : "root_id " + std::to_string(c->root_id) + " names no instruction of this computation");
    }

    std::vector<InstructionId> added(instructions.size(), kNone);
    std::vector<InstructionId> operand_ids;
    std::vector<Attribute> attributes;
    names_.computation = [this, &instructions](std::int64_t id) -> std::string_view {
      const std::int32_t position = computation_ids_.find(id);
      if (position < 0) {
        fail("called computation id " + std::to_string(id) + " of " + short_name(instructions[at_].name) +
             " names no computation");
      }
      return computation_names_[static_cast<std::size_t>(position)];
    };
    std::string predecessor;
    names_.instruction = [&ids, &instructions, &predecessor](std::int64_t id) -> std::string_view {
      const std::int32_t position = ids.find(id);
      if (position < 0) return {};
      predecessor = identifier(instructions[static_cast<std::size_t>(position)].name);
      return predecessor;
    };
    for (std::size_t k = 0; k < instructions.size(); ++k) {
      const auto i = order.empty() ? k : static_cast<std::size_t>(order[k]);
      operand_ids.clear();
      for (std::int32_t o = first[i]; o < first[i + 1]; ++o) {
        operand_ids.push_back(added[static_cast<std::size_t>(operands[static_cast<std::size_t>(o)])]);
      }
      at_ = i;
      added[i] = instruction(instructions[i], operand_ids, &attributes);
    }
    builder_.end_computation(added[static_cast<std::size_t>(root)], builder_.keep(thread_name(c->execution_thread)));
  }

  // The main thread has no name in text.
  static std::string thread_name(std::string_view thread) {
    return thread == "main" ? std::string() : identifier(thread);
  }

  InstructionId instruction(const HloInstructionProto& p, const std::vector<InstructionId>& operands,
                            std::vector<Attribute>* attributes) {
    if (p.opcode.empty()) fail("instruction " + short_name(p.name) + " has no opcode");
    InstructionDraft draft;
    draft.name = builder_.keep(identifier(p.name));
    draft.opcode_name = builder_.keep(identifier(p.opcode));
    draft.opcode = parse_opcode(draft.opcode_name);
    if (p.shape != nullptr) {
      if (p.shape->element_type == 0) fail("the shape of " + short_name(p.name) + " has no element type");
      text_ = shape_text(*p.shape, types_, false);
      draft.shape = builder_.shape(text_);
      if (p.shape->element_type == kTupleType) {
        text_ = shape_text(*p.shape, types_, true);
        if (text_.find('{') != std::string::npos) draft.layout = builder_.keep(text_);
      } else {
        draft.layout = builder_.keep(layout_text(*p.shape, types_));
      }
    }
    if (draft.opcode == Opcode::kParameter) draft.number = p.parameter_number;
    if (draft.opcode == Opcode::kParameter && p.parameter_number < 0) {
      fail("parameter " + short_name(p.name) + " has the number " + std::to_string(p.parameter_number));
    }
    if (draft.opcode == Opcode::kConstant) {
      text_.clear();
      std::string why;
      static const ShapeProto kNoShape;
      const ShapeProto& shape = p.shape != nullptr ? *p.shape : kNoShape;
      if (p.literal == nullptr) {
        text_ = "{...}";
      } else if (!literal_text(*p.literal, shape, &text_, &why)) {
        fail("constant " + short_name(p.name) + ": " + why);
      }
      draft.payload = builder_.keep(text_);
    }
    bool predicate = false;
    if (!operands.empty()) {
      const Shape& shape = builder_.shape_at(builder_.at(operands[0]).shape);
      predicate = shape.type == ElementType::kPred;
    }
    list_.clear();
    instruction_attributes(p, predicate, names_, types_, &list_);
    const std::string_view text = builder_.keep(list_.buffer);
    attributes->clear();
    for (const AttributeText& a : list_.items) {
      attributes->push_back({a.key, text.substr(a.begin, a.end - a.begin)});
    }
    return builder_.add(draft, operands, *attributes);
  }

  // Positions with operands first, otherwise in the message's order: depth-first over operands on an explicit stack.
  std::vector<std::int32_t> sort(const std::vector<HloInstructionProto>& instructions,
                                 const std::vector<std::int32_t>& first,
                                 const std::vector<std::int32_t>& operands) const {
    enum : char { kNew, kOpen, kDone };
    std::vector<char> state(instructions.size(), kNew);
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    std::vector<std::int32_t> order, stack;
    for (std::size_t start = 0; start < instructions.size(); ++start) {
      if (state[start] == kNew) stack.push_back(static_cast<std::int32_t>(start));
      while (!stack.empty()) {
        const auto i = static_cast<std::size_t>(stack.back());
        state[i] = kOpen;
        if (next[i] == first[i + 1]) {
          state[i] = kDone;
          order.push_back(stack.back());
          stack.pop_back();
          continue;
        }
        const std::int32_t operand = operands[static_cast<std::size_t>(next[i]++)];
        const char s = state[static_cast<std::size_t>(operand)];
        if (s == kOpen) {
          fail("instruction " + short_name(instructions[static_cast<std::size_t>(operand)].name) +
               " depends on itself, through " + short_name(instructions[i].name));
        }
        if (s == kNew) stack.push_back(operand);
      }
    }
    return order;
  }

  HloModuleProto module_;
  TypeNames types_;
  GraphBuilder builder_;
  IdTable computation_ids_;
  std::vector<std::string_view> computation_names_;
  Names names_;
  std::size_t at_ = 0;  // of the instruction being converted
  std::string text_;
  AttributeList list_;
};

}  // namespace

Graph build_graph(HloModuleProto module, const std::string& source, const std::vector<std::string>& unknown_types,
                  graph::Faults faults) {
  return ProtoConverter(std::move(module), source, unknown_types, faults).run();
}

}  // namespace automap::hlo::proto
