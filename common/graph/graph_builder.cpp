#include "common/graph/graph_builder.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <limits>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/scan.h"
#include "common/graph/shape.h"

namespace automap::graph {
namespace {

constexpr std::size_t kMaxTupleNesting = 64;
constexpr std::size_t kArenaChunk = 64 * 1024;
constexpr std::size_t kExcerptWidth = 80;

std::string quoted(std::string_view s) {
  constexpr int kMost = 60;
  return "'" + excerpt(s, kMost) + "'";
}

std::string short_text(std::string_view s) {
  constexpr std::size_t kMost = 120;
  if (s.size() <= kMost) return std::string(s);
  return std::string(s.substr(0, kMost)) + "...";
}

std::optional<std::string_view> find_attribute(Span<const Attribute> attributes, std::string_view key) {
  for (const Attribute& a : attributes) {
    if (a.key == key) return a.value;
  }
  return std::nullopt;
}

// The integers of an attribute; nothing when it is absent. `ok` turns false when it holds something else.
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

GraphBuilder::GraphBuilder(std::string source) : source_name_(std::move(source)) {
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

// ---------------------------------------------------------------------------------------------------------- errors

void GraphBuilder::fail(std::string_view where, const std::string& message, const std::string& hint) const {
  const char* at = where.data();
  const std::string* text = graph_.source_.get();
  const std::less_equal<const char*> le;
  if (text == nullptr || at == nullptr || !le(text->data(), at) || !le(at, text->data() + text->size())) {
    std::string place = source_name_ + ": ";
    if (in_computation_) place += "in computation " + quoted(graph_.computations_.back().name) + ": ";
    throw Error(ErrorKind::kData, place + message, hint);
  }
  const char* const begin = text->data();
  const char* const end = begin + text->size();
  const std::size_t line = 1 + scan::count_byte('\n', begin, at);
  const char* line_begin = at;
  while (line_begin > begin && line_begin[-1] != '\n') --line_begin;
  const auto column = static_cast<std::size_t>(at - line_begin);
  const auto* line_end = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
  if (line_end == nullptr) line_end = end;
  // A window of the line with the place in it; multi-megabyte lines are usual in HLO.
  const std::size_t first = column > kExcerptWidth * 3 / 4 ? column - kExcerptWidth / 2 : 0;
  const std::size_t width = std::min(kExcerptWidth, static_cast<std::size_t>(line_end - line_begin) - first);
  std::string window(line_begin + first, width);
  std::replace(window.begin(), window.end(), '\t', ' ');
  const std::string before = printable(std::string_view(window).substr(0, column - first));
  const std::string behind = printable(std::string_view(window).substr(column - first));
  throw Error(ErrorKind::kData,
              source_name_ + ":" + std::to_string(line) + ":" + std::to_string(column + 1) + ": " + message, hint,
              {before + behind, std::string(static_cast<std::size_t>(display_width(before)), ' ') + "^"});
}

std::string GraphBuilder::label(const Instruction& instruction) const {
  return std::string(instruction.opcode_name) + " " + quoted(instruction.name);
}

void GraphBuilder::shape_error(const Instruction& instruction, const std::string& what) const {
  fail(instruction.name, label(instruction) + ": " + what);
}

// ---------------------------------------------------------------------------------------------------------- shapes

GraphBuilder::ShapeSlot& GraphBuilder::shape_slot(std::string_view text, std::uint64_t hash) {
  const std::size_t mask = shape_slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    ShapeSlot& slot = shape_slots_[i];
    if (slot.shape == kNone) return slot;
    if (slot.hash == hash && slot.size == text.size() && std::memcmp(slot.data, text.data(), text.size()) == 0) {
      return slot;
    }
  }
}

void GraphBuilder::remember_shape(std::string_view text, std::uint64_t hash, ShapeId id) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) return;  // found again by parsing
  if (num_shape_slots_used_ * 2 >= shape_slots_.size()) {
    std::vector<ShapeSlot> old(shape_slots_.size() * 2);
    old.swap(shape_slots_);
    for (const ShapeSlot& slot : old) {
      if (slot.shape != kNone) shape_slot({slot.data, slot.size}, slot.hash) = slot;
    }
  }
  ShapeSlot& slot = shape_slot(text, hash);
  if (slot.shape != kNone) return;
  slot = {text.data(), static_cast<std::uint32_t>(text.size()), id, hash};
  ++num_shape_slots_used_;
}

