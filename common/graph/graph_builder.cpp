#include "common/graph/graph_builder.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/graph_builder_internal.h"
#include "common/graph/scan.h"

namespace automap::graph {

using namespace internal;

namespace {

constexpr std::size_t kArenaChunk = 64 * 1024;

struct CalledKey {
  std::string_view key;
  int order;                       // among the called computations of one instruction
  Opcode only = Opcode::kUnknown;  // names a computation on this opcode only
};
constexpr CalledKey kCalledKeys[] = {
    {"to_apply", 0},
    {"calls", 0},
    {"condition", 0, Opcode::kWhile},
    {"body", 1, Opcode::kWhile},
    {"branch_computations", 0},
    {"true_computation", 0},
    {"false_computation", 1},
    {"called_computations", 0},
    {"select", 0, Opcode::kSelectAndScatter},
    {"scatter", 1, Opcode::kSelectAndScatter},
};

const CalledKey* called_key(std::string_view key) {
  switch (key.empty() ? '\0' : key[0]) {
    case 't':
    case 'c':
    case 'b':
    case 'f':
    case 's': break;
    default: return nullptr;
  }
  for (const CalledKey& c : kCalledKeys) {
    if (c.key == key) return &c;
  }
  return nullptr;
}

}  // namespace

namespace internal {

std::string quoted(std::string_view s) {
  constexpr int kMost = 60;
  return "'" + excerpt(s, kMost) + "'";
}

std::string short_text(std::string_view s) {
  constexpr std::size_t kMost = 120;
  if (s.size() <= kMost) return std::string(s);
  return std::string(s.substr(0, kMost)) + "...";
}

std::string label_of(const Instruction& instruction) {
  return std::string(instruction.opcode_name) + " " + quoted(instruction.name);
}

std::optional<std::string_view> find_attribute(Span<const Attribute> attributes, std::string_view key) {
  for (const Attribute& a : attributes) {
    if (a.key == key) return a.value;
  }
  return std::nullopt;
}

std::vector<std::int64_t> integers_of(Span<const Attribute> attributes, std::string_view key, bool* ok) {
  std::vector<std::int64_t> values;
  const std::optional<std::string_view> raw = find_attribute(attributes, key);
  if (raw && !parse_integers(*raw, &values)) *ok = false;
  return values;
}

bool parse_integer(std::string_view text, std::int64_t* out) {
  std::vector<std::int64_t> values;
  if (text.empty() || text.front() == '{' || !parse_integers(text, &values) || values.size() != 1) return false;
  *out = values[0];
  return true;
}

}  // namespace internal

bool parse_integers(std::string_view text, std::vector<std::int64_t>* out) {
  const char* p = text.data();
  const char* end = p + text.size();
  const auto space = [&] { p = scan::skip_class(scan::kSpace, p, end); };
  space();
  const bool braces = p < end && *p == '{';
  if (braces) ++p;
  bool need_more = !braces;
  for (;;) {
    space();
    if (p < end && *p == '}' && !need_more) break;
    if (p == end) return false;
    const bool negative = *p == '-';
    if (negative) ++p;
    if (p == end || !scan::is(scan::kDigit, *p)) return false;
    std::int64_t value = 0;
    for (; p < end && scan::is(scan::kDigit, *p); ++p) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{*p - '0'}, &value)) {
        return false;
      }
    }
    out->push_back(negative ? -value : value);
    space();
    need_more = p < end && *p == ',';
    if (need_more) {
      ++p;
      continue;
    }
    break;
  }
  if (braces) {
    if (p == end || *p != '}') return false;
    ++p;
  }
  space();
  return p == end;
}

GraphBuilder::GraphBuilder(std::string source, Faults faults) : on_fault_(faults) {
  graph_.source_name_ = std::move(source);
  shape_slots_.resize(256);
  names_.resize(256);
  computation_names_.resize(64);
}

std::string_view GraphBuilder::adopt(std::string text) {
  AM_CHECK(graph_.source_ == nullptr);
  graph_.source_ = std::make_unique<std::string>(std::move(text));
  // One instruction per line is usual; a text of empty lines must not reserve the earth.
  const std::string& source = *graph_.source_;
  const std::size_t lines = scan::count_byte('\n', source.data(), source.data() + source.size());
  const std::size_t guess = std::min(lines, source.size() / 64) + 8;
  graph_.instructions_.reserve(guess);
  graph_.attributes_.reserve(guess * 2);
  graph_.operands_.reserve(guess * 2);
  return *graph_.source_;
}

