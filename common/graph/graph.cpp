#include "common/graph/graph.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/scan.h"

namespace automap::graph {
namespace {

std::optional<std::string_view> find_key(Span<const Attribute> attributes, std::string_view key) {
  for (const Attribute& a : attributes) {
    if (a.key == key) return a.value;
  }
  return std::nullopt;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// C escapes, as XLA prints them. An escape we do not know keeps its backslash.
std::string unescape(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\' || i + 1 == s.size()) {
      out.push_back(s[i]);
      continue;
    }
    const char c = s[++i];
    switch (c) {
      case 'n': out.push_back('\n'); break;
      case 't': out.push_back('\t'); break;
      case 'r': out.push_back('\r'); break;
      case '"':
      case '\'':
      case '\\': out.push_back(c); break;
      case 'x': {
        int value = 0, digits = 0;
        while (digits < 2 && i + 1 < s.size() && hex_digit(s[i + 1]) >= 0) {
          value = value * 16 + hex_digit(s[++i]);
          ++digits;
        }
        if (digits == 0) {
          out.append("\\x");
        } else {
          out.push_back(static_cast<char>(value));
        }
        break;
      }
      default:
        if (c >= '0' && c <= '7') {
          int value = c - '0';
          for (int digits = 1; digits < 3 && i + 1 < s.size() && s[i + 1] >= '0' && s[i + 1] <= '7'; ++digits) {
            value = value * 8 + (s[++i] - '0');
          }
          out.push_back(static_cast<char>(value));
        } else {
          out.push_back('\\');
          out.push_back(c);
        }
    }
  }
  return out;
}

bool is_separator(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == '{' || c == '}';
}

// The raw value of `field` in metadata={a="x" b=3 c={...}}; strings come without their quotes, still escaped.
std::string_view metadata_field(std::string_view raw, std::string_view field) {
  std::size_t i = 0;
  int depth = 0;
  while (i < raw.size()) {
    const char c = raw[i];
    if (c == '{') ++depth;
    if (c == '}') --depth;
    if (is_separator(c)) {
      ++i;
      continue;
    }
    const std::size_t key_begin = i;
    while (i < raw.size() && raw[i] != '=' && !is_separator(raw[i]) && raw[i] != '"') ++i;
    const std::string_view key = raw.substr(key_begin, i - key_begin);
    if (i < raw.size() && raw[i] == '=') ++i;
    std::string_view value;
    if (i < raw.size() && raw[i] == '"') {
      const std::size_t begin = ++i;
      while (i < raw.size() && raw[i] != '"') i += raw[i] == '\\' ? 2 : 1;
      const std::size_t end = std::min(i, raw.size());
      value = raw.substr(begin, end - begin);
      i = end + 1;
    } else {
      const std::size_t begin = i;
      while (i < raw.size() && !is_separator(raw[i])) ++i;
      value = raw.substr(begin, i - begin);
    }
    if (depth == 1 && key == field) return value;
  }
  return {};
}

}  // namespace

bool Graph::in_text(const char* at) const {
  const std::less_equal<const char*> le;
  return source_ != nullptr && at != nullptr && le(source_->data(), at) && le(at, source_->data() + source_->size());
}

std::string Graph::place(std::string_view where) const {
  if (!in_text(where.data())) return source_name_.empty() ? "" : source_name_ + ": ";
  const char* const begin = source_->data();
  const char* line_begin = where.data();
  while (line_begin > begin && line_begin[-1] != '\n') --line_begin;
  return source_name_ + ":" + std::to_string(1 + scan::count_byte('\n', begin, where.data())) + ":" +
         std::to_string(where.data() - line_begin + 1) + ": ";
}

