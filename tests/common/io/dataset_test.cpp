#include "common/io/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/io/dataset_format.h"
#include "common/io/dataset_lock.h"
#include "common/io/dataset_writer.h"
#include "tests/common/io/dataset_rows.h"
#include "tests/sanitized.h"

namespace automap::io {
namespace {

namespace fs = std::filesystem;
using pipeline::RowProblem;
using ::testing::HasSubstr;

class DatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / (std::string("automap-dataset-") + info->name() + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static DatasetManifest manifest(std::uint64_t rows, std::uint64_t shard_rows) {
    DatasetManifest wanted;
    wanted.generator = "a test";
    wanted.rows = rows;
    wanted.shard_rows = shard_rows;
    wanted.seed = 18446744073709551615u;
    wanted.distributions = {"even", "odd"};
    wanted.config_json = R"({"b":1,"a":[0.1,2]})";
    return wanted;
  }

  static void append(ShardWriter& writer, const DatasetManifest& wanted, const std::vector<RowProblem>& rows) {
    std::vector<float> caw;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      writer.set_row(i, rows[i]);
      caw.insert(caw.end(), rows[i].caw.begin(), rows[i].caw.end());
    }
    if (!wanted.compressed) {
      writer.append(caw.data(), rows.size());
      return;
    }
    constexpr std::size_t kValues = kCawRowBytes / sizeof(float);
    for (std::uint64_t at = 0; at < rows.size(); at += writer.chunk_rows()) {
      const std::uint64_t count = std::min<std::uint64_t>(writer.chunk_rows(), rows.size() - at);
      writer.append_chunk(compress_chunk(caw.data() + at * kValues, count, writer.chunk_rows()));
    }
  }