ShapeId GraphBuilder::shape(std::string_view text) {
  const std::uint64_t hash = scan::hash(text);
  const ShapeId known = shape_slot(text, hash).shape;
  if (known != kNone) return known;
  const ShapeId id = parse_shape(text);
  const std::string* source = graph_.source_.get();
  const std::less_equal<const char*> le;
  const bool stable =
      source != nullptr && le(source->data(), text.data()) && le(text.data(), source->data() + source->size());
  if (graph_.shape(id).text != text) remember_shape(stable ? text : keep(text), hash, id);
  return id;
}

ShapeId GraphBuilder::intern(Shape shape, const std::string& text) {
  const std::uint64_t hash = scan::hash(text);
  const ShapeId known = shape_slot(text, hash).shape;
  if (known != kNone) return known;
  if (graph_.shapes_.size() >= INT32_MAX) fail({}, "more than 2^31 different shapes");
  const auto id = static_cast<ShapeId>(graph_.shapes_.size());
  shape.text = keep(text);
  graph_.shapes_.push_back(std::move(shape));
  remember_shape(graph_.shapes_.back().text, hash, id);
  return id;
}

ShapeId GraphBuilder::array_from_text(std::string_view type_name, std::string_view dims, std::string_view where) {
  Shape shape;
  const ElementTypeInfo info = element_type_info(type_name);
  shape.type = info.type;
  shape.bits = info.bits;
  std::string text(type_name);
  text.push_back('[');
  const char* p = dims.data();
  const char* const end = p + dims.size();
  const auto space = [&] { p = scan::skip_class(scan::kSpace, p, end); };
  for (space(); p < end; space()) {
    if (!shape.dims.empty()) {
      if (*p != ',') fail({p, 0}, "expected ',' or ']' between the dimensions of " + quoted(where));
      ++p;
      text.push_back(',');
      space();
    }
    const bool bounded = end - p >= 2 && p[0] == '<' && p[1] == '=';
    if (bounded) {
      p += 2;
      space();
      text += "<=";
    }
    if (p < end && *p == '?') {
      ++p;
      text.push_back('?');
      shape.dynamic = true;
      shape.dims.push_back(0);
      continue;
    }
    shape.dynamic = shape.dynamic || bounded;
    const char* const digits = p;
    std::int64_t value = 0;
    for (; p < end && scan::is(scan::kDigit, *p); ++p) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{*p - '0'}, &value)) {
        fail({digits, 0}, "a dimension of " + quoted(where) + " does not fit 63 bits");
      }
    }
    if (p == digits) fail({p, 0}, "expected a dimension (a number, <=number or ?) in the shape " + quoted(where));
    text += std::to_string(value);
    shape.dims.push_back(value);
  }
  text.push_back(']');
  if (shape.is_array()) {
    std::int64_t elements = 1, bits = 0;
    bool overflow = false;
    for (const std::int64_t d : shape.dims) overflow = __builtin_mul_overflow(elements, d, &elements) || overflow;
    if (std::find(shape.dims.begin(), shape.dims.end(), 0) != shape.dims.end()) {
      elements = 0;
    } else if (overflow) {
      fail(where, "the shape " + quoted(where) + " has more than 2^63 elements");
    }
    if (__builtin_mul_overflow(elements, std::int64_t{shape.bits}, &bits)) {
      fail(where, "the shape " + quoted(where) + " has more than 2^63 bits");
    }
    shape.num_elements = elements;
    shape.bytes = bits / 8 + (bits % 8 != 0 ? 1 : 0);
  }
  shape.type_name = keep(type_name);
  return intern(std::move(shape), text);
}

ShapeId GraphBuilder::tuple_shape(Span<const ShapeId> elements) {
  Shape shape;
  shape.type = ElementType::kTuple;
  shape.elements.reserve(elements.size());
  std::string text = "(";
  for (const ShapeId e : elements) {
    shape.elements.push_back(e);
    const Shape& element = graph_.shape(e);
    if (text.size() > 1) text += ", ";
    text += element.text;
    shape.dynamic = shape.dynamic || element.dynamic;
    if (__builtin_add_overflow(shape.bytes, element.bytes, &shape.bytes)) {
      fail({}, "a tuple shape has more than 2^63 bytes");
    }
  }
  text.push_back(')');
  return intern(std::move(shape), text);
}

ShapeId GraphBuilder::array_shape(std::string_view type_name, Span<const std::int64_t> dims,
                                  const std::vector<bool>& dynamic) {
  std::string text;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) text.push_back(',');
    const bool is_dynamic = i < dynamic.size() && dynamic[i];
    if (!is_dynamic && dims[i] < 0) {
      fail({}, "a shape of type " + quoted(type_name) + " has the dimension " + std::to_string(dims[i]));
    }
    if (is_dynamic) text += dims[i] > 0 ? "<=" : "?";
    if (!is_dynamic || dims[i] > 0) text += std::to_string(dims[i]);
  }
  return array_from_text(type_name, text, std::string(type_name) + "[" + text + "]");
}

