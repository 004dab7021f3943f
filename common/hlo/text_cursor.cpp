#include "common/hlo/text_cursor.h"

#include <cstring>
#include <utility>

namespace automap::hlo {
namespace {

constexpr std::size_t kMaxGlogProbeLines = 64;

// The length of "I0101 12:00:00.123456   4242 file.cc:186] " at the start of a line, 0 when it has none.
std::size_t glog_prefix(std::string_view line) {
  const char* p = line.data();
  const char* const end = p + line.size();
  const auto digits = [&](int least) {
    const char* const begin = p;
    p = scan::skip_class(scan::kDigit, p, end);
    return p - begin >= least;
  };
  const auto one = [&](char c) { return p < end && *p++ == c; };
  if (p == end || std::memchr("IWEF", *p, 4) == nullptr) return 0;
  ++p;
  if (!digits(4) || !one(' ') || !digits(2) || !one(':') || !digits(2) || !one(':') || !digits(2) || !one('.') ||
      !digits(1) || !one(' ')) {
    return 0;
  }
  p = scan::skip_class(scan::kSpace, p, end);
  if (!digits(1) || !one(' ')) return 0;
  while (p < end && *p != ':' && *p != ' ' && *p != ']') ++p;
  if (!one(':') || !digits(1) || !one(']')) return 0;
  if (p < end && *p == ' ') ++p;
  return static_cast<std::size_t>(p - line.data());
}

// Blanks glog prefixes, so that columns in errors stay true, and log lines before the module.
void blank_glog_prefixes(std::string* text) {
  std::size_t probe = 0;
  bool found = false;
  for (std::size_t lines = 0; probe < text->size() && lines < kMaxGlogProbeLines && !found; ++lines) {
    const std::string_view line = line_at(*text, probe);
    found = glog_prefix(line) != 0;
    probe += line.size() + 1;
  }
  if (!found) return;
  bool in_module = false;
  const bool has_header = text->find("HloModule") != std::string::npos;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::string_view line = line_at(*text, begin);
    const std::size_t prefix = glog_prefix(line);
    in_module = in_module || !has_header || line.substr(prefix, 9) == "HloModule";
    std::memset(text->data() + begin, ' ', in_module ? prefix : line.size());
    begin += line.size() + 1;
  }
}

}  // namespace

std::string_view line_at(std::string_view text, std::size_t begin) {
  const std::size_t end = text.find('\n', begin);
  return text.substr(begin, end == std::string_view::npos ? text.size() - begin : end - begin);
}

TextCursor::TextCursor(std::string text, const std::string& source, graph::Faults faults) : builder_(source, faults) {
  blank_glog_prefixes(&text);
  text_ = builder_.adopt(std::move(text));
  p_ = text_.data();
  end_ = p_ + text_.size();
}

std::string TextCursor::found() const {
  if (p_ == end_) return "the end of the file";
  std::size_t length = 1;
  if (scan::is(scan::kIdentifier, *p_)) {
    length = static_cast<std::size_t>(scan::skip_class(scan::kIdentifier, p_, end_) - p_);
  }
  const std::size_t shown = length > 40 ? 40 : length;
  std::string out = "'";
  for (std::size_t i = 0; i < shown; ++i) {
    const char c = p_[i];
    if (c >= ' ' && c <= '~') {
      out.push_back(c);
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\x";
      out.push_back(kHex[(static_cast<unsigned char>(c) >> 4) & 15]);
      out.push_back(kHex[static_cast<unsigned char>(c) & 15]);
    }
  }
  return out + (shown < length ? "...'" : "'");
}

void TextCursor::refuse_other_formats() const {
  const std::string_view rest(p_, static_cast<std::size_t>(end_ - p_));
  const auto starts = [&](std::string_view s) { return rest.substr(0, s.size()) == s; };
  if (starts("module @") || starts("module attributes") || starts("module {") || starts("#loc") ||
      starts("builtin.module") || starts("func.func")) {
    fail(p_, "this is MLIR (StableHLO), expected HLO text", kExportHint);
  }
  const char* p = scan::skip_class(scan::kIdentifier, p_, end_);
  const std::string_view word(p_, static_cast<std::size_t>(p - p_));
  p = scan::skip_class(scan::kSpace, p, end_);
  const char next = p < end_ ? *p : '\0';
  if (*p_ == '#' || ((word == "hlo_module" || word == "computations") && (next == '{' || next == ':')) ||
      ((word == "name" || word == "hlo") && next == ':')) {
    fail(p_, "this looks like the text form of a protobuf, expected HLO text", kExportHint);
  }
  if (*p_ == '{') fail(p_, "found '{': this looks like JSON, expected HLO text", kExportHint);
  if (*p_ != '%' && !scan::is(scan::kIdentifier, *p_)) {
    fail(p_, "found " + found() + ", expected 'HloModule' or a computation", kExportHint);
  }
}

}  // namespace automap::hlo
