#include "common/base/printable.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <iterator>

#include "common/base/text_table.h"

namespace automap {
namespace {

struct Range {
  char32_t first, last;
};

// Unicode 15, sorted. Apart from controls, separators and annotations: Default_Ignorable_Code_Point.
constexpr Range kNotShown[] = {
    {0x0000, 0x001f},    // C0
    {0x007f, 0x009f},    // DEL, C1
    {0x00ad, 0x00ad},    // soft hyphen
    {0x034f, 0x034f},    // combining grapheme joiner
    {0x061c, 0x061c},    // Arabic letter mark
    {0x115f, 0x1160},    // Hangul fillers
    {0x17b4, 0x17b5},    // Khmer inherent vowels
    {0x180b, 0x180f},    // Mongolian selectors
    {0x200b, 0x200f},    // zero width, directional marks
    {0x2028, 0x202e},    // line and paragraph separators, embeddings, overrides
    {0x2060, 0x206f},    // invisible operators, isolates
    {0x3164, 0x3164},    // Hangul filler
    {0xfe00, 0xfe0f},    // variation selectors
    {0xfeff, 0xfeff},    // byte order mark
    {0xffa0, 0xffa0},    // Hangul filler, half width
    {0xfff0, 0xfffb},    // unassigned, interlinear annotations
    {0x1bca0, 0x1bca3},  // shorthand format controls
    {0x1d173, 0x1d17a},  // musical format controls
    {0xe0000, 0xe0fff},  // tags, variation selectors
};

bool is_shown(char32_t c) {
  if (c >= 0x20 && c < 0x7f) return true;
  const auto* range = std::lower_bound(std::begin(kNotShown), std::end(kNotShown), c,
                                       [](const Range& r, char32_t value) { return r.last < value; });
  return range == std::end(kNotShown) || c < range->first;
}

// The code point at `at` and its length; length 0: no valid UTF-8 begins here.
struct Decoded {
  char32_t code = 0;
  std::size_t length = 0;
};

Decoded decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < length) return {};
  char32_t code = lead & (0x7fu >> length);
  for (std::size_t i = at + 1; i < at + length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  // Longer than needed, surrogates, beyond Unicode.
  static constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {};
  return {code, length};
}

void append_hex(std::uint32_t value, int digits, std::string* out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) *out += "0123456789abcdef"[(value >> shift) & 15];
}

// The length of an escape such as ours at `at`, 0 when there is none.
std::size_t escape_length(std::string_view text, std::size_t at) {
  if (text[at] != '\\' || at + 1 >= text.size()) return 0;
  const char kind = text[at + 1];
  if (kind == 'n' || kind == 'r' || kind == 't' || kind == '\\') return 2;
  const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  if (digits == 0 || text.size() - at < 2 + digits) return 0;
  const std::string_view hex = text.substr(at + 2, digits);
  const bool all = std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  return all ? 2 + digits : 0;
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

void append_escape(char32_t c, std::string* out) {
  switch (c) {
    case '\n': *out += "\\n"; return;
    case '\r': *out += "\\r"; return;
    case '\t': *out += "\\t"; return;
    default: break;
  }
  *out += c < 0x80 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
  append_hex(c, c < 0x80 ? 2 : c < 0x10000 ? 4 : 8, out);
}

std::string made_printable(std::string_view text, bool keep_lines) {
  if (is_plain(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 16);
  for (std::size_t at = 0; at < text.size();) {
    if (keep_lines && text[at] == '\n') {
      out += text[at++];
    } else {
      at = append_printable(text, at, &out);
    }
  }
  return out;
}

}  // namespace

std::size_t append_printable(std::string_view text, std::size_t at, std::string* out) {
  if (const std::size_t length = escape_length(text, at); length > 0) {
    *out += text.substr(at, length);
    return at + length;
  }
  const Decoded found = decode(text, at);
  if (found.length == 0) {
    *out += "\\x";
    append_hex(static_cast<unsigned char>(text[at]), 2, out);
    return at + 1;
  }
  if (is_shown(found.code)) {
    *out += text.substr(at, found.length);
  } else {
    append_escape(found.code, out);
  }
  return at + found.length;
}

std::string printable(std::string_view text) {
  return made_printable(text, false);
}

std::string printable_lines(std::string_view text) {
  return made_printable(text, true);
}

std::string excerpt(std::string_view text, int width) {
  std::string out, kept;  // kept: what still fits with the "…" behind it
  int columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::string piece;
    at = append_printable(text, at, &piece);
    columns += display_width(piece);
    if (columns > width) return kept + "…";
    out += piece;
    if (columns < width) kept = out;
  }
  return out;
}

std::string printable_json(std::string json) {
  const auto harmless = [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\n'; };
  if (std::all_of(json.begin(), json.end(), harmless)) return json;
  std::string out;
  out.reserve(json.size() + 64);
  for (std::size_t at = 0; at < json.size();) {
    const Decoded found = decode(json, at);
    const bool layout = json[at] == '\n' || json[at] == '\t' || json[at] == '\r';
    const std::size_t length = std::max<std::size_t>(found.length, 1);
    if (found.length == 0 || layout || is_shown(found.code)) {
      out.append(json, at, length);
    } else if (found.code < 0x10000) {
      out += "\\u";
      append_hex(found.code, 4, &out);
    } else {
      const std::uint32_t above = found.code - 0x10000;
      out += "\\u";
      append_hex(0xd800 + (above >> 10), 4, &out);
      out += "\\u";
      append_hex(0xdc00 + (above & 0x3ff), 4, &out);
    }
    at += length;
  }
  return out;
}

}  // namespace automap
