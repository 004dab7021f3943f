#include "common/hlo/hlo_text.h"

#include <cstring>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/graph/shape.h"
#include "common/hlo/inline_computations.h"
#include "common/hlo/text_cursor.h"

namespace automap::hlo {

using namespace graph;

namespace {

constexpr int kMaxExpressionNesting = 64;
// Each level is skipped over once more by those around it.
constexpr std::size_t kMaxInlineNesting = 64;

class TextReader : private TextCursor {
 public:
  TextReader(std::string text, const std::string& source, Faults faults)
      : TextCursor(std::move(text), source, faults) {}

  Graph read() {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") p_ += 3;  // byte order mark
    skip_space();
    if (p_ == end_) fail(p_, "the input is empty: expected an HLO module", kExportHint);
    refuse_other_formats();
    bool seen_header = false, seen_computation = false;
    for (skip_space(); p_ < end_; skip_space()) {
      const char* const begin = p_;
      const std::string_view word = identifier();
      if (word == "HloModule" && next_is_name()) {
        if (seen_header || seen_computation) {
          fail(begin, "a second HloModule starts here: this input holds several modules",
               "split it at its '// -----' lines and read one module at a time");
        }
        seen_header = true;
        read_header();
        continue;
      }
      if (is_section(word) && !next_is('(') && !next_is('{')) {
        read_stack_tables(begin);
        continue;
      }
      const bool entry = word == "ENTRY" && !next_is('(') && !next_is('{');
      if (!entry) p_ = begin;
      read_computation(entry);
      seen_computation = true;
    }
    if (!seen_computation) fail(p_, "the module ends without a computation", "is the file truncated?");
    builder_.set_default_entry(builder_.graph().num_computations() - 1);
    add_wrapped_computations();
    return builder_.finish();
  }

 private:
  // ---- module

  static bool is_section(std::string_view word) {
    return word == "FileNames" || word == "FunctionNames" || word == "FileLocations" || word == "StackFrames";
  }

  void read_header() {
    skip_space();
    builder_.set_module_name(name("the module's name"));
    while (next_is(',')) {
      skip_space();
      ++p_;
      const Attribute attribute = read_attribute();
      builder_.add_header_attribute(attribute.key, attribute.value);
    }
  }

  // FileNames 1 "a.py" ... StackFrames 1 {file_location_id=1 ...}: kept as one raw slice. `begin` is the first word.
  void read_stack_tables(const char* begin) {
    if (!builder_.graph().stack_tables().empty()) fail(begin, "found a second set of stack-frame tables");
    const char* last = p_;
    for (;;) {
      skip_space();
      const char* const entry = p_;
      if (scan::is(scan::kDigit, peek()) && p_ < end_) {
        p_ = scan::skip_class(scan::kDigit, p_, end_);
        skip_space();
        if (peek() == '"') {
          skip_string();
        } else if (peek() == '{') {
          skip_balanced<'{', '}'>();
        } else {
          fail(p_, "found " + found() + ", expected a string or '{' in a stack-frame table");
        }
        last = p_;
        continue;
      }
      const std::string_view word = identifier();
      if (is_section(word) && !next_is('(') && !next_is('{')) {
        last = p_;
        continue;
      }
      p_ = entry;
      builder_.set_stack_tables({begin, static_cast<std::size_t>(last - begin)});
      return;
    }
  }

  // ---- shapes