  // All rows made by hand, shard by shard.
  void write(const DatasetManifest& wanted) {
    DatasetFolder folder(folder_.string(), wanted);
    for (std::uint64_t s = 0; s < wanted.num_shards(); ++s) {
      ShardWriter writer(folder_.string(), folder.manifest(), s);
      std::vector<RowProblem> rows;
      for (std::uint64_t i = 0; i < writer.rows(); ++i) rows.push_back(hand_made_row(writer.first_row() + i));
      append(writer, wanted, rows);
      folder.add(writer.commit());
    }
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string bytes(const std::string& name) const { return read_file(path(name)); }
  void put(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  // Without its checksum, as older versions wrote it.
  static std::string unsealed(std::string text) {
    const std::size_t at = text.find(",\n  \"manifest_crc32c\"");
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, std::string::npos, "\n}\n");
  }
  // Without the checksum, so that checks behind it are reached.
  std::string manifest_with(const std::string& from, const std::string& to) const {
    std::string text = unsealed(bytes("dataset.json"));
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }

  // Makes the only entry of dataset.json agree with a changed shard, so that what stands behind the checksums is met.
  void agree_with(const std::string& shard) const {
    DatasetManifest changed = parse_manifest(bytes("dataset.json"), "x");
    ShardEntry& entry = changed.shards.at(0);
    const std::size_t caw_end = entry.caw_offset + entry.rows * kCawRowBytes;
    entry.crc32c = crc32c(shard);
    entry.rest_crc32c = crc32c(shard.substr(caw_end), crc32c(shard.substr(0, entry.caw_offset)));
    put("dataset.json", to_json_text(changed));
  }

  // The error of opening the dataset and reading its rows.
  std::string refusal(ErrorKind kind) const {
    try {
      const DatasetReader reader(folder_.string());
      for (std::uint64_t i = 0; i < reader.size(); ++i) reader.row(i);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }

  fs::path folder_;
};

TEST_F(DatasetTest, RowsComeBackBitForBit) {
  for (const bool compressed : {false, true}) {
    for (const std::uint64_t shard_rows : {compressed ? 1500 : 64, 3000}) {
      fs::remove_all(folder_);
      DatasetManifest wanted = manifest(compressed ? 2500 : 250, shard_rows);
      wanted.compressed = compressed;
      write(wanted);
      const DatasetReader reader(folder_.string());
      ASSERT_EQ(reader.size(), wanted.rows);
      EXPECT_EQ(reader.distributions(), wanted.distributions);
      EXPECT_FALSE(reader.has_oracle());
      EXPECT_FALSE(reader.oracle(0));
      for (std::uint64_t i = 0; i < wanted.rows; ++i) {
        ASSERT_TRUE(same_row(reader.row(i), hand_made_row(i))) << i << " of shards of " << shard_rows;
      }
      EXPECT_TRUE(verify_dataset(folder_.string()).empty());
      EXPECT_THROW(reader.row(wanted.rows), Error);
    }
  }
}

TEST_F(DatasetTest, TheManifestSaysWhatThereIs) {
  write(manifest(250, 100));
  const DatasetManifest found = parse_manifest(bytes("dataset.json"), "x");
  EXPECT_EQ(to_json_text(found), bytes("dataset.json"));
  EXPECT_EQ(found.seed, 18446744073709551615u);
  EXPECT_EQ(found.config_json, R"({"b":1,"a":[0.1,2]})");
  ASSERT_EQ(found.shards.size(), 3u);
  EXPECT_EQ(found.shards[2].rows, 50u);
  for (const ShardEntry& entry : found.shards) {
    const std::string content = bytes(entry.file);
    EXPECT_EQ(entry.bytes, content.size());
    EXPECT_EQ(entry.crc32c, crc32c(content));
    EXPECT_TRUE(entry.sha256.empty());
  }
  // One SHA-256 of the list: of its lines, without blanks and commas.
  const std::string text = bytes("dataset.json");
  std::string lines;
  for (std::size_t at = text.find("    {\"file\""); at != std::string::npos; at = text.find("    {\"file\"", at + 1)) {
    lines += text.substr(at + 4, text.find('}', at) - at - 3) + "\n";
  }
  EXPECT_NE(text.find("\"shards_sha256\": \"" + sha256_hex(lines) + "\""), std::string::npos);
}

TEST_F(DatasetTest, TheFingerprintChangesWithWhatDeterminesRowsOnly) {
  const DatasetManifest one = manifest(250, 100);
  DatasetManifest other = one;
  other.shard_rows = 50;
  other.compressed = true;
  EXPECT_EQ(one.fingerprint(), other.fingerprint());
  for (int change = 0; change < 4; ++change) {
    other = one;
    if (change == 0) other.seed = 2;
    if (change == 1) other.rows = 251;
    if (change == 2) other.config_json = "{}";
    if (change == 3) other.oracle = true;
    EXPECT_NE(one.fingerprint(), other.fingerprint()) << change;
  }
}

TEST_F(DatasetTest, TheSameBytesEveryTime) {
  write(manifest(250, 100));
  std::vector<std::string> first;
  for (const char* name : {"shard-000000.h5", "shard-000001.h5", "shard-000002.h5", "dataset.json"}) {
    first.push_back(bytes(name));
  }
  fs::remove_all(folder_);
  write(manifest(250, 100));
  std::size_t i = 0;
  for (const char* name : {"shard-000000.h5", "shard-000001.h5", "shard-000002.h5", "dataset.json"}) {
    EXPECT_EQ(bytes(name), first[i++]) << name;
  }
}

TEST_F(DatasetTest, LabelsComeBack) {
  DatasetManifest wanted = manifest(4, 4);
  wanted.oracle = true;
  DatasetFolder folder(folder_.string(), wanted);
  ShardWriter writer(folder_.string(), folder.manifest(), 0);
  std::vector<RowProblem> rows;
  for (std::uint64_t i = 0; i < 4; ++i) rows.push_back(hand_made_row(i));
  rows[0].stages = 3;
  rows[0].num_instructions = 20;
  rows[1].stages = 2;
  rows[1].samples = 8;
  rows[1].zero = 1;
  rows[1].layers = 5;
  append(writer, wanted, rows);
  writer.set_label(0, {{3, 19}, {1, 3}, 12.5}, rows[0]);
  writer.set_label(1, {{127}, {4}, 0.125, {0, 3}}, rows[1]);
  writer.set_label(2, {{}, {}, std::numeric_limits<double>::infinity()}, rows[2]);
  folder.add(writer.commit());

  const DatasetReader reader(folder_.string());
  ASSERT_TRUE(reader.has_oracle());
  const auto short_model = reader.oracle(0), long_model = reader.oracle(1), infeasible = reader.oracle(2);
  ASSERT_TRUE(short_model && long_model && infeasible);
  EXPECT_EQ(short_model->cuts, (std::vector<int>{3, 19}));
  EXPECT_EQ(short_model->device_cuts, (std::vector<int>{1, 3}));
  EXPECT_NEAR(short_model->length_ms, 12.5, 12.5e-6);
  EXPECT_EQ(long_model->cuts, std::vector<int>{127});
  EXPECT_TRUE(short_model->variants.empty());
  EXPECT_EQ(long_model->variants, (std::vector<std::uint8_t>{0, 3}));
  EXPECT_TRUE(infeasible->cuts.empty());
  EXPECT_TRUE(std::isinf(infeasible->length_ms));
  EXPECT_FALSE(reader.oracle(3));
}

TEST_F(DatasetTest, LabelsThatAreNoPlanAreNamed) {
  DatasetManifest wanted = manifest(5, 5);
  wanted.oracle = true;
  DatasetFolder folder(folder_.string(), wanted);
  ShardWriter writer(folder_.string(), folder.manifest(), 0);
  std::vector<RowProblem> rows;
  for (std::uint64_t i = 0; i < 5; ++i) rows.push_back(hand_made_row(3));  // 23 instructions, one server of 4, 2 stages
  append(writer, wanted, rows);
  writer.set_label(0, {{22}, {3}, 1}, rows[0]);
  writer.set_label(1, {{23}, {3}, 1}, rows[1]);  // nothing left for the last stage
  writer.set_label(2, {{22}, {4}, 1}, rows[2]);  // no device left
  writer.set_label(3, {{22}, {0}, 1}, rows[3]);
  writer.set_label(4, {{22}, {3}, 1, {0, 4}}, rows[4]);  // four variants
  folder.add(writer.commit());
  const DatasetReader reader(folder_.string());
  EXPECT_TRUE(reader.oracle(0));
  for (std::uint64_t i = 1; i < 5; ++i) EXPECT_THROW(reader.oracle(i), Error) << i;
}

TEST(DatasetFormat, GridPointsOfShortModels) {
  EXPECT_EQ(grid_point(3, 64), 6);
  for (const std::uint32_t n : {2u, 3u, 20u, 64u, 100u, 127u, 128u, 129u, 50000u}) {
    const int most = static_cast<int>(std::min(n, 128u));
    for (int cut = 1; cut <= most; ++cut) {
      const int point = grid_point(cut, n);
      EXPECT_EQ(cut_of_grid_point(point, n), cut);
      if (n >= 128) {
        EXPECT_EQ(point, cut);
      }
      // The first such point.
      EXPECT_EQ(cut_of_grid_point(point - 1, n), cut - 1);
    }
  }
}

TEST_F(DatasetTest, RowsAreReadFromManyThreads) {
  write(manifest(200, 30));
  const DatasetReader reader(folder_.string());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        if (!same_row(reader.row(i), hand_made_row(i))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(DatasetTest, WhatIsNotThere) {
  EXPECT_THAT(refusal(ErrorKind::kIo), HasSubstr("No such file"));
  fs::create_directories(folder_);
  EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("dataset.json is missing"));
  write(manifest(250, 100));
  fs::remove(path("shard-000001.h5"));
  EXPECT_THAT(refusal(ErrorKind::kIo), HasSubstr("shard-000001.h5"));
  const auto problems = verify_dataset(folder_.string());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].shard, "shard-000001.h5");
}

TEST_F(DatasetTest, AnIncompleteDatasetNamesItsMissingShards) {
  DatasetFolder folder(folder_.string(), manifest(250, 100));
  EXPECT_THAT(refusal(ErrorKind::kData),
              HasSubstr("3 of 3 shards are missing (shard-000000.h5, shard-000001.h5, shard-000002.h5)"));
}

TEST_F(DatasetTest, ACutShardIsRefusedAtEveryLength) {
  write(manifest(20, 20));
  const std::string whole = bytes("shard-000000.h5");
  for (std::size_t size = 0; size < whole.size(); size += size < 4096 ? 97 : 8191) {
    put("shard-000000.h5", whole.substr(0, size));
    EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("shard-000000.h5")) << size;
    // A manifest that agrees with the cut file does not help.
    if (size == 0) continue;
    const std::string text = bytes("dataset.json");
    put("dataset.json",
        manifest_with("\"bytes\":" + std::to_string(whole.size()), "\"bytes\":" + std::to_string(size)));
    EXPECT_THAT(refusal(ErrorKind::kData), testing::AnyOf(HasSubstr("shards_sha256"), HasSubstr("shards[0]"))) << size;
    put("dataset.json", text);
  }
}

TEST_F(DatasetTest, AFlippedByteIsFoundAtOpeningOrByVerify) {
  write(manifest(20, 20));
  const std::string whole = bytes("shard-000000.h5");
  int found_at_opening = 0;
  for (std::size_t at = 0; at < whole.size(); at += at < 8192 ? 61 : 7919) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    put("shard-000000.h5", damaged);
    try {
      const DatasetReader reader(folder_.string());
      for (std::uint64_t i = 0; i < reader.size(); ++i) reader.row(i);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("shard-000000.h5")) << at;
      EXPECT_EQ(e.kind(), ErrorKind::kData) << at << e.what();
      ++found_at_opening;
    }
    const auto problems = verify_dataset(folder_.string());
    ASSERT_FALSE(problems.empty()) << at;
    EXPECT_EQ(problems[0].shard, "shard-000000.h5");
  }
  EXPECT_GT(found_at_opening, 100);
}

