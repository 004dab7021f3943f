// Fits the sentences and tables of reports into the columns of a terminal.
#pragma once

#include <string>
#include <vector>

#include "common/base/text_table.h"

namespace automap {

// `text` in lines of at most `room` columns, broken at blanks, and behind commas where that is not enough; a word that
// is longer is shortened. At least one line.
std::vector<std::string> wrap_words(const std::string& text, int room);

// Breaks every line of `text` that is longer than `width` at blanks. The rest is indented to the column of its value
// ("Lower bound  9 ms" is a label of 13 columns, 16 at most, behind the line's own indent). `width` 0: as it is.
std::string wrap_lines(const std::string& text, int width);

constexpr int kReportColumns = 100;  // of what goes to a file or a pipe
constexpr int kLeastColumns = 40;    // narrower terminals have this

// The columns of a terminal that programs write their reports to, or those of COLUMNS; kReportColumns where there is
// neither.
int report_columns();

// A table that fits. Texts are wrapped in their columns; where that does not do, columns are left out, the least
// important first, and a line below says which; last, texts on the left of their columns are wrapped although nobody
// said that they may be.
class FittedTable {
 public:
  using Align = TextTable::Align;
  static constexpr int kNeeded = 100;
  struct Column {
    std::string title;
    Align align = Align::kRight;
    int importance = kNeeded;
    int least = 0;  // columns that a text is wrapped to; 0: it is not wrapped
    int most = 0;   // columns that a text is wrapped to in any case; 0: it may be as long as it is
  };

  explicit FittedTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as columns. They may quote anything, as those of TextTable.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // `width` of all with the indent; 0: as wide as it gets, nothing left out, and wrapped only to `most`.
  std::string render(const std::string& indent, int width = report_columns()) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// The columns of the terminal that a file descriptor is; 0: it is none, or does not say.
int columns_of_terminal(int descriptor);
// The columns that COLUMNS says, else those of the terminal on standard output; 0: there is no terminal, either.
int terminal_columns();

}  // namespace automap
