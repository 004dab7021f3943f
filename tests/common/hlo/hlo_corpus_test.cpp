// Extended test over real modules: AUTOMAP_CORPUS names a folder with hlo/MANIFEST.tsv and the files it lists.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_writer.h"
#include "tests/common/graph/graph_digest.h"

namespace automap::hlo {

using namespace graph;

namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Row {
  std::string file;
  int instructions = 0, computations = 0, entry_instructions = 0, entry_parameters = 0;
};

// The rows of HLO text files, by the names of the columns.
std::vector<Row> manifest(const std::string& root) {
  std::ifstream in(root + "/hlo/MANIFEST.tsv");
  std::vector<Row> rows;
  std::map<std::string, std::size_t> column;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells;
    std::istringstream cells_in(line);
    for (std::string cell; std::getline(cells_in, cell, '\t');) cells.push_back(cell);
    if (column.empty()) {
      for (std::size_t i = 0; i < cells.size(); ++i) column[cells[i]] = i;
      continue;
    }
    cells.resize(column.size());
    const auto number = [&](const char* name) { return std::atoi(cells[column.at(name)].c_str()); };
    Row row;
    row.file = cells[column.at("file")];
    row.instructions = number("instr");
    row.computations = number("computations");
    row.entry_instructions = number("entry_instr");
    row.entry_parameters = number("entry_params");
    if (row.file.size() > 4 && row.file.substr(row.file.size() - 4) == ".hlo") rows.push_back(row);
  }
  return rows;
}

// The obvious twin: lines that start with "name = ", outside comments.
int count_lines(const std::string& text) {
  int count = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, equals;
    words >> name;
    if (name == "ROOT") words >> name;
    if (name.substr(0, 2) == "//") continue;
    words >> equals;
    if (equals == "=") ++count;
  }
  return count;
}

TEST(HloCorpus, EveryTextModuleIsReadCountedAndWrittenBack) {
  const char* const root = std::getenv("AUTOMAP_CORPUS");
  if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: real modules are not read";
  const std::vector<Row> rows = manifest(root);
  ASSERT_FALSE(rows.empty()) << "no HLO text in " << root << "/hlo/MANIFEST.tsv";
  int modules = 0, protobufs = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE(row.file);
    const std::string text = slurp(std::string(root) + "/hlo/" + row.file);
    ASSERT_FALSE(text.empty());
    Row found;
    for (const std::string_view piece : split_modules(text)) {
      try {
        const Graph g = read_hlo_text(std::string(piece), row.file);
        ++modules;
        found.instructions += g.num_instructions();
        found.computations += g.num_computations();
        found.entry_instructions += g.entry().count;
        found.entry_parameters += static_cast<int>(g.entry().parameters.size());
        // Callees move before their callers, so the first writing may reorder; from then on all is equal.
        const std::string written = write_hlo_text(g);
        const Graph again = read_hlo_text(written, "written");
        ASSERT_EQ(again.num_instructions(), g.num_instructions());
        ASSERT_EQ(write_hlo_text(again), written);
        if (again.entry_id() == g.entry_id()) {
          EXPECT_TRUE(digest(again) == digest(g)) << "the written module differs";
        }
      } catch (const Error& e) {
        // Protobuf text under the name of HLO: no instruction of HLO text in it, and the message says what it is.
        EXPECT_EQ(row.instructions, 0) << e.what();
        EXPECT_NE(std::string(e.what()).find("protobuf"), std::string::npos) << e.what();
        ++protobufs;
      }
    }
    EXPECT_EQ(found.instructions, row.instructions == 0 ? 0 : count_lines(text));
    // The manifest counted compiler tests by patterns that also match their comments; its figures hold for the models.
    if (row.file.substr(0, 7) == "syntax/") continue;
    EXPECT_EQ(found.instructions, row.instructions);
    EXPECT_EQ(found.computations, row.computations);
    EXPECT_EQ(found.entry_instructions, row.entry_instructions);
    EXPECT_EQ(found.entry_parameters, row.entry_parameters);
  }
  std::printf("%d modules of %zu files read; %d pieces are protobuf text\n", modules, rows.size(), protobufs);
  EXPECT_GT(modules, 10);
}

}  // namespace
}  // namespace automap::hlo