TEST_F(DatasetTest, DamageBehindRightChecksumsIsSurvived) {
  write(manifest(20, 20));
  const std::string whole = bytes("shard-000000.h5");
  Rng random(1, 2, 3);
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    std::string damaged = whole;
    // Structure is in front, and between the columns.
    for (std::uint64_t i = 1 + random() % 12; i > 0; --i) {
      damaged[8 + random() % (round % 2 == 0 ? 4096 : whole.size() - 8)] = static_cast<char>(random());
    }
    put("shard-000000.h5", damaged);
    agree_with(damaged);
    try {
      const DatasetReader reader(folder_.string());
      for (std::uint64_t i = 0; i < reader.size(); ++i) reader.row(i);
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::kData || e.kind() == ErrorKind::kIo) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("shard-000000.h5"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST_F(DatasetTest, APipeInPlaceOfAShardIsRefused) {
  write(manifest(20, 20));
  fs::remove(path("shard-000000.h5"));
  ASSERT_EQ(::mkfifo(path("shard-000000.h5").c_str(), 0666), 0);
  EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("shard-000000.h5: is a FIFO"));
  EXPECT_EQ(verify_dataset(folder_.string()).size(), 1u);
}

TEST_F(DatasetTest, OtherVersionsAndOtherFilesAreRefused) {
  write(manifest(20, 20));
  const std::string text = bytes("dataset.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    put("dataset.json", text);
    put("dataset.json", manifest_with(from, to));
    return refusal(ErrorKind::kData);
  };
  EXPECT_THAT(with("automap.caw/3", "automap.caw/4"), HasSubstr("found automap.caw/4"));
  EXPECT_THAT(with("automap.caw/3", "automap.caw/0"), HasSubstr("found automap.caw/0"));
  EXPECT_THAT(with("automap.caw/3", "automap.plan/1"), HasSubstr("expected \"automap.caw/3\""));
  EXPECT_THAT(with("automap.caw/3", "automap.caw/1"), HasSubstr("sha256 is missing"));
  EXPECT_THAT(with("\"rows\": 20", "\"rows\": 0"), HasSubstr("rows: found 0"));
  EXPECT_THAT(with("\"rows\": 20", "\"rows\": -1"), HasSubstr("rows: found -1"));
  EXPECT_THAT(with("\"rows\": 20", "\"rows\": 21"), HasSubstr("1 of 2 shards are missing"));
  EXPECT_THAT(with("\"rows\": 20", "\"rows\": 19"), HasSubstr("does not fit"));
  EXPECT_THAT(with("\"caw_offset\":", "\"caw_offset\":99"), HasSubstr("/caw does not fit"));
  EXPECT_THAT(with("\"shards_sha256\": \"", "\"shards_sha256\": \"0"), HasSubstr("and the lines of `shards` have"));
  EXPECT_THAT(with("\"seed\"", "\"sead\""), HasSubstr("seed is missing"));
  // A shard that stands there twice.
  const std::size_t first = text.find("{\"file\""), behind = text.find("}", first) + 1;
  const std::string entry = text.substr(first, behind - first);
  EXPECT_THAT(with(entry, entry + ",\n    " + entry), HasSubstr("shards are not in order"));
  EXPECT_THAT(with("18446744073709551615", "3"), HasSubstr("seed: found 18446744073709551615"));
  EXPECT_THAT(with("shard-000000.h5", "../shard-0.h5"), HasSubstr("../shard-0.h5"));
  EXPECT_THAT(with("\"oracle\": false", "\"oracle\": true"), HasSubstr("/oracle/cuts is missing"));
  EXPECT_THAT(with("\"distributions\"", "\"x\""), HasSubstr("distributions is missing"));
  for (std::size_t size = 0; size + 2 < text.size(); size += 13) {
    put("dataset.json", text.substr(0, size));
    EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("dataset.json")) << size;
  }
  put("dataset.json", text);
  // A shard of another version: its schema is a string in the file. And a file of garbage.
  std::string shard = bytes("shard-000000.h5");
  const std::size_t at = shard.find("automap.caw/3");
  ASSERT_NE(at, std::string::npos);
  shard[at + 12] = '4';
  put("shard-000000.h5", shard);
  EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("another CRC-32C"));
  agree_with(shard);
  EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("automap.caw/3"));
  shard.assign(shard.size(), 'x');
  put("shard-000000.h5", shard);
  agree_with(shard);
  EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("not a whole HDF5 file"));
}

