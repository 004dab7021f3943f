#include "common/hlo/hlo_text_proto.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/graph/scan.h"
#include "common/hlo/json_cursor.h"

namespace automap::hlo::proto {

namespace scan = graph::scan;

namespace {

// The tokens of the text format: identifiers and numbers ("words"), strings, single characters.
class Tokens {
 public:
  Tokens(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;
  }

  // '\0' at the end; a letter, digit, '-' or '.' starts a word.
  char peek() {
    while (at_ < text_.size()) {
      if (scan::is(scan::kSpace, text_[at_])) {
        ++at_;
      } else if (text_[at_] == '#') {
        const std::size_t newline = text_.find('\n', at_);
        at_ = newline == std::string_view::npos ? text_.size() : newline;
      } else {
        return text_[at_];
      }
    }
    return '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool at_word() { return scan::is(scan::kIdentifier, peek()) || peek() == '+'; }
  // A name, a number, or a minus sign with one ("-inf", "1e+5").
  std::string_view word() {
    peek();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (scan::is(scan::kIdentifier, text_[at_]) ||
            (text_[at_] == '+' && at_ > begin && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))) {
      ++at_;
    }
    if (at_ == begin) fail_expected("a name or a number");
    return text_.substr(begin, at_ - begin);
  }
  bool at_string() { return peek() == '"' || peek() == '\''; }
  // Adjacent strings are one.
  std::string string() {
    std::string out;
    while (at_string()) piece(&out);
    return out;
  }

  std::size_t position() {
    peek();
    return at_;
  }
  void go_to(std::size_t position) { at_ = position; }
  bool at_end() {
    peek();
    return at_ == text_.size();
  }

  [[noreturn]] void fail_at(std::size_t position, const std::string& message, const std::string& hint = "") const {
    throw Error(ErrorKind::kData, place_in(text_, position, source_) + ": " + message, hint);
  }
  [[noreturn]] void fail_expected(const std::string& expected) {
    const char c = peek();
    const auto u = static_cast<unsigned char>(c);
    const std::string found = at_ >= text_.size()    ? "the end of the file"
                              : u < 0x20 || u > 0x7e ? "byte " + std::to_string(u)
                                                     : std::string("'") + c + "'";
    fail_at(at_, "found " + found + ", expected " + expected);
  }

 private:
  void piece(std::string* out) {
    const std::size_t open = at_;
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote) {
      const char c = text_[at_++];
      if (c == '\n') fail_at(open, "this string does not end on its line");
      if (c != '\\') {
        out->push_back(c);
        continue;
      }
      const char e = at_ < text_.size() ? text_[at_++] : '\0';
      switch (e) {
        case 'n': out->push_back('\n'); break;
        case 'r': out->push_back('\r'); break;
        case 't': out->push_back('\t'); break;
        case 'a': out->push_back('\a'); break;
        case 'b': out->push_back('\b'); break;
        case 'f': out->push_back('\f'); break;
        case 'v': out->push_back('\v'); break;
        case '\\':
        case '\'':
        case '"':
        case '?': out->push_back(e); break;
        default: {
          int base = 8, digits = 3;
          if (e == 'x' || e == 'X') {
            base = 16;
            digits = 2;
          } else {
            --at_;
          }
          const char* const begin = text_.data() + at_;
          const char* const end = begin + std::min<std::size_t>(static_cast<std::size_t>(digits), text_.size() - at_);
          unsigned value = 0;
          const auto parsed = std::from_chars(begin, end, value, base);
          if (parsed.ptr == begin) fail_at(at_ - 1, "unknown escape in a string");
          at_ += static_cast<std::size_t>(parsed.ptr - begin);
          out->push_back(static_cast<char>(value & 0xff));
        }
      }
    }
    if (at_ >= text_.size()) fail_at(open, "this string never ends", "the file is cut short or damaged");
    ++at_;
  }

  std::string_view text_;
  std::string source_;
  std::size_t at_ = 0;
};

class TextDecoder {
 public:
  TextDecoder(Tokens* tokens, std::size_t input_bytes, Strings* strings)
      : tokens_(*tokens), strings_(*strings), budget_(input_bytes) {}

