#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap::train {
namespace {

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("automap-checkpoint-" + std::to_string(reinterpret_cast<std::uintptr_t>(this)) + "-" +
              std::to_string(::getpid())))
                .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

Checkpoint example() {
  Checkpoint c;
  c.options = {{"seed", "1"}, {"hidden", "64,64"}, {"gamma", "1"}};
  c.data = "synth abc";
  c.counters.round = 7;
  c.counters.plays = 1ull << 60;
  c.counters.y = 0.1;
  c.counters.best_score = 1.0 / 3;
  c.counters.evaluations_since_best = 2;
  CurvePoint p;
  p.episodes = 5;
  p.values = {{"x", 0.1}, {"nan", std::numeric_limits<double>::quiet_NaN()}};
  c.curve = {p};
  c.learner_state = std::string("\0\1\2", 3);
  c.acting_policy = "acting";
  c.start_policy = "start";
  c.counters.round_problems = 12;
  c.counters.progress = 1.0 / 7;
  c.counters.start_score = 0.25;
  return c;
}

void expect_data_error(const std::string& path, const std::string& part) {
  try {
    load_checkpoint(path);
    FAIL() << "nothing was thrown for " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
  }
}

TEST_F(CheckpointTest, ThereAndBack) {
  save_checkpoint(path_, example());
  const Checkpoint back = load_checkpoint(path_), then = example();
  EXPECT_EQ(back.options, then.options);
  EXPECT_EQ(back.data, then.data);
  EXPECT_EQ(back.counters.round, 7u);
  EXPECT_EQ(back.counters.plays, then.counters.plays);
  EXPECT_EQ(back.counters.best_score, then.counters.best_score);
  EXPECT_EQ(back.counters.evaluations_since_best, 2);
  ASSERT_EQ(back.curve.size(), 1u);
  EXPECT_EQ(back.curve[0].values[0].second, 0.1);
  EXPECT_TRUE(std::isnan(back.curve[0].values[1].second));
  EXPECT_EQ(back.learner_state, then.learner_state);
  EXPECT_EQ(back.acting_policy, "acting");
  EXPECT_EQ(back.start_policy, "start");
  EXPECT_EQ(back.counters.round_problems, 12u);
  EXPECT_EQ(back.counters.progress, 1.0 / 7);
  EXPECT_EQ(back.counters.start_score, 0.25);
  EXPECT_EQ(back.best_policy, "");
}

TEST_F(CheckpointTest, EveryFlippedByteAndEveryLengthIsRefused) {
  save_checkpoint(path_, example());
  const std::string bytes = read_file(path_);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    for (const std::string& text : {damaged, bytes.substr(0, i)}) {
      // Thousands of files, which need not be on the disk.
      std::ofstream(path_, std::ios::binary) << text;
      expect_data_error(path_, "");
    }
  }
}

TEST_F(CheckpointTest, OtherFilesAndVersionsAreNamed) {
  write_file_atomic(path_, "hello, this is no checkpoint");
  expect_data_error(path_, "not a checkpoint");
  save_checkpoint(path_, example());
  std::string bytes = read_file(path_);
  bytes[8] = 9;
  write_file_atomic(path_, bytes);
  expect_data_error(path_, "version 9, expected 2");
  std::filesystem::remove(path_);
  EXPECT_THROW(load_checkpoint(path_), Error);
}

TEST_F(CheckpointTest, ARunWithOtherOptionsIsNamed) {
  const Checkpoint c = example();
  EXPECT_NO_THROW(check_same_run(c, c.options, c.data, "runs/x/checkpoint"));
  auto other = c.options;
  other[1].second = "128";
  try {
    check_same_run(c, other, "synth def", "runs/x/checkpoint");
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kConfig);
    EXPECT_EQ(std::string(e.what()),
              "runs/x/checkpoint belongs to a run with other options: --hidden was 64,64 and is now 128; the data was "
              "synth abc and is now synth def");
  }
}

}  // namespace
}  // namespace automap::train