TEST_F(DatasetTest, RowsThatAreNoneAreNamed) {
  DatasetManifest wanted = manifest(20, 10);
  DatasetFolder folder(folder_.string(), wanted);
  for (std::uint64_t s = 0; s < 2; ++s) {
    ShardWriter writer(folder_.string(), folder.manifest(), s);
    std::vector<RowProblem> rows;
    for (std::uint64_t i = 0; i < 10; ++i) rows.push_back(hand_made_row(10 * s + i));
    if (s == 1) {
      rows[2].caw[5] = std::numeric_limits<float>::quiet_NaN();
      rows[3].scale_ms = -1;
      rows[4].distribution = 2;
      rows[5].schedule = static_cast<pipeline::Schedule>(7);
      rows[6].caw[130] = 1.5f;
    }
    append(writer, wanted, rows);
    folder.add(writer.commit());
  }
  const DatasetReader reader(folder_.string());
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_NO_THROW(reader.row(i));
  for (std::uint64_t i = 12; i < 17; ++i) {
    try {
      reader.row(i);
      ADD_FAILURE() << i;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      EXPECT_THAT(e.what(), HasSubstr("shard-000001.h5, row " + std::to_string(i - 10)));
    }
  }
  const auto problems = verify_dataset(folder_.string());
  ASSERT_EQ(problems.size(), 5u);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(problems[i].shard, "shard-000001.h5");
    EXPECT_EQ(problems[i].row, 2 + i);
  }
}