// shape := '(' [shape {',' shape}] ')' | 'b(' shape ')' | type '[' dims ']' [layout], on an explicit stack.
ShapeId GraphBuilder::parse_shape(std::string_view text) {
  struct Frame {
    std::size_t first;
    bool buffer;
    const char* open;
  };
  std::vector<Frame> frames;
  std::vector<ShapeId> items;
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto space = [&] {
    for (;;) {
      p = scan::skip_class(scan::kSpace, p, end);
      if (p == end || *p != '/') return;
      const char* const next = scan::skip_comment(p, end);
      if (next == p) return;
      if (next == nullptr) fail({p, 0}, "a comment is not closed: expected '*/'");
      p = next;
    }
  };
  const auto layout = [&] {
    if (p == end || *p != '{') return;
    const char* const next = scan::skip_balanced<'{', '}'>(p, end);
    if (next == nullptr) fail({p, 0}, "the layout that starts here is not closed: expected '}'");
    p = next;
  };
  const auto too_deep = [&] {
    fail({frames.back().open, 0}, "shapes are nested more than " + std::to_string(kMaxTupleNesting) + " deep");
  };
  for (;;) {
    space();
    bool closes = false;
    if (p == end) fail({p, 0}, "expected a shape such as f32[2,3], found the end of " + quoted(text));
    if (*p == '(') {
      frames.push_back({items.size(), false, p++});
      if (frames.size() > kMaxTupleNesting) too_deep();
      space();
      closes = p < end && *p == ')';
      if (!closes) continue;
    } else {
      const char* const name = p;
      p = scan::skip_class(scan::kIdentifier, p, end);
      const std::string_view type_name(name, static_cast<std::size_t>(p - name));
      if (type_name == "b" && p < end && *p == '(') {
        frames.push_back({items.size(), true, p++});
        if (frames.size() > kMaxTupleNesting) too_deep();
        continue;
      }
      space();
      if (type_name.empty() || scan::is(scan::kDigit, type_name[0]) || p == end || *p != '[') {
        fail({name, 0}, "expected a shape such as f32[2,3], found " +
                            quoted(text.substr(static_cast<std::size_t>(name - text.data()))));
      }
      const char* const dims = ++p;
      const auto* close = static_cast<const char*>(std::memchr(p, ']', static_cast<std::size_t>(end - p)));
      if (close == nullptr) fail({dims - 1, 0}, "the dimensions that start here are not closed: expected ']'");
      items.push_back(array_from_text(type_name, {dims, static_cast<std::size_t>(close - dims)},
                                      {name, static_cast<std::size_t>(close + 1 - name)}));
      p = close + 1;
      layout();
    }
    // After a shape, or at the ')' of an empty tuple.
    for (;;) {
      if (!closes) {
        space();
        if (frames.empty()) {
          if (p != end)
            fail({p, 0}, "unexpected text after a shape: " + quoted({p, static_cast<std::size_t>(end - p)}));
          return items.back();
        }
        if (p < end && *p == ',' && !frames.back().buffer) {
          ++p;
          break;
        }
        if (p == end || *p != ')') {
          fail({p, 0},
               std::string("expected ',' or ')' in a tuple shape, found ") + (p == end ? "its end" : quoted({p, 1})));
        }
      }
      closes = false;
      ++p;
      const Frame frame = frames.back();
      frames.pop_back();
      const Span<const ShapeId> elements(items.data() + frame.first, items.size() - frame.first);
      ShapeId id = kNone;
      if (frame.buffer) {
        const Shape& inner = graph_.shape(elements[0]);
        Shape buffer;
        buffer.type = ElementType::kOpaque;
        buffer.type_name = "b";
        buffer.elements = {elements[0]};
        buffer.dynamic = inner.dynamic;
        buffer.bytes = inner.bytes;
        id = intern(std::move(buffer), "b(" + std::string(inner.text) + ")");
      } else {
        id = tuple_shape(elements);
      }
      items.resize(frame.first);
      items.push_back(id);
      layout();
    }
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
    fail(draft.opcode_name, label(instruction) + " has " + std::to_string(count) +
                                (count == 1 ? " operand" : " operands") + ", expected " +
                                (arity.min == arity.max ? "" : "at least ") + std::to_string(arity.min));
  }
  for (const InstructionId operand : operands) {
    if (operand < g.computations_.back().first || operand >= id) {
      fail(draft.name, label(instruction) + " reads an instruction that is not defined before it in its computation");
    }
  }
  if (instruction.opcode == Opcode::kGetTupleElement) {
    const std::optional<std::string_view> index = find_attribute(attributes, "index");
    if (!index) fail(draft.opcode_name, label(instruction) + " has no index");
    if (!parse_integer(*index, &instruction.number) || instruction.number < 0) {
      fail(*index, label(instruction) + " has index=" + short_text(*index) + ", expected a number from 0");
    }
  } else if (instruction.opcode == Opcode::kParameter && instruction.number < 0) {
    fail(draft.opcode_name, label(instruction) + " has no parameter number");
  }
  instruction.shape = draft.shape == kNone ? infer_shape(draft, operands, attributes) : draft.shape;
  check_shapes(instruction, operands, attributes);

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

  // Names for what the text did not name: the opcode and a number nobody else uses.
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

// ----------------------------------------------------------------------------------------------- shapes of results

ShapeId GraphBuilder::infer_shape(const InstructionDraft& draft, Span<const InstructionId> operands,
                                  Span<const Attribute> attributes) {
  const Opcode opcode = draft.opcode == Opcode::kUnknown ? parse_opcode(draft.opcode_name) : draft.opcode;
  const auto operand = [&](std::size_t i) -> const Shape& { return graph_.shape_of(operands[i]); };
  const auto operand_id = [&](std::size_t i) { return graph_.instruction(operands[i]).shape; };
  bool ok = true;
  const auto in_range = [](std::int64_t d, const Shape& s) {
    return d >= 0 && d < static_cast<std::int64_t>(s.dims.size());
  };
  // Arrays with dynamic dimensions would need their flags carried along: left to the text.
  const auto plain = [&](std::size_t i) { return operand(i).is_array() && !operand(i).dynamic; };
  const auto array = [&](const Shape& like, const std::vector<std::int64_t>& dims) {
    const std::string type(like.type_name);
    return array_shape(type, dims);
  };
  switch (opcode) {
    case Opcode::kConvert:
    case Opcode::kReal:
    case Opcode::kImag:
    case Opcode::kComplex: break;
    case Opcode::kIsFinite:
    case Opcode::kCompare:
      if (plain(0)) return array_shape("pred", operand(0).dims);
      break;
    case Opcode::kTuple: {
      std::vector<ShapeId> elements;
      for (std::size_t i = 0; i < operands.size(); ++i) elements.push_back(operand_id(i));
      return tuple_shape(elements);
    }
    case Opcode::kGetTupleElement: {
      std::int64_t index = -1;
      const std::optional<std::string_view> raw = find_attribute(attributes, "index");
      if (raw && parse_integer(*raw, &index) && operand(0).is_tuple() && index >= 0 &&
          index < static_cast<std::int64_t>(operand(0).elements.size())) {
        return operand(0).elements[static_cast<std::size_t>(index)];
      }
      break;
    }
    case Opcode::kTranspose: {
      const std::vector<std::int64_t> perm = integers_of(attributes, "dimensions", &ok);
      if (!ok || !plain(0) || perm.size() != operand(0).dims.size()) break;
      std::vector<std::int64_t> dims;
      for (const std::int64_t d : perm) {
        if (!in_range(d, operand(0))) ok = false;
        if (ok) dims.push_back(operand(0).dims[static_cast<std::size_t>(d)]);
      }
      if (ok) return array(operand(0), dims);
      break;
    }
    case Opcode::kReduce: {
      const std::vector<std::int64_t> reduced = integers_of(attributes, "dimensions", &ok);
      if (!ok || operands.size() != 2 || !plain(0)) break;
      std::vector<std::int64_t> dims;
      for (std::size_t d = 0; d < operand(0).dims.size(); ++d) {
        if (std::find(reduced.begin(), reduced.end(), static_cast<std::int64_t>(d)) == reduced.end()) {
          dims.push_back(operand(0).dims[d]);
        }
      }
      return array(operand(0), dims);
    }
    case Opcode::kDot: {
      if (operands.size() != 2 || !plain(0) || !plain(1)) break;
      const std::vector<std::int64_t> lb = integers_of(attributes, "lhs_batch_dims", &ok);
      const std::vector<std::int64_t> rb = integers_of(attributes, "rhs_batch_dims", &ok);
      const std::vector<std::int64_t> lc = integers_of(attributes, "lhs_contracting_dims", &ok);
      const std::vector<std::int64_t> rc = integers_of(attributes, "rhs_contracting_dims", &ok);
      for (const std::int64_t d : lb) ok = ok && in_range(d, operand(0));
      if (!ok) break;
      std::vector<std::int64_t> dims;
      for (const std::int64_t d : lb) dims.push_back(operand(0).dims[static_cast<std::size_t>(d)]);
      const auto free_dims = [&](const Shape& s, const std::vector<std::int64_t>& batch,
                                 const std::vector<std::int64_t>& contracting) {
        for (std::size_t d = 0; d < s.dims.size(); ++d) {
          const auto v = static_cast<std::int64_t>(d);
          if (std::find(batch.begin(), batch.end(), v) == batch.end() &&
              std::find(contracting.begin(), contracting.end(), v) == contracting.end()) {
            dims.push_back(s.dims[d]);
          }
        }
      };
      free_dims(operand(0), lb, lc);
      free_dims(operand(1), rb, rc);
      return array(operand(0), dims);
    }
    case Opcode::kConcatenate: {
      const std::vector<std::int64_t> dim = integers_of(attributes, "dimensions", &ok);
      if (!ok || dim.size() != 1 || !plain(0) || !in_range(dim[0], operand(0))) break;
      std::vector<std::int64_t> dims = operand(0).dims;
      std::int64_t& sum = dims[static_cast<std::size_t>(dim[0])];
      for (std::size_t i = 1; i < operands.size(); ++i) {
        ok = ok && plain(i) && operand(i).dims.size() == dims.size() &&
             !__builtin_add_overflow(sum, operand(i).dims[static_cast<std::size_t>(dim[0])], &sum);
      }
      if (ok) return array(operand(0), dims);
      break;
    }
    case Opcode::kDynamicSlice: {
      const std::vector<std::int64_t> sizes = integers_of(attributes, "dynamic_slice_sizes", &ok);
      if (ok && plain(0) && sizes.size() == operand(0).dims.size()) return array(operand(0), sizes);
      break;
    }
    case Opcode::kSelect:
    case Opcode::kClamp: return operand_id(1);
    case Opcode::kAfterAll: return shape("token[]");
    case Opcode::kPartitionId:
    case Opcode::kReplicaId: return shape("u32[]");
    case Opcode::kAddDependency:
    case Opcode::kCollectiveBroadcast:
    case Opcode::kCollectivePermute:
    case Opcode::kDomain:
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kReverse:
    case Opcode::kWhile: return operand_id(0);
    case Opcode::kAllReduce:
    case Opcode::kOptBarrier:
      if (operands.size() == 1) return operand_id(0);
      break;
    case Opcode::kCall:
    case Opcode::kFusion: {
      std::optional<std::string_view> callee =
          find_attribute(attributes, opcode == Opcode::kCall ? "to_apply" : "calls");
      if (!callee) break;
      if (callee->substr(0, 1) == "%") callee->remove_prefix(1);
      const ComputationId id = find_computation(*callee);
      if (id != kNone && graph_.computation(id).root != kNone) {
        return graph_.instruction(graph_.computation(id).root).shape;
      }
      break;
    }
    default:
      if (is_elementwise_unary(opcode) || is_elementwise_binary(opcode)) return operand_id(0);
  }
  fail(draft.opcode_name,
       "the result shape of " + std::string(draft.opcode_name) + " " + quoted(draft.name) +
           " is missing and cannot be inferred here",
       "write it before the opcode, as in 'x = f32[2,3] " + std::string(draft.opcode_name) + "(...)'");
}

void GraphBuilder::check_shapes(const Instruction& instruction, Span<const InstructionId> operands,
                                Span<const Attribute> attributes) const {
  const Graph& g = graph_;
  const Opcode opcode = instruction.opcode;
  const ShapeId result = instruction.shape;
  const auto shape_id = [&](std::size_t i) { return g.instruction(operands[i]).shape; };
  const auto text = [&](ShapeId id) { return short_text(g.shape(id).text); };
  const auto same = [&](ShapeId a, ShapeId b) { return a == b || same_dimensions(g, a, b); };
  if (is_elementwise_unary(opcode)) {
    if (!same(result, shape_id(0))) {
      shape_error(instruction, "the result is " + text(result) + ", but the operand is " + text(shape_id(0)));
    }
    return;
  }
  if (is_elementwise_binary(opcode)) {
    if (!same(shape_id(0), shape_id(1))) {
      shape_error(instruction, "the operands differ: " + text(shape_id(0)) + " and " + text(shape_id(1)));
    }
    if (!same(result, shape_id(0))) {
      shape_error(instruction, "the result is " + text(result) + ", but the operands are " + text(shape_id(0)));
    }
    return;
  }
  const Shape& out = g.shape(result);
  bool ok = true;
  switch (opcode) {
    case Opcode::kSelect:
      for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
        if (!same(result, shape_id(i))) {
          shape_error(instruction, "the result is " + text(result) + ", but operand " + std::to_string(i) + " is " +
                                       text(shape_id(i)));
        }
      }
      return;
    case Opcode::kClamp:
    case Opcode::kWhile:
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kReverse: {
      const std::size_t i = opcode == Opcode::kClamp ? 1 : 0;
      if (!same(result, shape_id(i))) {
        shape_error(instruction, "the result is " + text(result) + ", but operand " + std::to_string(i) + " is " +
                                     text(shape_id(i)));
      }
      return;
    }
    case Opcode::kReshape: {
      const Shape& in = g.shape(shape_id(0));
      if (in.dynamic || out.dynamic || !in.is_array() || !out.is_array()) return;
      if (in.num_elements != out.num_elements) {
        shape_error(instruction, text(shape_id(0)) + " has " + std::to_string(in.num_elements) +
                                     " elements, but the result " + text(result) + " has " +
                                     std::to_string(out.num_elements));
      }
      return;
    }
    case Opcode::kBroadcast:
    case Opcode::kTranspose: {
      const Shape& in = g.shape(shape_id(0));
      if (!in.is_array() || !out.is_array()) {
        shape_error(instruction, "expected arrays, found " + text(shape_id(0)) + " and the result " + text(result));
      }
      const std::vector<std::int64_t> dims = integers_of(attributes, "dimensions", &ok);
      if (!ok || dims.size() != in.dims.size() || (opcode == Opcode::kTranspose && dims.size() != out.dims.size())) {
        shape_error(instruction, "dimensions must be a list of " + std::to_string(in.dims.size()) +
                                     " numbers for an operand " + text(shape_id(0)) + " and a result " + text(result));
      }
      // broadcast: operand dimension i becomes result dimension dims[i]; transpose: the other way round.
      const Shape& indexed = opcode == Opcode::kBroadcast ? out : in;
      const Shape& listed = opcode == Opcode::kBroadcast ? in : out;
      for (std::size_t i = 0; i < dims.size(); ++i) {
        if (dims[i] < 0 || dims[i] >= static_cast<std::int64_t>(indexed.dims.size())) {
          shape_error(instruction,
                      "dimensions name dimension " + std::to_string(dims[i]) + " of " + short_text(indexed.text));
        }
        if (in.dynamic || out.dynamic) continue;
        // A dimension of size 1 may be stretched by the broadcasts of older modules.
        if (indexed.dims[static_cast<std::size_t>(dims[i])] != listed.dims[i] &&
            (opcode == Opcode::kTranspose || listed.dims[i] != 1)) {
          shape_error(instruction, "the operand " + text(shape_id(0)) + " does not fit the result " + text(result) +
                                       " along dimensions");
        }
      }
      return;
    }
    case Opcode::kDot: {
      const Shape& lhs = g.shape(shape_id(0));
      const Shape& rhs = g.shape(shape_id(1));
      if (operands.size() != 2 || !lhs.is_array() || !rhs.is_array() || lhs.dynamic || rhs.dynamic || out.dynamic)
        return;
      const std::vector<std::int64_t> lc = integers_of(attributes, "lhs_contracting_dims", &ok);
      const std::vector<std::int64_t> rc = integers_of(attributes, "rhs_contracting_dims", &ok);
      const std::vector<std::int64_t> lb = integers_of(attributes, "lhs_batch_dims", &ok);
      const std::vector<std::int64_t> rb = integers_of(attributes, "rhs_batch_dims", &ok);
      ok = ok && lc.size() == rc.size() && lb.size() == rb.size();
      std::vector<std::int64_t> kept_lhs = lhs.dims, kept_rhs = rhs.dims;
      const auto drop_pair = [&](std::int64_t l, std::int64_t r, bool keep_lhs) {
        if (l < 0 || r < 0 || l >= static_cast<std::int64_t>(lhs.dims.size()) ||
            r >= static_cast<std::int64_t>(rhs.dims.size()) ||
            lhs.dims[static_cast<std::size_t>(l)] != rhs.dims[static_cast<std::size_t>(r)]) {
          ok = false;
          return;
        }
        if (!keep_lhs) kept_lhs[static_cast<std::size_t>(l)] = 1;
        kept_rhs[static_cast<std::size_t>(r)] = 1;
      };
      for (std::size_t i = 0; ok && i < lc.size(); ++i) drop_pair(lc[i], rc[i], false);
      for (std::size_t i = 0; ok && i < lb.size(); ++i) drop_pair(lb[i], rb[i], true);
      if (!ok) {
        shape_error(instruction, "contracting or batch dimensions do not fit the operands " + text(shape_id(0)) +
                                     " and " + text(shape_id(1)));
      }
      std::int64_t elements = 1;
      bool zero = false, overflow = false;
      for (const std::vector<std::int64_t>* dims : {&kept_lhs, &kept_rhs}) {
        for (const std::int64_t d : *dims) {
          zero = zero || d == 0;
          overflow = overflow || (d != 0 && __builtin_mul_overflow(elements, d, &elements));
        }
      }
      if (zero) elements = 0;
      if ((!zero && overflow) || elements != out.num_elements) {
        shape_error(instruction,
                    "the result is " + text(result) + ", but the operands " + text(shape_id(0)) + " and " +
                        text(shape_id(1)) +
                        (overflow ? " give too many elements" : " give " + std::to_string(elements) + " elements"));
      }
      return;
    }
    case Opcode::kReduce: {
      const Shape& in = g.shape(shape_id(0));
      if (operands.size() % 2 != 0) shape_error(instruction, "expected as many initial values as inputs");
      const std::vector<std::int64_t> dims = integers_of(attributes, "dimensions", &ok);
      for (const std::int64_t d : dims) ok = ok && d >= 0 && d < static_cast<std::int64_t>(in.dims.size());
      if (!ok || !in.is_array()) shape_error(instruction, "dimensions do not fit the operand " + text(shape_id(0)));
      const ShapeId first = out.is_tuple() && !out.elements.empty() ? out.elements[0] : result;
      if (g.shape(first).dims.size() + dims.size() != in.dims.size()) {
        shape_error(instruction, "the result is " + text(result) + ", but the operand " + text(shape_id(0)) +
                                     " loses " + std::to_string(dims.size()) + " dimensions");
      }
      return;
    }
    case Opcode::kGetTupleElement: {
      const Shape& in = g.shape(shape_id(0));
      if (!in.is_tuple()) shape_error(instruction, "the operand is " + text(shape_id(0)) + ", expected a tuple");
      if (instruction.number >= static_cast<std::int64_t>(in.elements.size())) {
        shape_error(instruction, "index " + std::to_string(instruction.number) + " of a tuple of " +
                                     std::to_string(in.elements.size()) + " elements, " + text(shape_id(0)));
      }
      const ShapeId element = in.elements[static_cast<std::size_t>(instruction.number)];
      if (!same(result, element)) {
        shape_error(instruction, "the result is " + text(result) + ", but element " +
                                     std::to_string(instruction.number) + " is " + text(element));
      }
      return;
    }
    case Opcode::kTuple:
      if (!out.is_tuple() || out.elements.size() != operands.size()) {
        shape_error(instruction, "the result is " + text(result) + ", expected a tuple of " +
                                     std::to_string(operands.size()) + " elements");
      }
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (!same(out.elements[i], shape_id(i))) {
          shape_error(instruction, "element " + std::to_string(i) + " of the result is " + text(out.elements[i]) +
                                       ", but operand " + std::to_string(i) + " is " + text(shape_id(i)));
        }
      }
      return;
    default: return;
  }
}

