// Datasets of older versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/error.h"
#include "common/io/dataset.h"
#include "common/io/dataset_format.h"
#include "common/io/dataset_writer.h"

namespace automap::io {
namespace {

namespace fs = std::filesystem;
using pipeline::RowProblem;
using ::testing::HasSubstr;

// Written by the version of AutoMap that knew nothing else.
TEST(DatasetVersion, OneIsRead) {
  const std::string folder = std::string(AUTOMAP_SOURCE_DIR) + "/tests/data/dataset_v1";
  const DatasetReader reader(folder, RowChecks::kBeforeUse);
  ASSERT_EQ(reader.size(), 3u);
  EXPECT_EQ(reader.manifest().version, 1);
  const RowProblem row = reader.row(2);
  EXPECT_EQ(row.stages, 3);
  EXPECT_EQ(row.micro_batches, 9);
  EXPECT_EQ(row.num_instructions, 129u);
  EXPECT_FLOAT_EQ(row.memory_limit, 44.007126f);
  EXPECT_FLOAT_EQ(row.caw[383], 0.18885568f);
  EXPECT_EQ(row.samples, 0);
  const auto label = reader.oracle(2);
  ASSERT_TRUE(label);
  EXPECT_EQ(label->cuts, (std::vector<int>{25, 98}));
  EXPECT_EQ(label->device_cuts, (std::vector<int>{2, 5}));
  EXPECT_TRUE(label->variants.empty());
  EXPECT_NEAR(label->length_ms / row.scale_ms, 2.2737901, 1e-6);
  EXPECT_TRUE(verify_dataset(folder).empty());
  // A dataset that grows stays of one version.
  const fs::path copy = fs::temp_directory_path() / ("automap-dataset-version-" + std::to_string(::getpid()));
  fs::remove_all(copy);
  fs::create_directories(copy);
  for (const char* file : {"dataset.json", "shard-000000.h5"}) fs::copy(folder + "/" + file, copy / file);
  DatasetManifest wanted = reader.manifest();
  wanted.version = kDatasetVersion;
  wanted.rows = 5;
  try {
    const DatasetFolder more(copy.string(), wanted);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kConfig);
    EXPECT_THAT(e.what(), HasSubstr("schema: holds \"automap.caw/1\""));
  }
  fs::remove_all(copy);
}

// With a SHA-256 of the shard in its line.
TEST(DatasetVersion, TwoIsRead) {
  const std::string folder = std::string(AUTOMAP_SOURCE_DIR) + "/tests/data/dataset_v2";
  const DatasetReader reader(folder, RowChecks::kBeforeUse);
  ASSERT_EQ(reader.size(), 3u);
  EXPECT_EQ(reader.manifest().version, 2);
  EXPECT_EQ(reader.manifest().shards[0].sha256.size(), 64u);
  EXPECT_GT(reader.row(2).samples, 0);
  EXPECT_TRUE(reader.oracle(2));
  EXPECT_TRUE(verify_dataset(folder).empty());
  EXPECT_EQ(read_manifest(folder).version, 2);
}

}  // namespace
}  // namespace automap::io
