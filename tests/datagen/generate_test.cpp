#include "datagen/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "datagen/distributions.h"
#include "datagen/preview.h"
#include "tests/common/io/dataset_rows.h"
#include "tests/sanitized.h"

namespace automap::datagen {
namespace {

namespace fs = std::filesystem;
using io::DatasetReader;
using io::hand_made_row;
using io::same_row;
using ::testing::HasSubstr;

class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / (std::string("automap-generate-") + info->name() + std::to_string(::getpid()));
    fs::remove_all(folder_);
    source_.row = [](std::uint64_t index) { return hand_made_row(index); };
    source_.config_json = "{}";
    source_.distributions = {"even", "odd"};
    source_.generator = "a test";
  }
  void TearDown() override { fs::remove_all(folder_); }

  GenerateOptions options(std::uint64_t rows, std::uint64_t shard_rows, int threads) const {
    GenerateOptions made;
    made.folder = folder_.string();
    made.rows = rows;
    made.seed = 5;
    made.shard_rows = shard_rows;
    made.threads = threads;
    return made;
  }

  // Name -> SHA-256 of every file; the folder is removed.
  std::map<std::string, std::string> take_hashes() const {
    std::map<std::string, std::string> hashes;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      hashes[entry.path().filename()] = sha256_hex(read_file(entry.path().string()));
    }
    fs::remove_all(folder_);
    return hashes;
  }

  RowSource source_;
  fs::path folder_;
};

TEST_F(GenerateTest, TheSameBytesForAnyNumberOfThreads) {
  for (const bool compress : {false, true}) {
    for (const bool oracle : {false, true}) {
      GenerateOptions o = options((oracle ? 60 : 3000) / (kSanitized ? 2 : 1), oracle ? 25 : 700, 1);
      o.compress = compress;
      o.oracle = oracle;
      const GenerateResult result = generate_dataset(source_, o);
      EXPECT_EQ(result.rows_written, o.rows);
      EXPECT_FALSE(result.stopped);
      EXPECT_TRUE(io::verify_dataset(o.folder).empty());
      const auto alone = take_hashes();
      for (const int threads : {2, 7}) {
        o.threads = threads;
        generate_dataset(source_, o);
        EXPECT_EQ(take_hashes(), alone) << threads;
      }
    }
  }
}

TEST_F(GenerateTest, TheSameRowsForAnyShardSize) {
  for (const std::uint64_t shard_rows : {29, 64, 129, 1000}) {
    generate_dataset(source_, options(300, shard_rows, 3));
    const DatasetReader reader(folder_.string());
    ASSERT_EQ(reader.size(), 300u);
    for (std::uint64_t i = 0; i < 300; ++i) ASSERT_TRUE(same_row(reader.row(i), hand_made_row(i))) << i;
    fs::remove_all(folder_);
  }
}

TEST_F(GenerateTest, ResumingGivesTheSameBytesAndDoesOnlyWhatIsMissing) {
  generate_dataset(source_, options(1000, 100, 2));
  const auto whole = take_hashes();
  std::atomic<std::uint64_t> made{0};
  RowSource counted = source_;
  counted.row = [&](std::uint64_t index) {
    ++made;
    return hand_made_row(index);
  };
  GenerateHooks hooks;
  hooks.stop = [&] { return made > 300; };
  const GenerateResult first = generate_dataset(counted, options(1000, 100, 2), hooks);
  if (first.stopped) {
    EXPECT_LT(first.rows_written, 1000u);
    EXPECT_THROW(DatasetReader reader(folder_.string()), Error);
  }
  made = 0;
  const GenerateResult second = generate_dataset(counted, options(1000, 100, 2));
  EXPECT_EQ(second.shards_kept, first.shards_written);
  EXPECT_EQ(made, 1000 - first.rows_written);
  made = 0;
  EXPECT_EQ(generate_dataset(counted, options(1000, 100, 2)).shards_kept, 10u);
  EXPECT_EQ(made, 0u);
  EXPECT_EQ(take_hashes(), whole);
}

TEST_F(GenerateTest, DamagedAndMissingShardsAreMadeAgain) {
  generate_dataset(source_, options(400, 100, 2));
  fs::remove(folder_ / "shard-000001.h5");
  fs::resize_file(folder_ / "shard-000002.h5", 1000);
  std::string bytes = read_file((folder_ / "shard-000003.h5").string());
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomic((folder_ / "shard-000003.h5").string(), bytes);
  const GenerateResult result = generate_dataset(source_, options(400, 100, 2));
  EXPECT_EQ(result.shards_kept, 1u);
  EXPECT_EQ(result.shards_written, 3u);
  EXPECT_TRUE(io::verify_dataset(folder_.string()).empty());
}