// ---------------------------------------------------------------------------------------------------------- finish

void GraphBuilder::check_acyclic() const {
  // Depth first over the call graph on an explicit stack.
  const Graph& g = graph_;
  enum : std::uint8_t { kNew, kOpen, kDone };
  std::vector<std::uint8_t> state(g.computations_.size(), kNew);
  struct Frame {
    ComputationId computation;
    InstructionId instruction;
    std::size_t called;
  };
  std::vector<Frame> stack;
  for (ComputationId start = 0; start < g.num_computations(); ++start) {
    if (state[static_cast<std::size_t>(start)] != kNew) continue;
    stack.push_back({start, g.computation(start).first, 0});
    state[static_cast<std::size_t>(start)] = kOpen;
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const Computation& computation = g.computation(frame.computation);
      if (frame.instruction == computation.first + computation.count) {
        state[static_cast<std::size_t>(frame.computation)] = kDone;
        stack.pop_back();
        continue;
      }
      const Span<const ComputationId> called = g.called(frame.instruction);
      if (frame.called == called.size()) {
        ++frame.instruction;
        frame.called = 0;
        continue;
      }
      const ComputationId callee = called[frame.called++];
      std::uint8_t& callee_state = state[static_cast<std::size_t>(callee)];
      if (callee_state == kOpen) {
        const Instruction& caller = g.instruction(frame.instruction);
        fail(caller.name,
             label(caller) + " calls " + quoted(g.computation(callee).name) + ", which calls " +
                 quoted(computation.name) + " in turn",
             "computations must not call each other in a circle");
      }
      if (callee_state == kNew) {
        callee_state = kOpen;
        stack.push_back({callee, g.computation(callee).first, 0});
      }
    }
  }
}