  // A shape at p_ (the caller has seen that one starts here). `layout` becomes what Instruction::layout wants.
  ShapeId read_shape(std::string_view* layout) {
    const char* const begin = p_;
    if (peek() == '(') {
      skip_balanced<'(', ')'>();
      const std::string_view text = slice(begin);
      if (std::memchr(text.data(), '{', text.size()) != nullptr) *layout = text;
      return builder_.shape(text);
    }
    p_ = scan::skip_class(scan::kIdentifier, p_, end_);
    if (p_ < end_ && *p_ == '(') {  // b(f32[2])
      skip_balanced<'(', ')'>();
      const std::string_view text = slice(begin);
      if (std::memchr(text.data(), '{', text.size()) != nullptr) *layout = text;
      return builder_.shape(text);
    }
    p_ = past_space(p_);
    if (peek() != '[') fail(begin, "found " + found() + ", expected a shape such as f32[2,3]");
    while (p_ < end_ && *p_ != ']') {
      if (*p_ == '/') {
        const char* const behind = scan::skip_comment(p_, end_);
        if (behind == nullptr || behind == p_) break;
        p_ = behind;
        continue;
      }
      // Over several lines as long as dimensions follow: a bracket that is missing is said where it is missing.
      if (*p_ == '\n') {
        const char* const next = scan::skip_class(scan::kSpace, p_, end_);
        if (next == end_ || (!scan::is(scan::kDigit, *next) && std::strchr("],<?/", *next) == nullptr)) break;
      }
      ++p_;
    }
    if (peek() != ']') fail(p_, "found " + found() + ", expected ']' after the dimensions of a shape");
    ++p_;
    const ShapeId id = builder_.shape(slice(begin));
    if (const char* const open = layout_ahead(); open != nullptr) {
      p_ = open;
      const char* q = p_ + 1;
      while (q < end_ && *q != '}' && *q != '{' && *q != '"' && *q != '\'' && *q != '/') ++q;
      if (q < end_ && *q == '}') {
        p_ = q + 1;
      } else {
        skip_balanced<'{', '}'>();
      }
      *layout = without_comments(slice(open));
    }
    return id;
  }

  // The '{' of a layout, at p_ or behind blanks. A brace belongs to the shape only when a number, ':' or '}' follows:
  // it may be the body of a computation.
  const char* layout_ahead() const {
    const char* p = past_space(p_);
    if (p == end_ || *p != '{') return nullptr;
    const char* const inner = past_space(p + 1);
    if (inner == end_ || !(scan::is(scan::kDigit, *inner) || *inner == ':' || *inner == '}')) return nullptr;
    // "-> f32[] {}" is a computation without instructions.
    return *inner == '}' && p != p_ ? nullptr : p;
  }

  // Does a shape start at p_? Else a name or an opcode does.
  bool at_shape() const {
    if (p_ == end_) return false;
    if (*p_ == '(') return true;
    const char* q = scan::skip_class(scan::kIdentifier, p_, end_);
    if (q == p_ || q == end_) return false;
    if (*q == '[') return true;
    if (*q == '(') return q - p_ == 1 && *p_ == 'b';
    q = past_space(q);
    return q < end_ && *q == '[';
  }

  std::string_view without_comments(std::string_view text) {
    if (text.find('/') == std::string_view::npos) return text;
    std::string kept;
    for (const char *p = text.data(), *const end = p + text.size(); p < end;) {
      const char* const behind = *p == '/' ? scan::skip_comment(p, end) : p;
      if (behind == nullptr || behind == p) {
        kept += *p++;
      } else {
        p = behind;
      }
    }
    return builder_.keep(kept);
  }

  // ---- computations

  struct SignatureParameter {
    std::string_view name;
    ShapeId shape;
  };

  void read_computation(bool entry) {
    skip_space();
    const char* const begin = p_;
    const std::string_view computation = name("the name of a computation");
    builder_.begin_computation(computation, entry);
    bool has_signature = false;
    const char* result_at = nullptr;
    ShapeId result = kNone;
    signature_.clear();
    skip_space();
    if (peek() == '(') {
      has_signature = true;
      ++p_;
      read_signature_parameters();
      skip_space();
      if (end_ - p_ < 2 || p_[0] != '-' || p_[1] != '>') {
        fail(p_, "found " + found() + ", expected '->' and the result shape of computation '" +
                     excerpt(computation, 60) + "'");
      }
      p_ += 2;
      skip_space();
      result_at = p_;
      std::string_view layout;
      result = read_shape(&layout);
      skip_space();
    }
    if (peek() != '{') {
      fail(p_ == end_ || has_signature ? p_ : begin,
           p_ == end_ || has_signature ? "found " + found() + ", expected '{' and the instructions of computation '" +
                                             excerpt(computation, 60) + "'"
                                       : "expected a computation: name (parameters) -> shape { instructions }");
    }
    ++p_;
    const char* const body = p_;
    const std::size_t num_wrapped = wrapped_.size();
    InstructionId root = kNone;
    if (!read_instructions(computation, &root)) {
      // Computations within this one come first: named, then called by their names.
      builder_.abandon_computation();
      wrapped_.resize(num_wrapped);
      read_inline_computations(body);
      builder_.begin_computation(computation, entry);
      p_ = body;
      root = kNone;
      if (!read_instructions(computation, &root)) fail(body, "computations within computations that are not closed");
    }
    std::string_view thread;
    while (next_is(',')) {
      skip_space();
      ++p_;
      const Attribute attribute = read_attribute();
      if (attribute.key != "execution_thread") continue;
      thread = attribute.value;
      if (thread.front() != '"') fail(thread.data(), "expected execution_thread=\"name\"");
      thread = thread.substr(1, thread.size() - 2);
    }
    builder_.end_computation(root, thread);
    if (has_signature) check_signature(result, result_at);
  }