std::string_view GraphBuilder::keep(std::string_view s) {
  if (s.empty()) return {};
  std::deque<std::string>& arena = graph_.arena_;
  if (s.size() > kArenaChunk / 4) {
    // Large strings get their own chunk, put first so that the chunk being filled stays last.
    arena.emplace_front(s);
    return arena.front();
  }
  if (arena.empty() || arena.back().capacity() - arena.back().size() < s.size()) {
    arena.emplace_back();
    arena.back().reserve(kArenaChunk);
  }
  std::string& chunk = arena.back();
  const std::size_t begin = chunk.size();
  chunk.append(s);  // never reallocates: the capacity was checked
  return std::string_view(chunk).substr(begin);
}

void GraphBuilder::fail(std::string_view where, const std::string& message, const std::string& hint) const {
  if (!in_computation_ || graph_.in_text(where.data())) graph_.fail(where, message, hint);
  graph_.fail(where, "in computation " + quoted(graph_.computations_.back().name) + ": " + message, hint);
}

void GraphBuilder::warn(std::string_view where, const std::string& message) {
  constexpr std::size_t kMostWarnings = 8;
  std::vector<std::string>& warnings = graph_.warnings_;
  if (warnings.size() < kMostWarnings) {
    warnings.push_back(graph_.place(where) + message);
  } else if (warnings.size() == kMostWarnings) {
    warnings.push_back(graph_.place(where) + "more of the same kind is not listed");
  }
}

// ----------------------------------------------------------------------------------------------------------- names

InstructionId GraphBuilder::find(std::string_view name) const {
  if (!in_computation_) return kNone;
  const std::int32_t first = graph_.computations_.back().first;
  const std::uint64_t hash = scan::hash(name);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = names_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const NameSlot& slot = names_[i];
    if (slot.id < first) return kNone;  // empty, or left over from an earlier computation
    if (slot.tag == tag && graph_.instruction(slot.id).name == name) return slot.id;
  }
}

bool GraphBuilder::insert_name(std::string_view name, InstructionId id) {
  const std::int32_t first = graph_.computations_.back().first;
  if (static_cast<std::size_t>(id - first) * 2 >= names_.size()) grow_names();
  const std::uint64_t hash = scan::hash(name);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = names_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    NameSlot& slot = names_[i];
    if (slot.id < first) {
      slot = {tag, id};
      return true;
    }
    if (slot.tag == tag && graph_.instruction(slot.id).name == name) return false;
  }
}

void GraphBuilder::grow_names() {
  const std::int32_t first = graph_.computations_.back().first;
  std::vector<NameSlot> old(names_.size() * 4);
  old.swap(names_);
  const std::size_t mask = names_.size() - 1;
  for (const NameSlot& slot : old) {
    if (slot.id < first) continue;
    std::size_t i = scan::hash(graph_.instruction(slot.id).name) & mask;
    while (names_[i].id >= first) i = (i + 1) & mask;
    names_[i] = slot;
  }
}

ComputationId GraphBuilder::find_computation(std::string_view name) const {
  const std::uint64_t hash = scan::hash(name);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = computation_names_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const NameSlot& slot = computation_names_[i];
    if (slot.id < 0) return kNone;
    if (slot.tag == tag && graph_.computation(slot.id).name == name) return slot.id;
  }
}

void GraphBuilder::insert_computation_name(std::string_view name, ComputationId id) {
  const auto put = [this](std::uint64_t hash, std::int32_t value) {
    const std::size_t mask = computation_names_.size() - 1;
    std::size_t i = hash & mask;
    while (computation_names_[i].id >= 0) i = (i + 1) & mask;
    computation_names_[i] = {static_cast<std::uint32_t>(hash >> 32), value};
  };
  if (static_cast<std::size_t>(id) * 2 >= computation_names_.size()) {
    std::vector<NameSlot> old(computation_names_.size() * 4);
    old.swap(computation_names_);
    for (const NameSlot& slot : old) {
      if (slot.id >= 0) put(scan::hash(graph_.computation(slot.id).name), slot.id);
    }
  }
  put(scan::hash(name), id);
}

// ---------------------------------------------------------------------------------------------------- computations