void Graph::fail(std::string_view where, const std::string& message, const std::string& hint) const {
  if (!in_text(where.data())) throw Error(ErrorKind::kData, place(where) + message, hint);
  const char* const at = where.data();
  const char* const end = source_->data() + source_->size();
  const char* line_begin = at;
  while (line_begin > source_->data() && line_begin[-1] != '\n') --line_begin;
  const auto column = static_cast<std::size_t>(at - line_begin);
  const auto* line_end = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
  if (line_end == nullptr) line_end = end;
  // A window of the line with the place in it; multi-megabyte lines are usual in HLO.
  constexpr std::size_t kExcerptWidth = 80;
  const std::size_t first = column > kExcerptWidth * 3 / 4 ? column - kExcerptWidth / 2 : 0;
  const std::size_t width = std::min(kExcerptWidth, static_cast<std::size_t>(line_end - line_begin) - first);
  std::string window(line_begin + first, width);
  std::replace(window.begin(), window.end(), '\t', ' ');
  const std::string before = printable(std::string_view(window).substr(0, column - first));
  const std::string behind = printable(std::string_view(window).substr(column - first));
  throw Error(ErrorKind::kData, place(where) + message, hint,
              {before + behind, std::string(static_cast<std::size_t>(display_width(before)), ' ') + "^"});
}

bool Graph::is_faulty(InstructionId id) const {
  return std::binary_search(faulty_.begin(), faulty_.end(), id);
}

std::optional<std::string_view> Graph::header_attribute(std::string_view key) const {
  return find_key(Span<const Attribute>(header_), key);
}

std::string Graph::shape_with_layout(InstructionId id) const {
  const std::string_view text = shape_of(id).text, layout = instruction(id).layout;
  if (!layout.empty() && layout.front() != '{') return std::string(layout);
  return std::string(text).append(layout);
}

Span<const InstructionId> Graph::operands(InstructionId id) const {
  const Instruction& i = instruction(id);
  return {operands_.data() + i.first_operand, static_cast<std::size_t>(i.num_operands)};
}

Span<const ComputationId> Graph::called(InstructionId id) const {
  const Instruction& i = instruction(id);
  return {called_.data() + i.first_called, static_cast<std::size_t>(i.num_called)};
}

Span<const Attribute> Graph::attributes(InstructionId id) const {
  const Instruction& i = instruction(id);
  return {attributes_.data() + i.first_attribute, static_cast<std::size_t>(i.num_attributes)};
}

std::optional<std::string_view> Graph::attribute(InstructionId id, std::string_view key) const {
  return find_key(attributes(id), key);
}

std::string Graph::op_name(InstructionId id) const {
  return metadata(id, "op_name");
}

std::string Graph::metadata(InstructionId id, std::string_view field) const {
  const std::optional<std::string_view> raw = attribute(id, "metadata");
  if (!raw) return {};
  return unescape(metadata_field(*raw, field));
}

Span<const InstructionId> Graph::users(InstructionId id) const {
  if (first_user_.empty()) {
    // Counting sort of the edges by operand. Instructions come in ascending order, so a repeated operand of one
    // instruction is always the last user noted for it.
    const std::size_t n = instructions_.size();
    std::vector<InstructionId> last(n, kNone);
    std::vector<std::int32_t> first(n + 1, 0);
    for (std::size_t user = 0; user < n; ++user) {
      for (const InstructionId operand : operands(static_cast<InstructionId>(user))) {
        const auto o = static_cast<std::size_t>(operand);
        if (last[o] == static_cast<InstructionId>(user)) continue;
        last[o] = static_cast<InstructionId>(user);
        ++first[o + 1];
      }
    }
    for (std::size_t i = 0; i < n; ++i) first[i + 1] += first[i];
    users_.resize(static_cast<std::size_t>(first[n]));
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    std::fill(last.begin(), last.end(), kNone);
    for (std::size_t user = 0; user < n; ++user) {
      for (const InstructionId operand : operands(static_cast<InstructionId>(user))) {
        const auto o = static_cast<std::size_t>(operand);
        if (last[o] == static_cast<InstructionId>(user)) continue;
        last[o] = static_cast<InstructionId>(user);
        users_[static_cast<std::size_t>(next[o]++)] = static_cast<InstructionId>(user);
      }
    }
    first_user_ = std::move(first);
  }
  const auto i = static_cast<std::size_t>(id);
  return {users_.data() + first_user_[i], static_cast<std::size_t>(first_user_[i + 1] - first_user_[i])};
}

}  // namespace automap::graph