  // Up to and with the computation's '}'. False as soon as an instruction holds a computation that has no name yet.
  bool read_instructions(std::string_view computation, InstructionId* root) {
    for (;;) {
      skip_space();
      if (p_ == end_) {
        fail(p_, "the file ends inside computation '" + excerpt(computation, 60) + "', expected '}'",
             "is the file truncated?");
      }
      if (*p_ == '}') break;
      read_instruction(root);
      if (found_inline_) {
        found_inline_ = false;
        operand_stack_.clear();
        return false;
      }
    }
    ++p_;
    return true;
  }

  // The computations within the one whose body starts at `body`, the last ones first: so each finds those within it
  // named.
  void read_inline_computations(const char* body) {
    const std::vector<const char*> braces = InlineComputations::find(body, end_);
    // The ends of the computations around the current one: their number is the depth of nesting.
    std::vector<const char*> around;
    for (const char* const brace : braces) {
      while (!around.empty() && around.back() < brace) around.pop_back();
      const char* const close = scan::skip_balanced<'{', '}'>(brace, end_);
      around.push_back(close == nullptr ? end_ : close);
      if (around.size() > kMaxInlineNesting) fail(brace, "computations are nested more than 64 deep");
    }
    for (std::size_t k = braces.size(); k-- > 0;) {
      std::string unique;
      do {
        unique = "inline_computation." + std::to_string(num_inline_++);
      } while (builder_.has_computation(unique));
      const std::string_view name = builder_.keep(unique);
      builder_.begin_computation(name, false);
      p_ = braces[k] + 1;
      InstructionId root = kNone;
      if (!read_instructions(name, &root)) fail(braces[k], "this computation holds another one that is not closed");
      builder_.end_computation(root, {});
      inline_.give_name(braces[k], name);
    }
  }

  void read_signature_parameters() {
    skip_space();
    if (peek() == ')') {
      ++p_;
      return;
    }
    for (;;) {
      skip_space();
      SignatureParameter parameter{name("the name of a parameter"), kNone};
      skip_space();
      if (peek() == ':') ++p_;
      skip_space();
      std::string_view layout;
      if (!at_shape()) fail(p_, "found " + found() + ", expected the shape of a parameter, such as f32[2,3]");
      parameter.shape = read_shape(&layout);
      signature_.push_back(parameter);
      skip_space();
      if (peek() == ',') {
        ++p_;
        continue;
      }
      if (peek() != ')') fail(p_, "found " + found() + ", expected ',' or ')' in the list of parameters");
      ++p_;
      return;
    }
  }

  void check_signature(ShapeId result, const char* result_at) {
    const Graph& graph = builder_.graph();
    const Computation& computation = graph.computation(graph.num_computations() - 1);
    const std::string in = " of computation '" + excerpt(computation.name, 60) + "'";
    // XLA reads the list of parameters without comparing it, and modules with stale lists exist: it is the body that
    // counts. Said of parameters that are clearly meant, and only of their dimensions.
    for (std::size_t i = 0; i < signature_.size() && i < computation.parameters.size(); ++i) {
      if (graph.instruction(computation.parameters[i]).name != signature_[i].name) continue;
      const ShapeId declared = signature_[i].shape;
      const ShapeId body = graph.instruction(computation.parameters[i]).shape;
      if (same_dimensions(graph, declared, body)) continue;
      builder_.warn(signature_[i].name, "parameter " + std::to_string(i) + in + " is " + text_of(declared) +
                                            " in the signature, but " + text_of(body) + " in the body, which counts");
    }
    const ShapeId root = graph.instruction(computation.root).shape;
    if (!compatible(result, root)) {
      fail(result_at,
           "the result" + in + " is " + text_of(result) + " in the signature, but its root is " + text_of(root));
    }
  }