void GraphBuilder::begin_computation(std::string_view name, bool is_entry) {
  AM_CHECK(!in_computation_);
  if (name.empty()) fail(name, "a computation has no name");
  const ComputationId previous = find_computation(name);
  if (previous != kNone) fail(name, "the computation name " + quoted(name) + " is used twice in this module");
  const auto id = static_cast<ComputationId>(graph_.computations_.size());
  if (is_entry) {
    if (has_entry_) {
      fail(name, "a second ENTRY computation, " + quoted(name) + "; the first is " + quoted(graph_.entry().name));
    }
    has_entry_ = true;
    graph_.entry_ = id;
  }
  Computation computation;
  computation.name = name;
  computation.first = graph_.num_instructions();
  graph_.computations_.push_back(std::move(computation));
  insert_computation_name(name, id);
  in_computation_ = true;
  unnamed_.clear();
}

void GraphBuilder::abandon_computation() {
  AM_CHECK(in_computation_);
  Graph& g = graph_;
  const auto id = static_cast<ComputationId>(g.computations_.size()) - 1;
  const std::int32_t first = g.computations_.back().first;
  if (first < g.num_instructions()) {
    const Instruction& i = g.instruction(first);
    g.operands_.resize(static_cast<std::size_t>(i.first_operand));
    g.attributes_.resize(static_cast<std::size_t>(i.first_attribute));
    g.called_.resize(static_cast<std::size_t>(i.first_called));
    g.instructions_.resize(static_cast<std::size_t>(first));
  }
  while (!pending_calls_.empty() && pending_calls_.back().caller >= first) pending_calls_.pop_back();
  while (!g.faulty_.empty() && g.faulty_.back() >= first) {
    g.faulty_.pop_back();
    if (g.faults_.size() > g.faulty_.size()) g.faults_.pop_back();
  }
  for (NameSlot& slot : names_) {
    if (slot.id >= first) slot = {};
  }
  // The name that was added last stands in nobody's way: no other name was put behind it.
  for (NameSlot& slot : computation_names_) {
    if (slot.id == id) slot = {};
  }
  if (g.entry_ == id) {
    g.entry_ = kNone;
    has_entry_ = false;
  }
  g.computations_.pop_back();
  in_computation_ = false;
}

InstructionId GraphBuilder::add(const InstructionDraft& draft, Span<const InstructionId> operands,
                                Span<const Attribute> attributes) {
  AM_CHECK(in_computation_);
  Graph& g = graph_;
  if (g.instructions_.size() >= INT32_MAX - 1 || g.operands_.size() + operands.size() > INT32_MAX ||
      g.attributes_.size() + attributes.size() > INT32_MAX) {
    fail(draft.name, "the module is too large: more than 2^31 instructions, operands or attributes");
  }
  const InstructionId id = g.num_instructions();
  Instruction instruction;
  instruction.name = draft.name;
  instruction.opcode_name = draft.opcode_name;
  instruction.layout = draft.layout;
  instruction.payload = draft.payload;
  instruction.opcode = draft.opcode == Opcode::kUnknown ? parse_opcode(draft.opcode_name) : draft.opcode;
  instruction.computation = static_cast<ComputationId>(g.computations_.size()) - 1;
  instruction.number = draft.number;
  if (draft.name.empty() || draft.rename) unnamed_.push_back(id);
  if (!draft.name.empty() && !insert_name(draft.name, id)) {
    fail(draft.name,
         "the name " + quoted(draft.name) + " is used twice in computation " + quoted(g.computations_.back().name),
         "instruction names must be unique within a computation");
  }
  if (draft.opcode_name.empty()) fail(draft.name, "instruction " + quoted(draft.name) + " has no opcode");

  const Arity arity = opcode_arity(instruction.opcode);
  const auto count = static_cast<std::int64_t>(operands.size());
  if (count < arity.min || (arity.max >= 0 && count > arity.max)) {
    fail(draft.opcode_name, label_of(instruction) + " has " + std::to_string(count) +
                                (count == 1 ? " operand" : " operands") + ", expected " +
                                (arity.min == arity.max ? "" : "at least ") + std::to_string(arity.min));
  }
  for (const InstructionId operand : operands) {
    if (operand < g.computations_.back().first || operand >= id) {
      fail(draft.name,
           label_of(instruction) + " reads an instruction that is not defined before it in its computation");
    }
  }
  if (instruction.opcode == Opcode::kGetTupleElement) {
    const std::optional<std::string_view> index = find_attribute(attributes, "index");
    if (!index) fail(draft.opcode_name, label_of(instruction) + " has no index");
    if (!parse_integer(*index, &instruction.number) || instruction.number < 0) {
      fail(*index, label_of(instruction) + " has index=" + short_text(*index) + ", expected a number from 0");
    }
  } else if (instruction.opcode == Opcode::kParameter && instruction.number < 0) {
    fail(draft.opcode_name, label_of(instruction) + " has no parameter number");
  }
  instruction.shape = draft.shape == kNone ? infer_shape(draft, operands, attributes) : draft.shape;
  require_attributes(instruction, operands, attributes);
  check_instruction(instruction, id, operands, attributes);

  instruction.first_operand = static_cast<std::int32_t>(g.operands_.size());
  instruction.num_operands = static_cast<std::int32_t>(operands.size());
  g.operands_.insert(g.operands_.end(), operands.begin(), operands.end());
  instruction.first_attribute = static_cast<std::int32_t>(g.attributes_.size());
  instruction.num_attributes = static_cast<std::int32_t>(attributes.size());
  g.attributes_.insert(g.attributes_.end(), attributes.begin(), attributes.end());
  add_called(&instruction, id, attributes);
  g.instructions_.push_back(instruction);
  return id;
}