  // The fields up to `close` ('\0': the end of the text), which is left standing.
  void message(const Schema& schema, void* out, char close, int depth) {
    if (depth > kMaxMessageDepth) {
      fail_here(std::string(schema.message) + " nested more than " + std::to_string(kMaxMessageDepth) + " levels deep");
    }
    while (tokens_.peek() != close) {
      const Field* const field = name(schema);
      const bool colon = tokens_.take(':');
      if (field == nullptr) {
        skip_value();
      } else if (tokens_.peek() == '[') {
        if (!field->repeated) fail_here(describe(schema, *field) + " is one value, found a list");
        tokens_.take('[');
        while (!tokens_.take(']')) {
          value(*field, schema, field->member(out), depth);
          if (tokens_.peek() != ']' && !tokens_.take(',')) tokens_.fail_expected("',' or ']'");
        }
      } else {
        if (!colon && field->store != Store::kMessage) tokens_.fail_expected("':'");
        value(*field, schema, field->member(out), depth);
      }
      if (!tokens_.take(',')) tokens_.take(';');
    }
  }

  // One value of any kind, nested to any depth: open brackets are kept in a list, not on the stack.
  void skip_value() {
    std::string open;
    do {
      const char c = tokens_.peek();
      if (c == '{' || c == '<' || c == '[') {
        tokens_.take(c);
        open.push_back(c == '{' ? '}' : c == '<' ? '>' : ']');
      } else if (!open.empty() && c == open.back()) {
        tokens_.take(c);
        open.pop_back();
      } else if (tokens_.at_string()) {
        tokens_.string();
      } else if (!open.empty() && (c == ':' || c == ',' || c == ';' || c == '/')) {
        tokens_.take(c);
      } else {
        tokens_.word();
      }
    } while (!open.empty());
  }

  // nullptr when unknown. "[type.googleapis.com/x]" names an extension: unknown.
  const Field* name(const Schema& schema) {
    if (tokens_.take('[')) {
      while (!tokens_.take(']')) {
        if (!tokens_.take('/')) tokens_.word();
      }
      return nullptr;
    }
    if (!tokens_.at_word()) tokens_.fail_expected("the name of a field");
    return schema.find(tokens_.word());
  }

 private:
  void value(const Field& field, const Schema& schema, void* member, int depth) {
    if (field.store == Store::kMessage) {
      const char close = tokens_.take('{') ? '}' : tokens_.take('<') ? '>' : '\0';
      if (close == '\0') tokens_.fail_expected("'{' of " + describe(schema, field));
      const Schema& sub = field.message_schema();
      if (field.repeated) spend(sub.bytes);
      message(sub, field.add_message(member), close, depth + 1);
      tokens_.take(close);
      return;
    }
    const std::size_t at = tokens_.position();
    if (field.store == Store::kText || field.store == Store::kTexts) {
      if (!tokens_.at_string()) tokens_.fail_expected("a string for " + describe(schema, field));
      strings_.push_back(tokens_.string());
      if (field.store == Store::kText) {
        *static_cast<std::string_view*>(member) = strings_.back();
      } else {
        spend(sizeof(std::string_view));
        static_cast<std::vector<std::string_view>*>(member)->push_back(strings_.back());
      }
      return;
    }
    if (!tokens_.at_word()) tokens_.fail_expected("a value of " + describe(schema, field));
    const std::string_view word = tokens_.word();
    if (field.store == Store::kDouble || field.store == Store::kDoubles) {
      const double v = real(word, field, schema, at);
      if (field.store == Store::kDouble) {
        *static_cast<double*>(member) = v;
      } else {
        auto& values = *static_cast<std::vector<double>*>(member);
        if (!field.literal_data || values.size() <= kMaxLiteralElements) values.push_back(v);
      }
      return;
    }
    const std::int64_t v = integer(word, field, schema, at);
    switch (field.store) {
      case Store::kInt64: *static_cast<std::int64_t*>(member) = v; break;
      case Store::kInt32: *static_cast<std::int32_t*>(member) = static_cast<std::int32_t>(v); break;
      case Store::kBool: *static_cast<bool*>(member) = v != 0; break;
      default: {
        auto& values = *static_cast<Ints*>(member);
        if (!field.literal_data || values.size() <= kMaxLiteralElements) values.push_back(v);
      }
    }
  }

