#include "inspect/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/io/dataset_format.h"
#include "common/io/dataset_writer.h"
#include "inspect/dataset.h"
#include "tests/common/io/dataset_rows.h"

namespace automap::inspect {
namespace {

using ::testing::HasSubstr;

std::string sum_of(int elements) {
  const std::string shape = "f32[" + std::to_string(elements) + "]";
  return describe_bytes(
             "HloModule m\nENTRY e {\n  a = " + shape + " parameter(0)\n  ROOT b = " + shape + " add(a, a)\n}\n",
             "m.hlo")
      .text;
}

TEST(Describe, WorkHasTheUnitThatItReaches) {
  EXPECT_THAT(sum_of(999), HasSubstr("999 FLOP"));
  EXPECT_THAT(sum_of(1000), HasSubstr("1.00 kFLOP"));
}

// Five rows: one with a plan, one without a feasible one, three that nobody labelled.
TEST(DescribeDataset, CountsRowsByTheirLabels) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("automap-describe-" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  {
    io::DatasetManifest wanted;
    wanted.generator = "a test";
    wanted.rows = wanted.shard_rows = 5;
    wanted.distributions = {"even", "odd"};
    wanted.config_json = "{}";
    wanted.oracle = true;
    io::DatasetFolder made(folder.string(), wanted);
    io::ShardWriter writer(folder.string(), made.manifest(), 0);
    std::vector<float> caw;
    for (std::uint64_t i = 0; i < 5; ++i) {
      const pipeline::RowProblem row = io::hand_made_row(3);  // 23 instructions, one server of 4, 2 stages
      writer.set_row(i, row);
      caw.insert(caw.end(), row.caw.begin(), row.caw.end());
      if (i == 0) writer.set_label(i, {{22}, {3}, 1}, row);
      if (i == 1) writer.set_label(i, {{}, {}, std::numeric_limits<double>::infinity()}, row);
    }
    writer.append(caw.data(), 5);
    made.add(writer.commit());
  }
  const DatasetDescription found = describe_dataset(folder.string());
  std::filesystem::remove_all(folder);
  const Json& labels = found.description.document["labels"];
  EXPECT_EQ(json_text(labels), json_text(Json{{"optimal", 1}, {"infeasible", 1}, {"none", 3}}));
  EXPECT_THAT(found.description.text, HasSubstr("60.0 % not labelled"));
}

}  // namespace
}  // namespace automap::inspect
