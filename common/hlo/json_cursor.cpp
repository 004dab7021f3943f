#include "common/hlo/json_cursor.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace automap::hlo {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

void append_utf8(std::string* out, std::uint32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xc0 | (c >> 6)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | (c >> 12)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    out->push_back(static_cast<char>(0xf0 | (c >> 18)));
    out->push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3f)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  }
}

// Four hex digits at `p`, or -1.
int hex4(std::string_view s, std::size_t p) {
  if (p + 4 > s.size()) return -1;
  int value = 0;
  for (std::size_t i = p; i < p + 4; ++i) {
    const char c = s[i];
    const int digit = is_digit(c)              ? c - '0'
                      : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                      : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                               : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

std::string place_in(std::string_view text, std::size_t position, const std::string& source) {
  position = std::min(position, text.size());
  const std::string_view before = text.substr(0, position);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? position + 1 : position - newline;
  return source + ":" + std::to_string(line) + ":" + std::to_string(column);
}

JsonCursor::JsonCursor(std::string_view text, std::string source, std::deque<std::string>* arena)
    : text_(text), source_(std::move(source)), arena_(arena) {
  if (text_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;
}

const char* JsonCursor::name(Kind kind) {
  switch (kind) {
    case Kind::kObject: return "an object";
    case Kind::kArray: return "an array";
    case Kind::kString: return "a string";
    case Kind::kNumber: return "a number";
    case Kind::kBool: return "true or false";
    case Kind::kNull: return "null";
  }
  return "";
}

void JsonCursor::fail_at(std::size_t position, const std::string& message, const std::string& hint) const {
  throw Error(ErrorKind::kData, place_in(text_, position, source_) + ": " + message, hint);
}

std::string JsonCursor::found() {
  if (at_ >= text_.size()) return "the end of the file";
  const auto c = static_cast<unsigned char>(text_[at_]);
  if (c < 0x20 || c >= 0x7f) return "byte " + std::to_string(c);
  return std::string("'") + text_[at_] + "'";
}

void JsonCursor::fail_expected(const std::string& expected) {
  skip_blanks();
  fail_at(at_, "found " + found() + ", expected " + expected);
}

void JsonCursor::skip_blanks() {
  while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
}

char JsonCursor::next_char() {
  skip_blanks();
  return at_ < text_.size() ? text_[at_] : '\0';
}

std::size_t JsonCursor::position() {
  skip_blanks();
  return at_;
}

void JsonCursor::go_to(std::size_t position) {
  at_ = position;
  first_ = false;
}

JsonCursor::Kind JsonCursor::peek() {
  const char c = next_char();
  if (c == '{') return Kind::kObject;
  if (c == '[') return Kind::kArray;
  if (c == '"') return Kind::kString;
  if (c == '-' || is_digit(c)) return Kind::kNumber;
  if (c == 't' || c == 'f') return Kind::kBool;
  if (c == 'n') return Kind::kNull;
  fail_expected("a JSON value");
}

void JsonCursor::enter_object() {
  if (next_char() != '{') fail_expected("'{'");
  ++at_;
  first_ = true;
}

bool JsonCursor::next_key(std::string_view* key) {
  const bool first = std::exchange(first_, false);
  const char c = next_char();
  if (c == '}') {
    ++at_;
    return false;
  }
  if (!first) {
    if (c != ',') fail_expected("',' or '}'");
    ++at_;
  }
  if (next_char() != '"') fail_expected(first ? "a key in quotes or '}'" : "a key in quotes");
  *key = scan_string();
  if (next_char() != ':') fail_expected("':'");
  ++at_;
  return true;
}

void JsonCursor::enter_array() {
  if (next_char() != '[') fail_expected("'['");
  ++at_;
  first_ = true;
}

bool JsonCursor::next_element() {
  const bool first = std::exchange(first_, false);
  const char c = next_char();
  if (c == ']') {
    ++at_;
    return false;
  }
  if (first) return true;
  if (c != ',') fail_expected("',' or ']'");
  ++at_;
  if (next_char() == ']') fail_expected("a JSON value");
  return true;
}

// Stands on the opening quote.
std::string_view JsonCursor::scan_string() {
  const std::size_t open = at_++;
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') {
    if (static_cast<unsigned char>(text_[at_]) < 0x20) fail_at(at_, "a control character inside a string");
    ++at_;
  }
  if (at_ < text_.size() && text_[at_] == '"') {
    ++at_;
    return text_.substr(begin, at_ - 1 - begin);
  }
  std::string out(text_.substr(begin, at_ - begin));
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      arena_->push_back(std::move(out));
      return arena_->back();
    }
    if (static_cast<unsigned char>(c) < 0x20) fail_at(at_, "a control character inside a string");
    if (c != '\\') {
      out.push_back(c);
      ++at_;
      continue;
    }
    const std::size_t escape = at_++;
    const char e = at_ < text_.size() ? text_[at_++] : '\0';
    switch (e) {
      case '"':
      case '\\':
      case '/': out.push_back(e); break;
      case 'b': out.push_back('\b'); break;
      case 'f': out.push_back('\f'); break;
      case 'n': out.push_back('\n'); break;
      case 'r': out.push_back('\r'); break;
      case 't': out.push_back('\t'); break;
      case 'u': {
        int code = hex4(text_, at_);
        if (code < 0) fail_at(escape, "found \\u without four hex digits");
        at_ += 4;
        auto point = static_cast<std::uint32_t>(code);
        if (point >= 0xd800 && point < 0xdc00 && text_.substr(at_, 2) == "\\u") {
          const int low = hex4(text_, at_ + 2);
          if (low >= 0xdc00 && low < 0xe000) {
            point = 0x10000 + ((point - 0xd800) << 10) + (static_cast<std::uint32_t>(low) - 0xdc00);
            at_ += 6;
          }
        }
        if (point >= 0xd800 && point < 0xe000) point = 0xfffd;  // half of a pair
        append_utf8(&out, point);
        break;
      }
      default:
        fail_at(escape, "found an unknown escape in a string, expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    }
  }
  fail_at(open, "this string never ends", "the file is cut short or damaged");
}

std::string_view JsonCursor::string() {
  if (next_char() != '"') fail_expected("a string");
  return scan_string();
}

std::string_view JsonCursor::number() {
  skip_blanks();
  const std::size_t begin = at_;
  const auto digits = [&] {
    const std::size_t from = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > from;
  };
  if (at_ < text_.size() && text_[at_] == '-') ++at_;
  bool ok = false;
  if (at_ < text_.size() && text_[at_] == '0') {
    ++at_;
    ok = true;
  } else {
    ok = digits();
  }
  if (ok && at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    ok = digits();
  }
  if (ok && at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    ok = digits();
  }
  if (!ok) {
    at_ = begin;
    fail_expected("a number");
  }
  return text_.substr(begin, at_ - begin);
}

bool JsonCursor::boolean() {
  skip_blanks();
  if (text_.substr(at_, 4) == "true") {
    at_ += 4;
    return true;
  }
  if (text_.substr(at_, 5) == "false") {
    at_ += 5;
    return false;
  }
  fail_expected("true or false");
}

void JsonCursor::null() {
  skip_blanks();
  if (text_.substr(at_, 4) != "null") fail_expected("null");
  at_ += 4;
}

std::string_view JsonCursor::skip() {
  skip_blanks();
  const std::size_t begin = at_;
  // One character per open bracket: nesting costs memory, not stack.
  std::string open;
  std::string_view key;
  do {
    bool entered = false;
    switch (peek()) {
      case Kind::kObject:
        enter_object();
        open.push_back('{');
        entered = true;
        break;
      case Kind::kArray:
        enter_array();
        open.push_back('[');
        entered = true;
        break;
      case Kind::kString: {
        // Checked, but nothing kept.
        const std::size_t kept = arena_->size();
        scan_string();
        if (arena_->size() > kept) arena_->pop_back();
        break;
      }
      case Kind::kNumber: number(); break;
      case Kind::kBool: boolean(); break;
      case Kind::kNull: null(); break;
    }
    if (!entered) first_ = false;
    while (!open.empty()) {
      if (open.back() == '{') {
        const std::size_t kept = arena_->size();
        const bool more = next_key(&key);
        if (arena_->size() > kept) arena_->pop_back();
        if (more) break;
      } else if (next_element()) {
        break;
      }
      open.pop_back();
    }
  } while (!open.empty());
  return text_.substr(begin, at_ - begin);
}

void JsonCursor::end_document() {
  skip_blanks();
  if (at_ < text_.size()) fail_expected("nothing more");
}

}  // namespace automap::hlo
