// docs/formats/cluster.md lists every preset with its servers and rates, as the program knows them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/machine/cluster.h"
#include "tests/common/machine/plain_number.h"

namespace automap::machine {
namespace {

// The cells of the table's line that names the preset; empty when none does.
std::vector<std::string> row_of(const std::string& docs, const std::string& preset) {
  for (std::size_t at = 0; at < docs.size();) {
    const std::size_t end = std::min(docs.find('\n', at), docs.size());
    const std::string line = docs.substr(at, end - at);
    at = end + 1;
    if (line.rfind("| `", 0) != 0 || line.find("`" + preset + "`") == std::string::npos) continue;
    std::vector<std::string> cells;
    for (std::size_t from = 1; from < line.size();) {
      const std::size_t bar = line.find('|', from);
      cells.push_back(line.substr(from + 1, bar - from - 2));
      from = bar + 1;
    }
    return cells;
  }
  return {};
}

// "a, b, c" -> the one at the place of `name` in the first cell.
std::string item_of(const std::string& names, const std::string& name, const std::string& items) {
  const auto place = std::count(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(names.find(name)), ',');
  std::size_t from = 0;
  for (std::ptrdiff_t i = 0; i < place; ++i) from = items.find(", ", from) + 2;
  return items.substr(from, items.find(',', from) - from);
}

TEST(ClusterDocs, ListEveryPreset) {
  const std::string docs = read_file(std::string(AUTOMAP_SOURCE_DIR) + "/docs/formats/cluster.md");
  for (const std::string& name : cluster_preset_names()) {
    const std::vector<std::string> cells = row_of(docs, name);
    ASSERT_EQ(cells.size(), 6u) << "docs/formats/cluster.md has no row for the preset " << name;
    const Cluster cluster = load_cluster(name);
    const ServerGroup& servers = cluster.servers[0];
    EXPECT_EQ(item_of(cells[0], "`" + name + "`", cells[1]), std::to_string(servers.count)) << name;
    EXPECT_EQ(cells[3], plain(servers.intra_gbytes_per_s)) << name;
    EXPECT_EQ(cells[4].substr(0, cells[4].find(' ')), plain(servers.inter_gbytes_per_s)) << name;
    EXPECT_EQ(cells[5], plain(cluster.intra_latency_us) + ", " + plain(cluster.inter_latency_us)) << name;
  }
}

}  // namespace
}  // namespace automap::machine
