// Text for people: aligned tables and numbers with units.
#pragma once

#include <string>
#include <vector>

namespace automap {

// Time in the unit that reads best, three significant digits: "45.0 µs", "12.3 ms", "1.23 s", "12.3 min".
std::string format_ms(double ms);
// Bytes in binary units, three significant digits: "512 B", "1.50 KiB", "12.3 GiB".
std::string format_bytes(double bytes);
// A ratio as percent: format_percent(0.0123) = "1.2 %", below 0.1 % with two decimals.
std::string format_percent(double ratio);
// A change as percent, with its sign: "+1.2 %".
std::string format_change(double ratio);
// Three (or `digits`) significant digits without exponent where possible: "0.0123", "12.3", "12345".
std::string format_number(double value, int digits = 3);
// An integer with thin groups: "12 345".
std::string format_count(long long value);
// A number of samples, or another number that is mostly whole: "12 345", "0.5".
std::string format_amount(double value);
// "1 stage", "2 stages", "3 matches".
std::string plural(long long count, const std::string& noun);
// The same of what may be a part: "0.5 samples".
std::string plural_amount(double amount, const std::string& noun);

// Columns a user's terminal shows for `text` (UTF-8 code points; combining and wide characters are not told apart).
int display_width(const std::string& text);

// Cuts the middle out of `text`, made printable, so that it fits `width` columns: "encoder/…/attention". Cuts neither
// characters nor escapes.
std::string shorten(const std::string& text, int width);

// "1-4", or "3" where it is one; and of several numbers "1-4, 9": those that follow one another as first and last.
std::string span_text(int first, int last);
std::string spans_text(const std::vector<int>& numbers);

// A table with a header row and aligned columns:
//   TextTable t({{"stage"}, {"layer", Align::kLeft}});  t.add_row({"1", "h/0"});  t.render();
class TextTable {
 public:
  enum class Align { kRight, kLeft };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit TextTable(std::vector<Column> columns);
  // As many cells as columns. Cells and titles may quote anything: they are made printable.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Header, a line of dashes and the rows; each line starts with `indent` and ends without trailing blanks.
  std::string render(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace automap
