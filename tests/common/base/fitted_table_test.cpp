#include "common/base/fitted_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace automap {
namespace {

int widest_line(const std::string& text) {
  int widest = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) widest = std::max(widest, display_width(line));
  return widest;
}

TEST(FittedTable, WrapsTextsThenLeavesOutWhatMattersLeast) {
  FittedTable table({{"kind", FittedTable::Align::kLeft, FittedTable::kNeeded, 8},
                     {"step"},
                     {"V", FittedTable::Align::kRight, 10},
                     {"MFU", FittedTable::Align::kRight, 20}});
  table.add_row({"data parallel with ZeRO", "12 ms", "11 ms", "40 %"});
  EXPECT_EQ(table.render("", 0), table.render("", 100));
  EXPECT_EQ(table.render("", 0).find("no room"), std::string::npos);
  for (const int width : {80, 40, 36, 30, 24, 20}) EXPECT_LE(widest_line(table.render("  ", width)), width) << width;
  const std::string narrow = table.render("", 24);
  EXPECT_NE(narrow.find("(there is no room for V"), std::string::npos) << narrow;
  EXPECT_NE(table.render("", 34).find("MFU"), std::string::npos) << table.render("", 34);
}

TEST(FittedTable, WrapsWordsAndKeepsNumbersWithTheirUnits) {
  EXPECT_EQ(wrap_words("", 10), std::vector<std::string>{""});
  EXPECT_EQ(wrap_words("takes 12 345 ms of it", 12), (std::vector<std::string>{"takes", "12 345 ms of", "it"}));
  EXPECT_EQ(wrap_words("dp=16,pp=2,tp=4", 8), (std::vector<std::string>{"dp=16,", "pp=2,", "tp=4"}));
  for (const std::string& line : wrap_words(std::string(90, 'x') + " y", 12)) EXPECT_LE(display_width(line), 12);
}

TEST(FittedTable, WrapsLinesBelowTheirValue) {
  EXPECT_EQ(wrap_lines("Label  a sentence that is too long\n", 26), "Label  a sentence that is\n       too long\n");
  EXPECT_EQ(wrap_lines("short\n", 26), "short\n");
  EXPECT_EQ(wrap_lines("as it is, however long it gets\n", 0), "as it is, however long it gets\n");
}

}  // namespace
}  // namespace automap
