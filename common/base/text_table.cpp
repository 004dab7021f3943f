#include "common/base/text_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/check.h"
#include "common/base/printable.h"

namespace automap {

std::string format_number(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char text[64];
  const double magnitude = std::fabs(value);
  if (magnitude != 0 && (magnitude < 1e-6 || magnitude >= 1e15)) {
    std::snprintf(text, sizeof text, "%.*e", digits - 1, value);
    return text;
  }
  int decimals = digits - 1;
  if (magnitude > 0) {
    decimals = digits - 1 - static_cast<int>(std::floor(std::log10(magnitude)));
    // 9.996 rounds to 10.0, not to 10.00.
    const double rounded = std::round(magnitude * std::pow(10, decimals)) * std::pow(10, -decimals);
    decimals = digits - 1 - static_cast<int>(std::floor(std::log10(rounded) + 1e-12));
  } else {
    decimals = 0;
  }
  std::snprintf(text, sizeof text, "%.*f", std::max(0, decimals), value);
  return text;
}

std::string format_ms(double ms) {
  const double magnitude = std::fabs(ms);
  if (magnitude == 0) return "0 ms";
  if (magnitude < 0.09995) return format_number(ms * 1e3) + " µs";
  if (magnitude < 999.5) return format_number(ms) + " ms";
  if (magnitude < 599.5e3) return format_number(ms * 1e-3) + " s";
  return format_number(ms / 60e3) + " min";
}

std::string format_bytes(double bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::fabs(bytes) >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return (unit == 0 ? format_count(std::llround(bytes)) : format_number(bytes)) + " " + kUnits[unit];
}

std::string format_percent(double ratio) {
  if (!std::isfinite(ratio)) return format_number(ratio);
  const double percent = ratio * 100;
  if (percent == 0) return "0 %";
  char text[64];
  const double magnitude = std::fabs(percent);
  std::snprintf(text, sizeof text, magnitude < 0.0995 ? "%.2f %%" : magnitude < 99.95 ? "%.1f %%" : "%.0f %%", percent);
  return text;
}

std::string format_count(long long value) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), " ");
  return value < 0 ? "-" + digits : digits;
}

std::string format_amount(double value) {
  return value == std::floor(value) ? format_count(std::llround(value)) : format_number(value);
}

namespace {

std::string behind_number(bool one, const std::string& noun) {
  const bool hissing = noun.size() > 1 && (noun.back() == 's' || noun.back() == 'x' || noun.back() == 'h');
  return " " + noun + (one ? "" : hissing ? "es" : "s");
}

}  // namespace

std::string plural(long long count, const std::string& noun) {
  return format_count(count) + behind_number(count == 1, noun);
}

std::string plural_amount(double amount, const std::string& noun) {
  return format_amount(amount) + behind_number(amount == 1, noun);
}

std::string format_change(double ratio) {
  return (ratio < 0 ? "" : "+") + format_percent(ratio);
}

int display_width(const std::string& text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string shorten(const std::string& text, int width) {
  std::vector<std::string> pieces;
  int columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    at = append_printable(text, at, &pieces.emplace_back());
    columns += display_width(pieces.back());
  }
  const bool cut = columns > width && width >= 3;
  const int head = (width - 1) / 2, tail = width - 1 - head;
  std::string out;
  bool gap = false;
  int column = 0;
  for (const std::string& piece : pieces) {
    const int first = column;
    column += display_width(piece);
    if (!cut || column <= head || first >= columns - tail) {
      out += piece;
    } else if (!gap) {
      out += "…";
      gap = true;
    }
  }
  return out;
}

std::string span_text(int first, int last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

std::string spans_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t first = 0, past = 0; first < numbers.size(); first = past) {
    past = first + 1;
    while (past < numbers.size() && numbers[past] == numbers[past - 1] + 1) ++past;
    text += (first == 0 ? "" : ", ") + span_text(numbers[first], numbers[past - 1]);
  }
  return text;
}

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.title = printable(column.title);
}

void TextTable::add_row(std::vector<std::string> cells) {
  AM_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::render(const std::string& indent) const {
  std::vector<int> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    int width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](auto cell_of) {
    std::string text = indent;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cell_of(c);
      const std::string padding(static_cast<std::size_t>(widths[c] - display_width(cell)), ' ');
      if (c > 0) text += "  ";
      text += columns_[c].align == Align::kLeft ? cell + padding : padding + cell;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t c) { return columns_[c].title; });
  line([&](std::size_t c) { return std::string(static_cast<std::size_t>(widths[c]), '-'); });
  for (const auto& row : rows_) line([&](std::size_t c) { return row[c]; });
  return out;
}

}  // namespace automap