TEST_F(DatasetTest, AnotherDatasetInTheFolderIsAnErrorThatNamesTheDifference) {
  write(manifest(20, 10));
  const auto refusal_of = [&](const DatasetManifest& wanted) -> std::string {
    try {
      DatasetFolder folder(folder_.string(), wanted);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kConfig);
      return e.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  };
  DatasetManifest wanted = manifest(20, 10);
  wanted.seed = 2;
  EXPECT_THAT(refusal_of(wanted), HasSubstr("seed: holds 18446744073709551615, asked for 2"));
  wanted = manifest(20, 11);
  EXPECT_THAT(refusal_of(wanted), HasSubstr("shard-rows: holds 10, asked for 11"));
  wanted = manifest(20, 10);
  wanted.config_json = R"({"b":1,"a":[0.1,3]})";
  EXPECT_THAT(refusal_of(wanted), HasSubstr("config/a/1: holds 2, asked for 3"));
  wanted = manifest(19, 10);
  EXPECT_THAT(refusal_of(wanted), HasSubstr("holds 20 rows, asked for 19"));
  wanted = manifest(20, 10);
  wanted.oracle = true;
  wanted.compressed = true;
  EXPECT_THAT(refusal_of(wanted), testing::AllOf(HasSubstr("oracle"), HasSubstr("compress")));
}