TEST_F(GenerateTest, MoreRowsExtend) {
  generate_dataset(source_, options(500, 100, 2));
  const auto whole = take_hashes();
  generate_dataset(source_, options(250, 100, 2));
  const GenerateResult result = generate_dataset(source_, options(500, 100, 2));
  EXPECT_EQ(result.shards_kept, 2u);
  EXPECT_EQ(result.rows_written, 300u);
  EXPECT_EQ(take_hashes(), whole);
}

TEST_F(GenerateTest, ShardRangesTogetherMakeTheWhole) {
  generate_dataset(source_, options(500, 100, 2));
  const auto whole = take_hashes();
  for (const auto& [first, last] : {std::pair<int, int>{3, 100}, {0, 2}, {2, 3}}) {
    GenerateOptions o = options(500, 100, 2);
    o.first_shard = static_cast<std::uint64_t>(first);
    o.last_shard = static_cast<std::uint64_t>(last);
    generate_dataset(source_, o);
  }
  EXPECT_EQ(take_hashes(), whole);
  GenerateOptions beyond = options(500, 100, 2);
  beyond.first_shard = 5;
  EXPECT_THROW(generate_dataset(source_, beyond), Error);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(GenerateTest, WhatARowThrowsComesOutAndNothingHalfWrittenStays) {
  RowSource failing = source_;
  failing.row = [](std::uint64_t index) {
    if (index == 777) throw Error(ErrorKind::kData, "row 777 fails");
    return hand_made_row(index);
  };
  for (const int threads : {1, 4}) {
    try {
      generate_dataset(failing, options(1000, 100, threads));
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "row 777 fails");
    }
    for (const auto& entry : fs::directory_iterator(folder_)) EXPECT_NE(entry.path().extension(), ".tmp");
    EXPECT_FALSE(fs::exists(folder_ / "shard-000007.h5"));
  }
}

TEST_F(GenerateTest, WrongOptionsAreErrors) {
  for (const GenerateOptions& wrong :
       {options(0, 100, 1), options(10, 0, 1), options(10, kMostShardRows + 1, 1), options(10, 10, 0)}) {
    EXPECT_THROW(generate_dataset(source_, wrong), Error);
    EXPECT_FALSE(fs::exists(folder_));
  }
}

TEST_F(GenerateTest, LabelsAreExactOptima) {
  GenerateOptions o = options(40, 16, 2);
  o.oracle = true;
  const GenerateResult result = generate_dataset(source_, o);
  EXPECT_EQ(result.rows_labelled + result.rows_infeasible + result.rows_unlabelled, 40u);
  EXPECT_GT(result.rows_labelled, 30u);
  const DatasetReader reader(folder_.string());
  for (std::uint64_t i = 0; i < 40; ++i) {
    const auto label = reader.oracle(i);
    if (!label || label->cuts.empty()) continue;
    const pipeline::RowProblem row = reader.row(i);
    const pipeline::Problem problem = pipeline::problem_of_row(row).problem();
    pipeline::Plan plan{label->cuts, label->device_cuts, row.schedule};
    plan.variants = label->variants;
    EXPECT_EQ(plan.num_stages(), row.stages);
    EXPECT_NEAR(pipeline::value_ms(problem, plan), label->length_ms, 1e-6 * label->length_ms) << i;
    pipeline::ExactOptions exact;
    exact.min_stages = exact.max_stages = row.stages;
    exact.schedule = row.schedule;
    EXPECT_NEAR(pipeline::solve_exact(problem, exact).by_stages.front().value_ms.front(), label->length_ms,
                1e-6 * label->length_ms);
  }
}

TEST(LabelRow, SaysWhatItCannot) {
  pipeline::RowProblem row = hand_made_row(1);
  row.memory_limit = 1e-3f;
  const auto infeasible = label_row(row);
  ASSERT_TRUE(infeasible);
  EXPECT_TRUE(std::isinf(infeasible->length_ms));
  row = hand_made_row(1);
  row.servers = 16;
  row.devices_per_server = 8;
  EXPECT_FALSE(label_row(row));
}

TEST(Generator, RowsPassTheReadersChecksAndArePreviewed) {
  const Generator generator = Generator::load("mixed");
  for (std::uint64_t i = 0; i < 200; ++i) {
    const pipeline::RowProblem row = generator.row(3, i);
    EXPECT_NO_THROW(pipeline::check_row(row)) << i;
    const std::string text = row_text(row, generator.distributions(), i);
    EXPECT_THAT(text, HasSubstr(generator.distributions()[row.distribution]));
    EXPECT_THAT(text, HasSubstr("weights"));
  }
}

}  // namespace
}  // namespace automap::datagen