void GraphBuilder::add_called_names(std::string_view value, bool required, int order,
                                    std::vector<std::pair<int, std::string_view>>* out) const {
  const char* p = value.data();
  const char* const end = p + value.size();
  const std::size_t before = out->size();
  bool ok = true;
  const auto space = [&] { p = scan::skip_class(scan::kSpace, p, end); };
  space();
  const bool braces = p < end && *p == '{';
  if (braces) ++p;
  for (bool first = true; ok; first = false) {
    space();
    if (braces && p < end && *p == '}') {
      ++p;
      break;
    }
    if (p == end) {
      ok = !braces && !first;
      break;
    }
    if (!first) {
      ok = braces && *p == ',';
      if (!ok) break;
      ++p;
      space();
    }
    while (p < end && *p == '/') {  // "/*index=5*/"
      const char* const next = scan::skip_comment(p, end);
      if (next == nullptr || next == p) break;
      p = next;
      space();
    }
    if (p < end && *p == '%') ++p;
    const char* const name = p;
    p = scan::skip_class(scan::kIdentifier, p, end);
    ok = p != name;
    if (ok) out->emplace_back(order, std::string_view(name, static_cast<std::size_t>(p - name)));
    if (p < end && *p == ':') ++p;  // "to_apply=add:", as XLA's parser takes it
  }
  space();
  if (ok && p == end) return;
  if (required) fail(value, "expected the name of a computation, found " + quoted(value));
  out->resize(before);
}