  std::int64_t integer(std::string_view word, const Field& field, const Schema& schema, std::size_t at) const {
    if (field.wire == Wire::kBool) {
      if (word == "true" || word == "True" || word == "t" || word == "1") return 1;
      if (word == "false" || word == "False" || word == "f" || word == "0") return 0;
    }
    if (field.wire == Wire::kEnum && !scan::is(scan::kDigit, word[0]) && word[0] != '-') {
      for (const EnumValue* v = field.enum_values.begin; v != field.enum_values.end; ++v) {
        if (v->name == word) return v->number;
      }
      return -1;  // a value of the future
    }
    const bool negative = word[0] == '-';
    std::string_view digits = negative ? word.substr(1) : word;
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
      base = 16;
      digits.remove_prefix(2);
    } else if (digits.size() > 1 && digits[0] == '0') {
      base = 8;
    }
    std::uint64_t bits = 0;
    const char* const end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, bits, base);
    const bool fits = !negative || bits <= std::uint64_t{1} << 63;
    if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != end || !fits) {
      tokens_.fail_at(at,
                      describe(schema, field) + ": found '" + excerpt(word, 40) + "', expected an integer of 64 bits");
    }
    return static_cast<std::int64_t>(negative ? 0 - bits : bits);
  }

  double real(std::string_view word, const Field& field, const Schema& schema, std::size_t at) const {
    std::string copy(word.substr(0, 400));
    if (copy.size() > 1 && (copy.back() == 'f' || copy.back() == 'F') && copy.find("inf") == std::string::npos) {
      copy.pop_back();
    }
    char* end = nullptr;
    const double v = std::strtod(copy.c_str(), &end);
    if (copy.empty() || end != copy.c_str() + copy.size()) {
      tokens_.fail_at(at, describe(schema, field) + ": found '" + excerpt(word, 40) + "', expected a number");
    }
    return v;
  }

  static std::string describe(const Schema& schema, const Field& field) {
    return std::string(schema.message) + "." + std::string(field.name);
  }
  [[noreturn]] void fail_here(const std::string& text) { tokens_.fail_at(tokens_.position(), text); }
  void spend(std::size_t bytes) {
    if (!budget_.take(bytes)) fail_here("far more messages than a module of this size can hold");
  }

  Tokens& tokens_;
  Strings& strings_;
  Budget budget_;
};

struct Body {
  std::size_t begin = 0;
  char close = '\0';
};

// The messages with a field "computations", nearest to the outside first.
std::vector<Body> find_text_modules(Tokens* tokens, TextDecoder* decoder) {
  constexpr int kMaxWrappers = 4;
  std::vector<Body> level = {{tokens->position(), '\0'}};
  for (int depth = 0; depth <= kMaxWrappers && !level.empty(); ++depth) {
    std::vector<Body> modules, next;
    for (const Body& body : level) {
      tokens->go_to(body.begin);
      bool is_module = false;
      std::vector<Body> inner;
      while (tokens->peek() != body.close) {
        if (!tokens->at_word()) {
          if (tokens->peek() != '[') tokens->fail_expected("the name of a field");
          decoder->skip_value();  // an extension's name
        } else if (tokens->word() == "computations") {
          is_module = true;
        }
        tokens->take(':');
        const char c = tokens->peek();
        const std::size_t at = tokens->position();
        if ((c == '{' || c == '<') && inner.size() < 65536) inner.push_back({at + 1, c == '{' ? '}' : '>'});
        decoder->skip_value();
        if (!tokens->take(',')) tokens->take(';');
      }
      if (depth == 0 && !tokens->at_end()) tokens->fail_expected("the name of a field");
      if (is_module) modules.push_back(body);
      if (!is_module) next.insert(next.end(), inner.begin(), inner.end());
    }
    if (!modules.empty()) return modules;
    level = std::move(next);
  }
  return {};
}

}  // namespace

HloModuleProto decode_text_proto(std::string_view text, const std::string& source, Strings* strings) {
  Tokens tokens(text, source);
  TextDecoder decoder(&tokens, text.size(), strings);
  const std::vector<Body> modules = find_text_modules(&tokens, &decoder);
  if (modules.empty()) {
    throw Error(ErrorKind::kData, source + ": a protobuf in text format, but no HloModuleProto with computations in it",
                "accepted are HloProto, HloModuleProto, HloSnapshot and messages that wrap one of them");
  }
  if (modules.size() > 1) {
    tokens.fail_at(modules[1].begin, "a second HLO module; the first is at " + place_in(text, modules[0].begin, source),
                   "give one module per file");
  }
  tokens.go_to(modules[0].begin);
  HloModuleProto module;
  decoder.message(module_schema(), &module, modules[0].close, 0);
  return module;
}

}  // namespace automap::hlo::proto