  // Equal, or told apart only by dynamic dimensions.
  bool compatible(ShapeId a, ShapeId b) const {
    if (a == b) return true;
    const Graph& graph = builder_.graph();
    return graph.shape(a).dynamic || graph.shape(b).dynamic;
  }

  std::string text_of(ShapeId id) const {
    const std::string_view text = builder_.shape_at(id).text;
    return excerpt(text, 120);
  }

  // ---- instructions

  void read_instruction(InstructionId* root) {
    const char* const begin = p_;
    if (*p_ == '%') ++p_;
    std::string_view word = identifier();
    bool is_root = false;
    if (word == "ROOT" && *begin != '%' && !next_is('=')) {
      is_root = true;
      skip_space();
      word = name("the name of an instruction after ROOT");
    }
    if (word.empty()) fail(p_, "found " + found() + ", expected an instruction or '}'");
    if (peek() == ':' && *begin != '%') ++p_;
    if (peek() == ' ') ++p_;
    if (peek() != '=') {
      skip_space();
      if (peek() != '=') {
        fail(p_, "found " + found() + ", expected '=' after the instruction name '" + excerpt(word, 60) + "'");
      }
    }
    ++p_;
    InstructionDraft draft;
    draft.name = word;
    const InstructionId id = read_expression(draft, 0);
    if (!is_root) return;
    if (*root != kNone) fail(begin, "a second ROOT in this computation");
    *root = id;
  }

  // [shape] opcode(operands)[, attributes]; attributes only at depth 0.
  InstructionId read_expression(InstructionDraft draft, int depth) {
    skip_space();
    const char* const begin = p_;
    if (at_shape()) {
      draft.shape = read_shape(&draft.layout);
      skip_space();
    }
    draft.opcode_name = identifier();
    if (draft.opcode_name.empty()) {
      fail(p_, "found " + found() + (begin == p_ ? ", expected a shape or an opcode" : ", expected an opcode"));
    }
    draft.opcode = parse_opcode(draft.opcode_name);
    expect('(', "and the operands after an opcode");
    const std::size_t first_operand = operand_stack_.size();
    const char* const slot = p_;
    switch (draft.opcode) {
      case Opcode::kParameter: read_parameter_number(&draft); break;
      case Opcode::kConstant:
        --p_;
        skip_balanced<'(', ')'>();
        draft.payload = {slot, static_cast<std::size_t>(p_ - 1 - slot)};
        if (draft.payload.empty()) fail(slot, "found ')', expected the value of a constant");
        break;
      case Opcode::kUnknown:
        if (!looks_like_operands()) {
          p_ = slot - 1;
          skip_balanced<'(', ')'>();
          draft.payload = {slot, static_cast<std::size_t>(p_ - 1 - slot)};
          break;
        }
        [[fallthrough]];
      default: read_operands(depth, draft.opcode);
    }
    attributes_.clear();
    if (depth == 0) {
      while (p_ < end_) {
        if (*p_ != ',') {
          skip_space();
          if (peek() != ',') break;
        }
        ++p_;
        attributes_.push_back(read_attribute());
        if (InlineComputations::holds(attributes_.back())) {
          const std::optional<std::string> named = inline_.named(attributes_.back().value);
          if (!named) {
            found_inline_ = true;
            return kNone;
          }
          attributes_.back().value = builder_.keep(*named);
        }
      }
    }
    const Span<const InstructionId> operands(operand_stack_.data() + first_operand,
                                             operand_stack_.size() - first_operand);
    if (is_async_sugar(draft)) unfold_async(&draft, operands);
    const InstructionId id = builder_.add(draft, operands, attributes_);
    operand_stack_.resize(first_operand);
    return id;
  }

  // ---- asynchronous operations

  // "dot-start(x, y), lhs_contracting_dims={1}": short for an async-start of a computation with that dot alone.
  struct Wrapped {
    std::string_view name, opcode, thread;
    ShapeId result = kNone;
    std::vector<std::pair<ShapeId, std::string_view>> parameters;  // with their layouts
    std::vector<Attribute> attributes;
  };

