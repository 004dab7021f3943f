// A cursor over the characters and words of HLO text, with which hlo_text.cpp reads computations.
//
// Everything that is called for each instruction is defined here, so that it is inlined into the reader.
#pragma once

#include <string>
#include <string_view>

#include "common/base/printable.h"
#include "common/graph/graph_builder.h"
#include "common/graph/scan.h"

namespace automap::hlo {

namespace scan = graph::scan;

// The line of `text` that starts at `begin`, without its end.
std::string_view line_at(std::string_view text, std::size_t begin);

// A place in the text, with functions that read from there. The text belongs to the graph that `builder_` makes.
class TextCursor {
 protected:
  // Blanks the prefixes that a logger printed in front of the lines.
  TextCursor(std::string text, const std::string& source, graph::Faults faults);

  static constexpr const char* kExportHint =
      "HLO text starts with 'HloModule'; from JAX: jax.jit(step).lower(*args).as_text('hlo', debug_info=True)";

  // ---- characters and words

  char peek() const { return p_ < end_ ? *p_ : '\0'; }

  void skip_space() {
    for (;;) {
      p_ = scan::skip_class(scan::kSpace, p_, end_);
      if (p_ == end_ || *p_ != '/') return;
      const char* const next = scan::skip_comment(p_, end_);
      if (next == nullptr) fail(p_, "a comment starts here and is not closed: expected '*/'");
      if (next == p_) return;
      p_ = next;
    }
  }

  std::string_view identifier() {
    const char* const begin = p_;
    p_ = scan::skip_class(scan::kIdentifier, p_, end_);
    return {begin, static_cast<std::size_t>(p_ - begin)};
  }

  // A name without its sigil. One without a sigil may end in a ':', as in "HloModule step:", which is no part of it.
  std::string_view name(const char* expected) {
    const bool sigil = peek() == '%';
    if (sigil) ++p_;
    const std::string_view word = identifier();
    if (word.empty()) fail(p_, std::string("found ") + found() + ", expected " + expected);
    if (!sigil && peek() == ':') ++p_;
    return word;
  }

  // Looks past space and comments without moving.
  bool next_is(char c) const {
    const char* p = past_space(p_);
    return p < end_ && *p == c;
  }
  bool next_is_name() const {
    const char* p = past_space(p_);
    return p < end_ && (*p == '%' || scan::is(scan::kIdentifier, *p));
  }
  const char* past_space(const char* p) const {
    for (;;) {
      p = scan::skip_class(scan::kSpace, p, end_);
      if (p == end_ || *p != '/') return p;
      const char* const next = scan::skip_comment(p, end_);
      if (next == nullptr || next == p) return p;
      p = next;
    }
  }

  void expect(char c, const char* where) {
    skip_space();
    if (peek() != c || p_ == end_) fail(p_, std::string("found ") + found() + ", expected '" + c + "' " + where);
    ++p_;
  }

  // The text at p_, for errors.
  std::string found() const;

  [[noreturn]] void fail(const char* at, const std::string& message, const std::string& hint = "") const {
    builder_.fail({at, 0}, message, hint);
  }

  std::string_view slice(const char* begin) const { return {begin, static_cast<std::size_t>(p_ - begin)}; }

  // Throws an error that tells people that this is another form (MLIR, JSON, a protobuf's text form).
  void refuse_other_formats() const;

  void skip_string() {
    const char* const next = scan::skip_string(p_, end_);
    if (next == nullptr) fail(p_, "the string that starts here is not closed", "is the file truncated?");
    p_ = next;
  }

  template <char Open, char Close>
  void skip_balanced() {
    const char* const next = scan::skip_balanced<Open, Close>(p_, end_);
    if (next == nullptr) {
      fail(p_,
           std::string("the '") + Open + "' here is not closed: expected '" + Close + "' before the end of the file",
           "is the file truncated?");
    }
    p_ = next;
  }

  // key=value; p_ stands after the comma. The value is one balanced piece of text, kept raw.
  graph::Attribute read_attribute() {
    skip_space();
    graph::Attribute attribute;
    attribute.key = identifier();
    if (attribute.key.empty()) fail(p_, "found " + found() + ", expected the name of an attribute after ','");
    if (peek() != '=') {
      skip_space();
      if (peek() != '=') {
        fail(p_, "found " + found() + ", expected '=' after the attribute name '" + excerpt(attribute.key, 60) + "'");
      }
    }
    ++p_;
    if (p_ < end_ && (scan::is(scan::kSpace, *p_) || *p_ == '/')) skip_space();
    const char* const begin = p_;
    if (peek() == '{') {
      skip_balanced<'{', '}'>();
    } else if (peek() == '"') {
      skip_string();
    } else {
      skip_bare_value();
      if (attribute.key == "literal" && peek() == ' ') {  // "literal=s32[] 1": a shape, then its value
        skip_space();
        if (p_ < end_ && *p_ != ',' && *p_ != '}') skip_bare_value();
      }
    }
    attribute.value = slice(begin);
    if (attribute.value.empty()) {
      fail(p_, "found " + found() + ", expected the value of attribute '" + excerpt(attribute.key, 60) + "'");
    }
    return attribute;
  }

  // LT, %add, b01f_01io->b01f, [2,4]<=[8]T(1,0), mesh['a'=2]{'a'}, mesh['a'=2], device_ids=(1,0) {'a'}, (f32[2], s32[])
  void skip_bare_value() {
    const bool mesh = std::string_view(p_, static_cast<std::size_t>(end_ - p_)).substr(0, 5) == "mesh[";
    while (p_ < end_) {
      switch (*p_) {
        case ' ':
        case '\n':
        case '\t':
        case '\r':
        case '\v':
        case '\f':
          // "mesh['a'=2] {'a'}": nothing else that may follow a value starts with a brace.
          if (!next_is('{')) return;
          skip_space();
          break;
        case ',':
          if (!mesh || !skip_comma_before("device_ids")) return;
          break;
        case '\0':
        case '}':
        case ')':
        case ']': return;
        case '{': skip_balanced<'{', '}'>(); break;
        case '[': skip_balanced<'[', ']'>(); break;
        case '(': skip_balanced<'(', ')'>(); break;
        case '"':
        case '\'': skip_string(); break;
        case '/':
          if (scan::skip_comment(p_, end_) != p_) return;
          ++p_;
          break;
        default: ++p_;
      }
    }
  }

  // Stays where it is when another word follows.
  bool skip_comma_before(std::string_view word) {
    const char* const comma = p_++;
    skip_space();
    if (std::string_view(p_, static_cast<std::size_t>(end_ - p_)).substr(0, word.size()) == word) return true;
    p_ = comma;
    return false;
  }

  graph::GraphBuilder builder_;
  std::string_view text_;
  const char* p_ = nullptr;
  const char* end_ = nullptr;
};

}  // namespace automap::hlo
