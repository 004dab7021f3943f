#include "common/base/fitted_table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "common/base/check.h"
#include "common/base/join.h"
#include "common/base/printable.h"

namespace automap {
namespace {

constexpr std::size_t kLongestLabel = 16;
constexpr int kLeastRoom = 16;
constexpr int kBetweenColumns = 2;
constexpr int kLeastText = 12;  // columns that any text on the left is wrapped to where nothing else helps

// Where the lines that follow a broken one begin.
std::size_t hanging_indent(const std::string& line) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find("  ", indent);
  const std::size_t value = gap == std::string::npos ? gap : line.find_first_not_of(' ', gap);
  if (value != std::string::npos && value <= indent + kLongestLabel) return value;
  return indent > 0 ? std::min(indent, kLongestLabel) : 2;
}

// True if the text behind the blank belongs to the number in front of it: "12 345", "1.5 GiB", "3 %".
bool belongs_to_number(const std::string& text, std::size_t at, std::size_t blank) {
  static const char* const kUnits[] = {"%", "ms", "s", "µs", "min", "B", "KiB", "MiB", "GiB", "TiB"};
  if (blank == at || text[blank - 1] < '0' || text[blank - 1] > '9') return false;
  const std::size_t end = std::min(text.find_first_of(" ,;:)", blank + 1), text.size());
  const std::string next = text.substr(blank + 1, end - blank - 1);
  if (next.size() == 3 && next.find_first_not_of("0123456789") == std::string::npos) return true;
  return std::find(std::begin(kUnits), std::end(kUnits), next) != std::end(kUnits);
}

// Breaks `line` behind its first `head` bytes, which stay as they are.
std::string wrapped_line(const std::string& line, std::size_t head, int width) {
  const std::size_t hang = std::min(head, width / 3 > 0 ? static_cast<std::size_t>(width) / 3 : 0);
  const int room = std::max(kLeastRoom, width - static_cast<int>(hang));
  std::string out, first = line.substr(0, head);
  for (const std::string& words : wrap_words(line.substr(head), room)) {
    if (out.empty() && head > hang) {
      out = first + "\n";
      first.clear();
    }
    out += (out.empty() ? first : std::string(hang, ' ')) + words + "\n";
  }
  return out;
}

}  // namespace

std::vector<std::string> wrap_words(const std::string& text, int room) {
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t blank = std::min(text.find(' ', at), text.size());
    while (blank < text.size() && belongs_to_number(text, at, blank))
      blank = std::min(text.find(' ', blank + 1), text.size());
    std::string word = text.substr(at, blank - at);
    // A list without blanks is broken behind a comma.
    if (display_width(word) > room) {
      const std::size_t comma = word.rfind(',', static_cast<std::size_t>(std::max(1, room) - 1));
      if (comma != std::string::npos && comma + 1 < word.size()) word.resize(comma + 1);
    }
    at += word.size() < blank - at ? word.size() : blank - at + 1;
    word = shorten(word, room);
    if (!line.empty() && display_width(line) + 1 + display_width(word) > room) {
      lines.push_back(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty() || lines.empty()) lines.push_back(line);
  return lines;
}

std::string wrap_lines(const std::string& text, int width) {
  if (width <= 0) return text;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (display_width(line) <= width) {
      out += line + "\n";
      continue;
    }
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    // A sentence that begins at the left edge has no label to keep in front.
    const std::size_t hang = hanging_indent(line);
    const bool label = indent > 0 || (hang > 2 && line[hang - 1] == ' ');
    if (label) {
      out += wrapped_line(line, hang, width);
    } else {
      const std::vector<std::string> lines = wrap_words(line, width - 2);
      for (std::size_t i = 0; i < lines.size(); ++i) out += (i == 0 ? "" : "  ") + lines[i] + "\n";
    }
  }
  return out;
}