  static bool is_async_sugar(const InstructionDraft& draft) {
    switch (draft.opcode) {
      case Opcode::kAsyncStart:
      case Opcode::kAsyncUpdate:
      case Opcode::kAsyncDone: return draft.opcode_name != opcode_name(draft.opcode);
      default: return false;
    }
  }

  // Rewrites the draft and attributes_ as XLA's parser does.
  void unfold_async(InstructionDraft* draft, Span<const InstructionId> operands) {
    const std::string_view sugar = draft->opcode_name;
    if (draft->opcode != Opcode::kAsyncStart) {
      draft->opcode_name = opcode_name(draft->opcode);
      return;
    }
    const Shape* const state = draft->shape == kNone ? nullptr : &builder_.shape_at(draft->shape);
    if (state == nullptr || !state->is_tuple() || state->elements.size() < 2 || draft->name.empty()) return;
    draft->opcode_name = opcode_name(draft->opcode);
    Wrapped wrapped;
    wrapped.name = builder_.keep(std::string(draft->name) + ".async_wrapped." + std::to_string(wrapped_.size()));
    wrapped.opcode = sugar.substr(0, sugar.size() - std::string_view("-start").size());
    wrapped.result = state->elements[1];
    for (const InstructionId operand : operands) {
      wrapped.parameters.emplace_back(builder_.at(operand).shape, builder_.at(operand).layout);
    }
    std::vector<Attribute> outer = {{"calls", wrapped.name}};
    for (const Attribute& attribute : attributes_) {
      if (attribute.key == "async_execution_thread") {
        wrapped.thread = attribute.value;
        if (wrapped.thread.size() >= 2) wrapped.thread = wrapped.thread.substr(1, wrapped.thread.size() - 2);
        outer.push_back(attribute);
      } else if (attribute.key == "control-predecessors") {
        outer.push_back(attribute);
      } else {
        wrapped.attributes.push_back(attribute);
        if (attribute.key == "metadata" || attribute.key == "backend_config") outer.push_back(attribute);
      }
    }
    attributes_ = std::move(outer);
    wrapped_.push_back(std::move(wrapped));
  }

  void add_wrapped_computations() {
    for (const Wrapped& wrapped : wrapped_) {
      builder_.begin_computation(wrapped.name, false);
      std::vector<InstructionId> parameters;
      for (const auto& [shape, layout] : wrapped.parameters) {
        InstructionDraft draft;
        draft.opcode = Opcode::kParameter;
        draft.opcode_name = opcode_name(draft.opcode);
        draft.shape = shape;
        draft.layout = layout;
        draft.number = static_cast<std::int64_t>(parameters.size());
        parameters.push_back(builder_.add(draft, {}, {}));
      }
      InstructionDraft draft;
      draft.opcode_name = wrapped.opcode;
      draft.opcode = parse_opcode(wrapped.opcode);
      draft.shape = wrapped.result;
      builder_.end_computation(builder_.add(draft, parameters, wrapped.attributes), wrapped.thread);
    }
  }

  void read_parameter_number(InstructionDraft* draft) {
    skip_space();
    const char* const begin = p_;
    std::int64_t number = 0;
    for (; p_ < end_ && scan::is(scan::kDigit, *p_); ++p_) {
      number = number * 10 + (*p_ - '0');
      if (number > INT32_MAX) fail(begin, "the parameter number is too large");
    }
    if (p_ == begin) fail(p_, "found " + found() + ", expected the number of a parameter");
    draft->number = number;
    expect(')', "after the number of a parameter");
  }