TEST_F(DatasetTest, LeftoversGoUnlessSomebodyWritesThem) {
  DatasetFolder folder(folder_.string(), manifest(20, 10), 0, 1);
  ShardWriter at_work(folder_.string(), folder.manifest(), 0);
  const std::string in_use = "shard-000000.h5." + std::to_string(::getpid()) + "-0.tmp";
  ASSERT_TRUE(fs::exists(path(in_use)));
  put("shard-000001.h5.1-0.tmp", "half");
  put("dataset.json.1.tmp", "half");
  put("mine.tmp", "keep");
  put(".shards-1-2.1-0.tmp", "AutoMap: automap-datagen, process 1\n");
  DatasetFolder again(folder_.string(), manifest(20, 10), 1, 2);
  EXPECT_TRUE(fs::exists(path(in_use)));
  EXPECT_FALSE(fs::exists(path(".shards-1-2.1-0.tmp")));
  EXPECT_TRUE(fs::exists(path("mine.tmp")));
  EXPECT_FALSE(fs::exists(path("shard-000001.h5.1-0.tmp")));
  EXPECT_FALSE(fs::exists(path("dataset.json.1.tmp")));
}

TEST_F(DatasetTest, ShardsAreMadeByOneAtATime) {
  std::optional<DatasetFolder> folder;
  folder.emplace(folder_.string(), manifest(50, 10), 1, 3);
  const auto refusal_of = [&](std::uint64_t rows, std::uint64_t first, std::uint64_t last) -> std::string {
    try {
      DatasetFolder other(folder_.string(), manifest(rows, 10), first, last);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      return e.what();
    }
    return "";
  };
  const std::string owner = "process " + std::to_string(::getpid());
  for (const auto& [first, last] : {std::pair<int, int>{0, 2}, {1, 2}, {2, 3}, {2, 99}, {0, 99}}) {
    EXPECT_THAT(refusal_of(50, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(last)),
                testing::AllOf(HasSubstr("shards 1 to 2 are being made by"), HasSubstr(owner)));
  }
  EXPECT_EQ(refusal_of(50, 0, 1), "");
  EXPECT_EQ(refusal_of(50, 3, 99), "");
  // The number of rows is everybody's.
  EXPECT_THAT(refusal_of(60, 3, 4),
              testing::AllOf(HasSubstr("cannot be extended from 50 rows to 60"), HasSubstr(owner)));
  ASSERT_EQ(dataset_writers(folder_.string()).size(), 1u);
  EXPECT_EQ(dataset_writers(folder_.string())[0].last_shard, 3u);
  folder.reset();
  EXPECT_TRUE(dataset_writers(folder_.string()).empty());
  EXPECT_EQ(refusal_of(60, 0, 99), "");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("dataset.json", ".lock"));
  EXPECT_EQ(bytes(".lock"), "");
}