void GraphBuilder::check_calls() const {
  const Graph& g = graph_;
  for (InstructionId id = 0; id < g.num_instructions(); ++id) {
    const Instruction& i = g.instruction(id);
    const auto called = static_cast<std::size_t>(i.num_called);
    const auto operands = static_cast<std::size_t>(i.num_operands);
    const auto callee = [&](std::size_t n) -> const Computation& { return g.computation(g.called(id)[n]); };
    const auto text = [&](ShapeId s) { return short_text(g.shape(s).text); };
    const auto parameters = [&](std::size_t n, std::size_t expected) {
      if (callee(n).parameters.size() == expected) return;
      fail(i.name, label(i) + " needs a computation of " + std::to_string(expected) + " parameters, but " +
                       quoted(callee(n).name) + " has " + std::to_string(callee(n).parameters.size()));
    };
    const auto must_call = [&](std::size_t n, const char* what) {
      if (called != n) fail(i.name, label(i) + " calls " + std::to_string(called) + " computations, expected " + what);
    };
    const auto fits = [&](ShapeId a, ShapeId b, std::size_t n, const char* what) {
      if (a == b || same_dimensions(g, a, b)) return;
      fail(i.name,
           label(i) + " has " + text(a) + " where " + quoted(callee(n).name) + " has " + text(b) + " as " + what);
    };
    const auto parameter_shape = [&](std::size_t n, std::size_t p) {
      return g.instruction(callee(n).parameters[p]).shape;
    };
    const auto root_shape = [&](std::size_t n) { return g.instruction(callee(n).root).shape; };
    switch (i.opcode) {
      case Opcode::kCall:
      case Opcode::kFusion:
        must_call(1, i.opcode == Opcode::kCall ? "to_apply" : "calls");
        parameters(0, operands);
        for (std::size_t p = 0; p < operands; ++p) {
          fits(g.instruction(g.operands(id)[p]).shape, parameter_shape(0, p), 0, "parameter");
        }
        fits(i.shape, root_shape(0), 0, "result");
        break;
      case Opcode::kAsyncStart:
        if (i.opcode_name == "async-start" && called == 1) parameters(0, operands);
        break;
      case Opcode::kMap:
        must_call(1, "to_apply");
        parameters(0, operands);
        break;
      case Opcode::kWhile:
        must_call(2, "condition and body");
        for (const std::size_t n : {std::size_t{0}, std::size_t{1}}) {
          parameters(n, 1);
          fits(g.instruction(g.operands(id)[0]).shape, parameter_shape(n, 0), n, "parameter");
        }
        fits(i.shape, root_shape(1), 1, "result");
        if (g.shape(root_shape(0)).type != ElementType::kPred) {
          fail(i.name, label(i) + ": the condition " + quoted(callee(0).name) + " gives " + text(root_shape(0)) +
                           ", expected pred[]");
        }
        break;
      case Opcode::kConditional:
        must_call(operands - 1, "as many as operands after the first");
        for (std::size_t n = 0; n < called; ++n) {
          parameters(n, 1);
          fits(g.instruction(g.operands(id)[n + 1]).shape, parameter_shape(n, 0), n, "parameter");
          fits(i.shape, root_shape(n), n, "result");
        }
        break;
      case Opcode::kReduce:
      case Opcode::kReduceWindow:
        must_call(1, "to_apply");
        parameters(0, operands);
        break;
      case Opcode::kSort:
        if (called == 1) parameters(0, operands * 2);
        break;
      case Opcode::kScatter:
        must_call(1, "to_apply");
        parameters(0, (operands - 1) / 2 * 2);
        break;
      case Opcode::kSelectAndScatter:
        must_call(2, "select and scatter");
        parameters(0, 2);
        parameters(1, 2);
        break;
      default: break;
    }
  }
}

Graph GraphBuilder::finish() {
  AM_CHECK(!in_computation_);
  if (graph_.computations_.empty()) fail({}, "this HLO module holds no computation");
  if (!has_entry_) graph_.entry_ = graph_.num_computations() - 1;
  for (const PendingCall& call : pending_calls_) {
    const ComputationId callee = find_computation(call.name);
    if (callee == kNone) {
      fail(call.name, label(graph_.instruction(call.caller)) + " calls the computation " + quoted(call.name) +
                          ", which this module does not define");
    }
    graph_.called_[call.slot] = callee;
  }
  pending_calls_.clear();
  check_acyclic();
  check_calls();
  return std::move(graph_);
}

}  // namespace automap::graph