  // For an unknown opcode: true if the slot is a list of known instructions; else it is kept raw.
  bool looks_like_operands() const {
    const char* p = past_space(p_);
    if (p < end_ && *p == ')') return true;
    while (p < end_) {
      p = past_space(p);
      if (p < end_ && *p == '(') {
        p = scan::skip_balanced<'(', ')'>(p, end_);
        if (p == nullptr) return false;
        p = past_space(p);
      } else {
        const char* q = scan::skip_class(scan::kIdentifier, p, end_);
        if (q < end_ && q != p && *q == '[') {
          while (q < end_ && *q != ']' && *q != ')') ++q;
          if (q == end_ || *q != ']') return false;
          ++q;
          if (q < end_ && *q == '{') q = scan::skip_balanced<'{', '}'>(q, end_);
          if (q == nullptr) return false;
          p = past_space(q);
        }
      }
      const bool sigil = p < end_ && *p == '%';
      if (sigil) ++p;
      const char* const q = scan::skip_class(scan::kIdentifier, p, end_);
      if (q == p) return false;
      if (!sigil && builder_.find({p, static_cast<std::size_t>(q - p)}) == kNone) return false;
      p = q;
      if (p < end_ && *p == '#') {
        do {
          p = scan::skip_class(scan::kDigit, p + 1, end_);
        } while (p < end_ && *p == '.');
      }
      p = past_space(p);
      if (p < end_ && *p == ')') return true;
      if (p == end_ || *p != ',') return false;
      ++p;
    }
    return false;
  }

  // "fusion(f32[2])": the shape of an operand without its name. XLA's parser passes over it where an opcode takes any
  // number of operands; whether they are enough is asked when callers and callees are compared.
  bool skip_nameless_operand(Opcode opcode) {
    if (opcode != Opcode::kFusion && opcode != Opcode::kCall && opcode != Opcode::kCustomCall) return false;
    const char* const begin = p_;
    skip_space();
    if (peek() != '%' && at_shape()) {
      std::string_view layout;
      read_shape(&layout);
      skip_space();
      if (peek() == ',' || peek() == ')') return true;
    }
    p_ = begin;
    return false;
  }

  void read_operands(int depth, Opcode opcode) {
    skip_space();
    if (peek() == ')') {
      ++p_;
      return;
    }
    for (;;) {
      if (!skip_nameless_operand(opcode)) operand_stack_.push_back(read_operand(depth));
      if (p_ < end_ && *p_ != ',' && *p_ != ')') skip_space();
      if (peek() == ',') {
        ++p_;
        if (peek() == ' ') ++p_;
        continue;
      }
      if (peek() != ')') fail(p_, "found " + found() + ", expected ',' or ')' in the list of operands");
      ++p_;
      return;
    }
  }

  // [shape] [%]name[#i.j] or [shape] opcode(...)
  InstructionId read_operand(int depth) {
    skip_space();
    const char* const begin = p_;
    ShapeId printed = kNone;
    std::string_view layout;
    if (*p_ != '%' && at_shape()) {
      printed = read_shape(&layout);
      skip_space();
    }
    const bool sigil = peek() == '%';
    if (sigil) ++p_;
    const char* const at = p_;
    const std::string_view word = identifier();
    if (word.empty()) fail(p_, "found " + found() + ", expected an operand");
    if (!sigil && peek() == ':') ++p_;
    if (!sigil && (peek() == '(' || (p_ < end_ && *p_ == ' ' && next_is('(')))) {
      if (depth == kMaxExpressionNesting) fail(at, "operand expressions are nested more than 64 deep");
      p_ = begin;
      return read_expression(InstructionDraft(), depth + 1);
    }
    InstructionId id = builder_.find(word);
    if (id == kNone) undefined_operand(word);
    if (peek() == '#' && p_ < end_) id = read_compact_access(id, word);
    if (printed != kNone && !compatible(printed, builder_.at(id).shape)) {
      fail(begin, "the operand '" + excerpt(word, 60) + "' is printed as " + text_of(printed) +
                      ", but it is defined as " + text_of(builder_.at(id).shape));
    }
    return id;
  }

  // %x#1.0: get-tuple-element instructions that the text does not spell out; each is made once per computation.
  InstructionId read_compact_access(InstructionId id, std::string_view base) {
    std::string key(base);
    char separator = '#';
    while (p_ < end_ && *p_ == separator) {
      ++p_;
      const char* const digits = p_;
      p_ = scan::skip_class(scan::kDigit, p_, end_);
      const std::string_view index = slice(digits);
      if (index.empty() || index.size() > 9) {
        fail(digits, "found " + found() + ", expected the index of a tuple element");
      }
      key.push_back(separator);
      key.append(index);
      separator = '.';
      const InstructionId known = builder_.find(key);
      if (known != kNone) {
        id = known;
        continue;
      }
      const Shape& tuple = builder_.shape_at(builder_.at(id).shape);
      std::size_t number = 0;
      for (const char c : index) number = number * 10 + static_cast<std::size_t>(c - '0');
      if (!tuple.is_tuple() || number >= tuple.elements.size()) {
        fail(digits, "there is no element " + std::string(index) + " in '" + excerpt(key, 60) + "', which is " +
                         text_of(builder_.at(id).shape));
      }
      InstructionDraft draft;
      draft.name = builder_.keep(key);  // '#' cannot stand in a written name
      draft.rename = true;
      draft.opcode = Opcode::kGetTupleElement;
      draft.opcode_name = opcode_name(draft.opcode);
      draft.shape = tuple.elements[number];
      const Attribute attribute{"index", index};
      id = builder_.add(draft, Span<const InstructionId>(&id, 1), Span<const Attribute>(&attribute, 1));
    }
    return id;
  }