TEST_F(DatasetTest, EveryFlippedBitOfTheManifestIsFoundAndMadeGood) {
  const DatasetManifest wanted = manifest(20, 10);
  write(wanted);
  const std::string text = bytes("dataset.json");
  int repaired = 0;
  set_log_level(LogLevel::kQuiet);
  for (std::size_t bit = 0; bit < 8 * text.size(); bit += kSanitized ? 7 : 1) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_THROW(parse_manifest(flipped, "x"), Error) << bit;
    if (bit % 37 != 0) continue;
    put("dataset.json", flipped);
    EXPECT_THROW(verify_dataset(folder_.string()), Error) << bit;
    DatasetFolder folder(folder_.string(), wanted);
    const std::size_t kept = folder.manifest().shards.size();
    // One line at most is lost; the shard is then made again.
    EXPECT_GE(kept, 1u) << bit;
    if (kept < 2) continue;
    EXPECT_EQ(bytes("dataset.json"), text) << bit;
    ++repaired;
  }
  set_log_level(LogLevel::kNormal);
  EXPECT_GT(repaired, kSanitized ? 1 : 10);
}

// Megabytes of braces take no longer than their number; what is left of the list is found among them.
TEST_F(DatasetTest, AManifestFullOfBracesIsSalvagedAtOnce) {
  const DatasetManifest wanted = manifest(20, 10);
  write(wanted);
  const std::string text = bytes("dataset.json");
  const std::size_t list = text.find("\"shards\": [");
  const std::vector<ShardEntry> whole = salvage_entries(text, wanted);
  ASSERT_EQ(whole.size(), 2u);
  std::string nested;
  for (int i = 0; i < 400000; ++i) nested += "{\"a\":";
  for (const std::string& junk : {std::string(4000000, '{'), std::string(4000000, '}'), nested, nested + "}"}) {
    // Processor time, since other processes may be running: milliseconds where it is linear, hours where it is not.
    const std::clock_t before = std::clock();
    const std::vector<ShardEntry> found = salvage_entries(junk + text.substr(list) + junk, wanted);
    EXPECT_LT(std::clock() - before, 60 * CLOCKS_PER_SEC);
    ASSERT_EQ(found.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(found[i].file, whole[i].file);
      EXPECT_EQ(found[i].crc32c, whole[i].crc32c);
    }
  }
}

TEST_F(DatasetTest, ADamagedManifestOfAnotherDatasetIsLeftAlone) {
  write(manifest(20, 10));
  const std::string text = bytes("dataset.json");
  const std::string damaged = text.substr(0, 30) + "x" + text.substr(31);
  put("dataset.json", damaged);
  const auto refusal_of = [&](const DatasetManifest& wanted, ErrorKind kind) {
    try {
      DatasetFolder folder(folder_.string(), wanted);
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind);
    }
    EXPECT_EQ(bytes("dataset.json"), damaged);
  };
  DatasetManifest wanted = manifest(20, 10);
  wanted.seed = 2;
  refusal_of(wanted, ErrorKind::kData);
  wanted = manifest(20, 10);
  wanted.config_json = R"({"b":2,"a":[0.1,2]})";
  refusal_of(wanted, ErrorKind::kData);
  refusal_of(manifest(10, 10), ErrorKind::kConfig);
  DatasetFolder folder(folder_.string(), manifest(20, 10));
  EXPECT_EQ(bytes("dataset.json"), text);
}

TEST_F(DatasetTest, AManifestWithoutAChecksumIsReadAndGetsOne) {
  write(manifest(20, 10));
  const std::string text = bytes("dataset.json");
  put("dataset.json", unsealed(text));
  EXPECT_FALSE(read_manifest(folder_.string()).checksum);
  EXPECT_EQ(DatasetReader(folder_.string()).size(), 20u);
  { DatasetFolder folder(folder_.string(), manifest(20, 10)); }
  EXPECT_EQ(bytes("dataset.json"), text);
  // A line that is wrong is not sealed.
  std::string wrong = unsealed(text);
  char& digit = wrong[wrong.find("\"crc32c\":\"") + 10];
  digit = digit == '0' ? '1' : '0';
  put("dataset.json", wrong);
  EXPECT_THAT(refusal(ErrorKind::kData), HasSubstr("shards_sha256"));
  const DatasetFolder folder(folder_.string(), manifest(20, 10));
  EXPECT_FALSE(folder.is_complete(0));
  EXPECT_TRUE(folder.is_complete(1));
}