void GraphBuilder::add_called(Instruction* instruction, InstructionId id, Span<const Attribute> attributes) {
  Graph& g = graph_;
  instruction->first_called = static_cast<std::int32_t>(g.called_.size());
  std::vector<std::pair<int, std::string_view>> names;  // allocates only when something is called
  bool sort = false;
  for (const Attribute& a : attributes) {
    const CalledKey* const key = called_key(a.key);
    if (key == nullptr) continue;
    const bool ours = key->only == Opcode::kUnknown || key->only == instruction->opcode;
    // On opcodes we do not know such a key may mean anything: a computation only where it can be nothing else.
    const bool known = instruction->opcode != Opcode::kUnknown && ours;
    const std::size_t before = names.size();
    add_called_names(a.value, known, key->order, &names);
    if (!known && a.value.find('%') == std::string_view::npos) {
      std::size_t keep_to = before;
      for (std::size_t i = before; i < names.size(); ++i) {
        if (find_computation(names[i].second) != kNone) names[keep_to++] = names[i];
      }
      names.resize(keep_to);
    }
    sort = sort || key->order != 0;
  }
  if (names.empty()) return;
  if (sort) {
    std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  for (const auto& [order, name] : names) {
    const ComputationId callee = find_computation(name);
    if (callee == kNone) pending_calls_.push_back({g.called_.size(), name, id});
    g.called_.push_back(callee);
  }
  instruction->num_called = static_cast<std::int32_t>(names.size());
}

void GraphBuilder::end_computation(InstructionId root, std::string_view execution_thread) {
  AM_CHECK(in_computation_);
  Graph& g = graph_;
  Computation& computation = g.computations_.back();
  computation.count = g.num_instructions() - computation.first;
  computation.execution_thread = execution_thread;
  if (computation.count == 0) fail(computation.name, "computation " + quoted(computation.name) + " is empty");
  computation.root = root == kNone ? g.num_instructions() - 1 : root;

  // Names for unnamed instructions: the opcode and a number nobody else uses.
  for (const InstructionId id : unnamed_) {
    Instruction& instruction = g.instructions_[static_cast<std::size_t>(id)];
    for (std::int64_t n = id;; ++n) {
      const std::string name = std::string(instruction.opcode_name) + ".unnamed." + std::to_string(n);
      if (find(name) != kNone) continue;
      instruction.name = keep(name);
      insert_name(instruction.name, id);
      break;
    }
  }

  std::size_t parameters = 0;
  for (InstructionId id = computation.first; id < g.num_instructions(); ++id) {
    if (g.instruction(id).opcode == Opcode::kParameter) ++parameters;
  }
  computation.parameters.assign(parameters, kNone);
  for (InstructionId id = computation.first; id < g.num_instructions(); ++id) {
    const Instruction& instruction = g.instruction(id);
    if (instruction.opcode != Opcode::kParameter) continue;
    if (instruction.number >= static_cast<std::int64_t>(parameters)) {
      fail(instruction.name,
           "computation " + quoted(computation.name) + " has " + std::to_string(parameters) +
               (parameters == 1 ? " parameter" : " parameters") + ", but one of them is number " +
               std::to_string(instruction.number),
           "parameters are numbered from 0 without gaps");
    }
    InstructionId& slot = computation.parameters[static_cast<std::size_t>(instruction.number)];
    if (slot != kNone) {
      fail(instruction.name, "parameter number " + std::to_string(instruction.number) +
                                 " occurs twice in computation " + quoted(computation.name));
    }
    slot = id;
  }
  in_computation_ = false;
}

Graph GraphBuilder::finish() {
  AM_CHECK(!in_computation_);
  if (graph_.computations_.empty()) fail({}, "this HLO module holds no computation");
  if (!has_entry_) graph_.entry_ = default_entry_ == kNone ? graph_.num_computations() - 1 : default_entry_;
  for (const PendingCall& call : pending_calls_) {
    const ComputationId callee = find_computation(call.name);
    if (callee == kNone) {
      fail(call.name, label_of(graph_.instruction(call.caller)) + " calls the computation " + quoted(call.name) +
                          ", which this module does not define");
    }
    graph_.called_[call.slot] = callee;
  }
  pending_calls_.clear();
  const std::vector<ComputationId> order = callees_first();
  for (ComputationId c = 0; c < graph_.num_computations(); ++c) {
    const Computation& computation = graph_.computation(c);
    const Instruction& last = graph_.instruction(computation.first + computation.count - 1);
    const std::int32_t begin = graph_.instruction(computation.first).first_called;
    for (std::int32_t i = begin; i < last.first_called + last.num_called; ++i) {
      if (graph_.called_[static_cast<std::size_t>(i)] < c) continue;
      reorder(order);
      c = graph_.num_computations();
      break;
    }
  }
  check_calls();
  return std::move(graph_);
}

// Numbers computations, and the instructions in them, in `order`.
void GraphBuilder::reorder(const std::vector<ComputationId>& order) {
  Graph& g = graph_;
  std::vector<ComputationId> new_computation(order.size());
  std::vector<InstructionId> new_id(g.instructions_.size());
  std::vector<Computation> computations;
  std::vector<Instruction> instructions;
  computations.reserve(order.size());
  instructions.reserve(g.instructions_.size());
  for (const ComputationId old : order) {
    const auto now = static_cast<ComputationId>(computations.size());
    new_computation[static_cast<std::size_t>(old)] = now;
    Computation& computation = g.computations_[static_cast<std::size_t>(old)];
    const auto first = static_cast<InstructionId>(instructions.size());
    for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
      new_id[static_cast<std::size_t>(id)] = static_cast<InstructionId>(instructions.size());
      instructions.push_back(g.instruction(id));
      instructions.back().computation = now;
    }
    computation.first = first;
    computations.push_back(std::move(computation));
  }
  const auto renumber = [&](std::vector<InstructionId>& ids) {
    for (InstructionId& id : ids) id = new_id[static_cast<std::size_t>(id)];
  };
  for (Computation& computation : computations) {
    renumber(computation.parameters);
    computation.root = new_id[static_cast<std::size_t>(computation.root)];
  }
  renumber(g.operands_);
  renumber(g.faulty_);
  std::sort(g.faulty_.begin(), g.faulty_.end());
  for (ComputationId& called : g.called_) called = new_computation[static_cast<std::size_t>(called)];
  g.entry_ = new_computation[static_cast<std::size_t>(g.entry_)];
  g.computations_ = std::move(computations);
  g.instructions_ = std::move(instructions);
}

}  // namespace automap::graph