  // Says where the name is defined, when it is: later, or in another computation.
  [[noreturn]] void undefined_operand(std::string_view word) const {
    const std::string shown = "'" + excerpt(word, 60) + "'";
    const Graph& graph = builder_.graph();
    const Computation& here = graph.computation(graph.num_computations() - 1);
    for (const char* p = p_; p < end_;) {
      // Instructions of this computation: up to the next line that starts with '}'.
      const auto* newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end_ - p)));
      if (newline == nullptr) break;
      p = scan::skip_class(scan::kSpace, newline, end_);
      if (p == end_ || *p == '}') break;
      if (end_ - p > 5 && std::memcmp(p, "ROOT ", 5) == 0) p += 5;
      if (p < end_ && *p == '%') ++p;
      if (static_cast<std::size_t>(end_ - p) <= word.size() || std::memcmp(p, word.data(), word.size()) != 0) continue;
      const char* const after = p + word.size();
      if (scan::is(scan::kIdentifier, *after)) continue;
      const char* const equals = past_space(after);
      if (equals < end_ && *equals == '=') {
        fail(word.data(), "the operand " + shown + " is defined only after this use",
             "operands must stand before the instructions that read them");
      }
    }
    for (InstructionId id = 0; id < here.first; ++id) {
      if (graph.instruction(id).name == word) {
        fail(word.data(), "the operand " + shown + " is not defined in computation '" + excerpt(here.name, 60) +
                              "', only in '" + excerpt(graph.computation(graph.instruction(id).computation).name, 60) +
                              "'");
      }
    }
    fail(word.data(), "the operand " + shown + " is not defined");
  }

  std::vector<SignatureParameter> signature_;
  std::vector<InstructionId> operand_stack_;  // operands of the expressions being read, innermost last
  std::vector<Attribute> attributes_;
  InlineComputations inline_;
  bool found_inline_ = false;  // the instruction that was just read holds a computation that has no name yet
  std::int64_t num_inline_ = 0;
  std::vector<Wrapped> wrapped_;  // to be added at the end
};

}  // namespace

Graph read_hlo_text(std::string text, const std::string& source, graph::Faults faults) {
  return TextReader(std::move(text), source, faults).read();
}

std::vector<std::string_view> split_modules(std::string_view text) {
  std::vector<std::string_view> pieces;
  std::size_t piece = 0;
  bool has_code = false, has_header = false, in_comment = false;
  const auto finish = [&](std::size_t end) {
    if (has_code) pieces.push_back(text.substr(piece, end - piece));
    piece = end;
    has_code = has_header = false;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    std::string_view line = line_at(text, begin);
    const std::size_t next = begin + line.size() + 1;
    while (!line.empty() && scan::is(scan::kSpace, line.back())) line.remove_suffix(1);
    while (!line.empty() && scan::is(scan::kSpace, line.front())) line.remove_prefix(1);
    if (in_comment) {
      in_comment = line.find("*/") == std::string_view::npos;
    } else if (line == "// -----") {
      finish(begin);
    } else if (line.substr(0, 2) == "/*" && line.find("*/") == std::string_view::npos) {
      in_comment = true;
    } else if (!line.empty() && line.substr(0, 2) != "//") {
      const bool header = line.substr(0, 10) == "HloModule ";
      if (header && has_header) finish(begin);
      has_header = has_header || header;
      has_code = true;
    }
    begin = next;
  }
  finish(text.size());
  return pieces;
}

}  // namespace automap::hlo