TEST_F(DatasetTest, AShardOfAnotherConfigurationIsRefused) {
  DatasetManifest other = manifest(20, 10);
  other.config_json = R"({"b":2,"a":[0.1,2]})";
  write(other);
  const std::string shard = bytes("shard-000001.h5");
  const ShardEntry entry = read_manifest(folder_.string()).shards[1];
  fs::remove_all(folder_);
  write(manifest(20, 10));
  put("shard-000001.h5", shard);
  DatasetManifest mixed = read_manifest(folder_.string());
  mixed.shards[1] = entry;
  put("dataset.json", to_json_text(mixed));
  EXPECT_THAT(refusal(ErrorKind::kData), testing::AllOf(HasSubstr("shard-000001.h5"), HasSubstr("config_sha256")));
  const auto problems = verify_dataset(folder_.string());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].what, HasSubstr("config_sha256"));
  const DatasetFolder folder(folder_.string(), manifest(20, 10));
  EXPECT_TRUE(folder.is_complete(0));
  EXPECT_FALSE(folder.is_complete(1));
}

TEST_F(DatasetTest, NoRowOfADamagedShardIsGivenOut) {
  write(manifest(40, 10));
  std::string shard = bytes("shard-000002.h5");
  const std::size_t at =
      read_manifest(folder_.string()).shards[2].caw_offset + 8 * kCawRowBytes + 4 * (pipeline::kGranularity + 9);
  shard.at(at) = static_cast<char>(shard.at(at) ^ 1);
  put("shard-000002.h5", shard);
  {
    const DatasetReader trusting(folder_.string());
    EXPECT_NO_THROW(trusting.row(28));
  }
  for (int i = 0; i < 20; ++i) {
    const DatasetReader reader(folder_.string(), RowChecks::kBeforeUse);
    std::string what;
    try {
      reader.row(static_cast<std::uint64_t>(20 + i % 10));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      what = e.what();
    }
    EXPECT_THAT(what, testing::AllOf(HasSubstr("shard-000002.h5"), HasSubstr("CRC-32C")));
    // From now on nothing is given out at all.
    EXPECT_THROW(reader.row(0), Error);
  }
  // It is heard of without being asked for.
  const DatasetReader reader(folder_.string(), RowChecks::kBeforeUse);
  EXPECT_THROW(
      for (;;) {
        reader.row(0);
        std::this_thread::yield();
      },
      Error);
}

TEST_F(DatasetTest, WhatIsNoFileIsRefusedAtOnce) {
  write(manifest(20, 10));
  const std::string shard = bytes("shard-000001.h5"), text = bytes("dataset.json");
  for (const std::string name : {"shard-000001.h5", "dataset.json"}) {
    const std::string content = bytes(name);
    for (const bool fifo : {true, false}) {
      fs::remove(path(name));
      if (fifo) {
        ASSERT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
      } else {
        fs::create_directory(path(name));
      }
      EXPECT_THAT(refusal(ErrorKind::kData),
                  testing::AllOf(HasSubstr(name), HasSubstr(fifo ? "a FIFO" : "a directory")));
      fs::remove(path(name));
    }
    put(name, content);
  }
  EXPECT_TRUE(verify_dataset(folder_.string()).empty());
}

TEST_F(DatasetTest, AShardThatIsNotCommittedLeavesNothing) {
  {
    DatasetFolder folder(folder_.string(), manifest(20, 10));
    ShardWriter dropped(folder_.string(), folder.manifest(), 0);
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("dataset.json", ".lock"));
}

}  // namespace
}  // namespace automap::io
