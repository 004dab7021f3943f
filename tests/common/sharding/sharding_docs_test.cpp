// The table of docs/sharding.md says what the registry says.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "common/base/files.h"
#include "common/graph/opcode.h"
#include "common/sharding/rule.h"

namespace automap::sharding {
namespace {

TEST(ShardingDocs, OneRowPerFamily) {
  const std::string docs = read_file(std::string(AUTOMAP_SOURCE_DIR) + "/docs/sharding.md");
  std::map<std::string, std::set<std::string>> opcodes;
  for (int i = 1; i < graph::kNumOpcodes; ++i) {
    const auto opcode = static_cast<graph::Opcode>(i);
    opcodes[std::string(rule_family(opcode).name)].insert(std::string(graph::opcode_name(opcode)));
  }
  for (int i = 1; i < graph::kNumOpcodes; ++i) {
    const RuleFamily& family = rule_family(static_cast<graph::Opcode>(i));
    const std::string name(family.name);
    const std::string row = "\n| `" + name + "` | " + std::string(family.says) + " | ";
    const std::size_t at = docs.find(row);
    ASSERT_NE(at, std::string::npos) << "docs/sharding.md lacks the row of a family:" << row;
    EXPECT_EQ(docs.find(row, at + 1), std::string::npos) << row;
    // Few opcodes are listed; one of the family's own name is not.
    const std::string listed = docs.substr(at + row.size(), docs.find('\n', at + 1) - at - row.size());
    const std::set<std::string>& all = opcodes.at(name);
    if (all.size() > 20 || (all.size() == 1 && *all.begin() == name)) continue;
    std::string expected;
    for (const std::string& opcode : all) expected += (expected.empty() ? "" : ", ") + opcode;
    EXPECT_EQ(listed, expected + " |") << name;
  }
  std::size_t rows = 0;
  for (std::size_t at = docs.find("| family |"); at != std::string::npos && docs[at] == '|';
       at = docs.find('\n', at) + 1)
    ++rows;
  EXPECT_EQ(rows, opcodes.size() + 2) << "a row of docs/sharding.md without a family";
}

}  // namespace
}  // namespace automap::sharding