void FittedTable::add_row(std::vector<std::string> cells) {
  AM_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string FittedTable::render(const std::string& indent, int width) const {
  const std::size_t count = columns_.size();
  std::vector<int> natural(count);
  for (std::size_t c = 0; c < count; ++c) {
    natural[c] = display_width(columns_[c].title);
    for (const auto& row : rows_) natural[c] = std::max(natural[c], display_width(row[c]));
  }
  for (std::size_t c = 0; c < count; ++c) {
    if (columns_[c].most > 0) natural[c] = std::min(natural[c], columns_[c].most);
  }
  std::vector<int> widths = natural;
  std::vector<bool> shown(count, true);
  std::vector<std::string> left_out;
  if (width > 0) {
    const auto sum = [&](const std::vector<int>& of) {
      int all = display_width(indent) - kBetweenColumns;
      for (std::size_t c = 0; c < count; ++c) all += shown[c] ? of[c] + kBetweenColumns : 0;
      return all;
    };
    std::vector<int> least = natural;
    for (std::size_t c = 0; c < count; ++c) {
      const int title = display_width(columns_[c].title);
      if (columns_[c].least > 0) least[c] = std::min(natural[c], std::max(columns_[c].least, title));
    }
    while (sum(least) > width) {
      std::size_t out = count;
      for (std::size_t c = 0; c < count; ++c) {
        if (!shown[c] || columns_[c].importance >= kNeeded) continue;
        if (out == count || columns_[c].importance < columns_[out].importance) out = c;
      }
      if (out == count) break;
      shown[out] = false;
    }
    for (std::size_t c = 0; c < count; ++c) {
      if (!shown[c]) left_out.push_back(columns_[c].title);
      if (sum(least) > width && columns_[c].align == Align::kLeft) {
        least[c] = std::min(least[c], std::max(kLeastText, display_width(columns_[c].title)));
      }
    }
    // The widest texts give way first.
    for (int over = sum(widths) - width; over > 0; over = sum(widths) - width) {
      std::size_t widest = count;
      for (std::size_t c = 0; c < count; ++c) {
        if (shown[c] && widths[c] > least[c] && (widest == count || widths[c] > widths[widest])) widest = c;
      }
      if (widest == count) break;
      --widths[widest];
    }
  }
  std::vector<TextTable::Column> columns;
  for (std::size_t c = 0; c < count; ++c) {
    if (shown[c]) columns.push_back({columns_[c].title, columns_[c].align});
  }
  TextTable table(columns);
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> lines;
    std::size_t high = 1;
    for (std::size_t c = 0; c < count; ++c) {
      if (!shown[c]) continue;
      lines.push_back(display_width(row[c]) > widths[c] ? wrap_words(row[c], widths[c])
                                                        : std::vector<std::string>{row[c]});
      high = std::max(high, lines.back().size());
    }
    for (std::size_t l = 0; l < high; ++l) {
      std::vector<std::string> cells;
      for (const auto& of : lines) cells.push_back(l < of.size() ? of[l] : "");
      table.add_row(std::move(cells));
    }
  }
  std::string out = table.render(indent);
  if (!left_out.empty()) {
    for (const std::string& words :
         wrap_words("(there is no room for " + join(left_out) + ": a wider terminal or COLUMNS=200 shows it)",
                    std::max(kLeastRoom, width - display_width(indent)))) {
      out += indent + words + "\n";
    }
  }
  return out;
}

int columns_of_terminal(int descriptor) {
  winsize size = {};
  return ::isatty(descriptor) == 1 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int terminal_columns() {
  constexpr long kMost = 10000;
  if (const char* const said = std::getenv("COLUMNS")) {
    char* end = nullptr;
    const long columns = std::strtol(said, &end, 10);
    if (*end == '\0' && columns > 0 && columns <= kMost) return static_cast<int>(columns);
  }
  return columns_of_terminal(STDOUT_FILENO);
}

int report_columns() {
  const int columns = terminal_columns();
  return columns == 0 ? kReportColumns : std::max(columns, kLeastColumns);
}

}  // namespace automap
