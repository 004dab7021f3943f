#include "train/curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap::train {
namespace {

class CurvesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("automap-curves-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "-" +
               std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

CurvePoint point(std::uint64_t episodes, double a) {
  CurvePoint p;
  p.episodes = episodes;
  p.seconds = 1.5;
  p.unix_time = 1e9;
  p.values = {{"a", a}, {"b", std::numeric_limits<double>::quiet_NaN()}};
  return p;
}

// By hand: the protocol buffer of Event{wall_time: 1e9, step: 300, summary{value{tag: "a", simple_value: 0.5}}}.
TEST(Curves, AnEventByHand) {
  const std::string bytes = event_record(point(300, 0.5));
  std::string event("\x09\x00\x00\x00\x00\x65\xcd\xcd\x41", 9);  // field 1, double 1e9
  event += std::string("\x10\xac\x02", 3);                       // field 2, varint 300
  event += std::string("\x2a\x0a", 2);                           // field 5, 10 bytes
  event += std::string(
      "\x0a\x08\x0a\x01"
      "a\x15\x00\x00\x00\x3f",
      10);  // value{tag "a", 0.5f}; NaN is left out
  ASSERT_EQ(bytes.size(), 8 + 4 + event.size() + 4);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length, event.size());
  EXPECT_EQ(bytes.substr(12, event.size()), event);
  std::uint32_t crc = 0;
  std::memcpy(&crc, bytes.data() + 8, 4);
  EXPECT_EQ(crc, masked_crc32c(bytes.substr(0, 8)));
  std::memcpy(&crc, bytes.data() + 12 + event.size(), 4);
  EXPECT_EQ(crc, masked_crc32c(event));
}

TEST(Curves, MaskedChecksum) {
  // crc32c("123456789") = e3069283; rotated right by 15: 2507c60d; plus a282ead8.
  EXPECT_EQ(masked_crc32c("123456789"), 0x2507c60du + 0xa282ead8u);
}

TEST(Curves, Csv) {
  std::vector<CurvePoint> points = {point(1, 0.25), point(2, 4)};
  points[1].values.emplace_back("c", -1);
  EXPECT_EQ(curves_csv(points), "episodes,seconds,a,b,c\n1,1.5,0.25,,\n2,1.5,4,,-1\n");
  EXPECT_EQ(curves_csv({}), "episodes,seconds\n");
}

TEST_F(CurvesTest, ResumedFilesAreThoseOfOneSession) {
  {
    Curves curves(folder_.string(), {});
    curves.add(point(1, 1));
    curves.add(point(2, 2));
  }
  const std::string csv = read_file(path("curves.csv"));
  const std::string events = read_file(path("events.out.tfevents.automap"));
  {
    // A killed session had written a third point that its checkpoint does not have.
    Curves curves(folder_.string(), {point(1, 1), point(2, 2)});
    curves.add(point(3, 3));
  }
  Curves curves(folder_.string(), {point(1, 1)});
  curves.add(point(2, 2));
  EXPECT_EQ(read_file(path("curves.csv")), csv);
  // Only the header's time differs: a new file has none yet.
  const std::string again = read_file(path("events.out.tfevents.automap"));
  ASSERT_EQ(again.size(), events.size());
  const std::size_t header = event_file_header(0).size();
  EXPECT_EQ(again.substr(header), events.substr(header));
}

TEST_F(CurvesTest, AFolderThatIsGone) {
  Curves curves(folder_.string(), {});
  std::filesystem::remove_all(folder_);
  try {
    curves.add(point(1, 1));
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(e.what()).find("tfevents"), std::string::npos);
  }
}

}  // namespace
}  // namespace automap::train
