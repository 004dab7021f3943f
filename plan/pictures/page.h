// Makes a page that needs nothing else: no network, no fonts; light and dark, on paper and on a phone.
#pragma once

#include <string>
#include <vector>

namespace automap::pictures {

// `body` is markup.
std::string page(const std::string& title, const std::string& body);

// A table that scrolls where it is too wide. Cells are text; of the first column each is the head of its row. Columns
// are numbers but for those in `words`.
struct PageTable {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::size_t> words = {};
  std::size_t marked = static_cast<std::size_t>(-1);  // the row that stands out
};
std::string table_markup(const PageTable& table);

}  // namespace automap::pictures
