#include "common/io/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/number_range.h"
#include "common/io/hdf5.h"

namespace automap::io {
namespace {

using pipeline::Profile;
using testing::HasSubstr;

// A folder that goes away with the test.
class ProfileFile : public testing::Test {
 protected:
  ProfileFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "automap-profile-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~ProfileFile() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  // Nothing half written: no temporary file left behind.
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  // An HDF5 file as others may make it: without a checksum.
  std::string write_hdf5(const std::string& name, const std::function<void(Hdf5Writer&)>& make) const {
    start_hdf5();
    Hdf5Writer writer(name);
    make(writer);
    return write(name, writer.finish());
  }

  std::filesystem::path folder_;
};

Profile sample() {
  Profile profile;
  profile.model = "model, with \\ \"quotes\"\nand lines ";
  profile.device = "v100-16gb";
  profile.micro_batch_size = 16;
  profile.forward_fraction = 1.0 / 3.0;
  profile.work = "matmul bf16";
  profile.source_sha256 = "00ff";
  profile.c_ms = {0.1, 1e-20, 123456.789012345678, 0};
  profile.a_bytes = {4096, 1e18, 0, 0};
  profile.w_bytes = {0, 3, 1.0 / 7.0, 1e30};
  profile.stash_bytes = {0, 1e-20, 5, 6};
  profile.name = {"dot.1", "", "a,b", "x\"y"};
  profile.op_name = {"params['wte']['embedding']", "line\nbreak\r\n", " blanks ", "# not a comment"};
  profile.layer = {"h/0", "h/1", "Schicht \xc3\xbc", "\t"};
  return profile;
}

void expect_equal(const Profile& a, const Profile& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.micro_batch_size, b.micro_batch_size);
  EXPECT_EQ(a.forward_fraction, b.forward_fraction);
  EXPECT_EQ(a.work, b.work);
  EXPECT_EQ(a.source_sha256, b.source_sha256);
  EXPECT_EQ(a.c_ms, b.c_ms);
  EXPECT_EQ(a.a_bytes, b.a_bytes);
  EXPECT_EQ(a.w_bytes, b.w_bytes);
  EXPECT_EQ(a.stash_bytes, b.stash_bytes);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.op_name, b.op_name);
  EXPECT_EQ(a.layer, b.layer);
}

// The error that `action` throws.
Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorKind::kInternal, "");
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(bytes.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST_F(ProfileFile, RoundTripsAreExact) {
  for (const char* name : {"p.h5", "p.hdf5", "p.csv"}) {
    save_profile(path(name), sample());
    expect_equal(load_profile(path(name)), sample());
    Profile plain = sample();
    plain.name.clear();
    plain.op_name.clear();
    plain.layer.clear();
    plain.model.clear();
    save_profile(path(name), plain);  // replaces the file
    expect_equal(load_profile(path(name)), plain);
  }
  EXPECT_EQ(files(), 3u);
}

TEST_F(ProfileFile, RandomRoundTripsAreExact) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    Profile profile;
    const std::size_t n = 2 + random() % 40;
    const auto number = [&] {
      double value = 0;
      do {
        const std::uint64_t bits = random() >> 1;  // any non-negative double that files may hold
        static_assert(sizeof bits == sizeof value);
        std::copy_n(reinterpret_cast<const char*>(&bits), sizeof bits, reinterpret_cast<char*>(&value));
      } while (!in_file_range(value));
      return value;
    };
    const auto text = [&] {
      std::string value;
      for (std::size_t i = random() % 6; i > 0; --i) value += "ab,\"\n\r #=\t;'"[random() % 12];
      return value;
    };
    for (std::size_t i = 0; i < n; ++i) {
      profile.c_ms.push_back(number());
      profile.a_bytes.push_back(number());
      profile.w_bytes.push_back(number());
      profile.stash_bytes.push_back(number());
      profile.name.push_back(text());
      profile.layer.push_back(text());
    }
    profile.device = text();
    profile.forward_fraction = 0.25;
    expect_equal(read_profile(to_csv(profile), "memory.csv"), profile);
    save_profile(path("p.h5"), profile);
    expect_equal(load_profile(path("p.h5")), profile);
  }
}

TEST_F(ProfileFile, FormIsToldByContent) {
  save_profile(path("p.h5"), sample());
  std::filesystem::rename(path("p.h5"), path("p.csv"));
  expect_equal(load_profile(path("p.csv")), sample());
  expect_equal(load_profile(write("p.gz", gzip(to_csv(sample())))), sample());
  expect_equal(load_profile(write("h5.gz", gzip(read_file(path("p.csv"))))), sample());
  EXPECT_EQ(detect_profile(to_csv(sample())), ProfileForm::kCsv);
  EXPECT_EQ(detect_profile("a_bytes,c_ms\n"), ProfileForm::kCsv);
  EXPECT_EQ(detect_profile("\n# free text\nlayer,c_ms\n"), ProfileForm::kCsv);
  EXPECT_EQ(detect_profile("node1 -- x -- forward_compute_time=1"), ProfileForm::kPipedream);
  EXPECT_EQ(detect_profile(read_file(path("p.csv"))), ProfileForm::kHdf5);
  for (const char* other : {"", "HloModule m\n", "{\"hloModule\":{}}", "some text\n"}) {
    EXPECT_FALSE(detect_profile(other).has_value()) << other;
  }
}

TEST_F(ProfileFile, CsvByHand) {
  const Profile profile = read_profile(
      "\xef\xbb\xbf# a free comment\r\n# forward_fraction = 0.4\r\n\r\nlayer, c_ms ,a_bytes,w_bytes,stash_bytes\r\n"
      "a,1, 2,3,4\r\n\r\n\"b, c\" ,5,6,7,8",
      "hand.csv");
  EXPECT_EQ(profile.forward_fraction, 0.4);
  EXPECT_EQ(profile.c_ms, (std::vector<double>{1, 5}));
  EXPECT_EQ(profile.stash_bytes, (std::vector<double>{4, 8}));
  EXPECT_EQ(profile.layer, (std::vector<std::string>{"a", "b, c"}));
  EXPECT_TRUE(profile.name.empty());
}

TEST_F(ProfileFile, CsvErrorsNameTheLine) {
  const std::string header = "c_ms,a_bytes,w_bytes,stash_bytes\n";
  const struct {
    std::string text, line, what;
  } cases[] = {
      {header + "1,2,3,4\n1,nan,3,4\n", ":3: ", "a_bytes: found 'nan'"},
      {header + "1,2,3,4\n-1,2,3,4\n", ":3: ", "c_ms: found '-1'"},
      {header + "1,2,3,4\n1,inf,3,4\n", ":3: ", "finite"},
      {header + "1,2,3,4\n1,2,3\n", ":3: ", "found 3 fields, expected 4"},
      {header + "1,2,3,4\n1,two,3,4\n", ":3: ", "expected a number"},
      {header + "1,2,,4\n", ":2: ", "w_bytes: found ''"},
      {header + "1e999,2,3,4\n", ":2: ", "c_ms"},
      {"c_ms,a_bytes,w_bytes\n1,2,3\n", ":1: ", "stash_bytes is missing"},
      {"c_ms,c_ms,a_bytes,w_bytes,stash_bytes\n", ":1: ", "twice"},
      {"c_ms,colour\n", ":1: ", "unknown column 'colour'"},
      {"name," + header + "\"open,1,2,3,4\n1,2,3,4\n", ":2: ", "never closed"},
      {"name," + header + "\"a\nb\",1,2,3,4\n\"c\" d,1,2,3,4\n", ":4: ", "expected a comma"},
      {"# schema = automap.profile/3\n" + header, ":1: ", "newer"},
      {"# forward_fraction = many\n" + header, ":1: ", "forward_fraction"},
      {"# schema = automap.profile/1\n", ":1: ", "no header"},
  };
  for (const auto& c : cases) {
    const Error error = error_of([&] { read_profile(c.text, "bad.csv"); });
    EXPECT_EQ(error.kind(), ErrorKind::kData) << c.text;
    EXPECT_THAT(error.what(), HasSubstr("bad.csv" + c.line)) << c.text;
    EXPECT_THAT(error.what(), HasSubstr(c.what)) << c.text;
  }
}

TEST_F(ProfileFile, OneInstructionIsRefused) {
  const Error error = error_of([] { read_profile("c_ms,a_bytes,w_bytes,stash_bytes\n1,2,3,4\n", "one.csv"); });
  EXPECT_EQ(error.kind(), ErrorKind::kData);
  EXPECT_THAT(error.what(), HasSubstr("at least 2"));
  Profile one = sample();
  for (auto* column : {&one.c_ms, &one.a_bytes, &one.w_bytes, &one.stash_bytes}) column->resize(1);
  one.name.clear();
  one.op_name.clear();
  one.layer.clear();
  EXPECT_EQ(error_of([&] { save_profile(path("one.h5"), one); }).kind(), ErrorKind::kData);
  EXPECT_EQ(files(), 0u);
}

TEST_F(ProfileFile, NanAndNegativeAreRefusedOnBothSides) {
  for (const double bad : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    Profile profile = sample();
    profile.a_bytes[2] = bad;
    for (const char* name : {"p.h5", "p.csv"}) {
      EXPECT_EQ(error_of([&] { save_profile(path(name), profile); }).kind(), ErrorKind::kData);
    }
    const std::string raw = write_hdf5("raw.h5", [&](Hdf5Writer& writer) {
      writer.write_attribute("schema", std::string("automap.profile/1"));
      writer.write_doubles("c_ms", profile.c_ms);
      writer.write_doubles("a_bytes", profile.a_bytes);
      writer.write_doubles("w_bytes", profile.w_bytes);
      writer.write_doubles("stash_bytes", profile.stash_bytes);
    });
    const Error error = error_of([&] { load_profile(raw); });
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.what(), HasSubstr("a_bytes"));
    EXPECT_THAT(error.what(), HasSubstr("instruction 3"));
  }
}

TEST_F(ProfileFile, TruncatedAndDamagedHdf5) {
  save_profile(path("p.h5"), sample());
  const std::string whole = read_file(path("p.h5"));
  for (std::size_t length = 8; length < whole.size(); length += std::max<std::size_t>(1, whole.size() / 61)) {
    const Error error = error_of([&] { read_profile(whole.substr(0, length), "cut.h5"); });
    EXPECT_EQ(error.kind(), ErrorKind::kData) << length;
    EXPECT_THAT(error.what(), HasSubstr("cut.h5"));
  }
}

TEST_F(ProfileFile, TheSameBytesEveryTime) {
  save_profile(path("a.h5"), sample());
  save_profile(path("b.h5"), sample());
  const std::string a = read_file(path("a.h5"));
  EXPECT_TRUE(a == read_file(path("b.h5")));
  EXPECT_TRUE(check_hdf5_bytes(a, "a.h5").verified);
  // Nothing of a variable length: no heap of any kind (HEAP: local, GCOL: global, FRHP: fractal).
  for (const char* mark : {"HEAP", "GCOL", "FRHP", "TREE"}) EXPECT_EQ(a.find(mark), std::string::npos) << mark;
}

TEST_F(ProfileFile, DamageIsFoundByTheChecksum) {
  save_profile(path("p.h5"), sample());
  const std::string whole = read_file(path("p.h5"));
  // Also where a double or a letter would be as good.
  for (std::size_t at = 8; at < whole.size(); at += 37) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const Error error = error_of([&] { read_profile(damaged, "flipped.h5"); });
    EXPECT_EQ(error.kind(), ErrorKind::kData) << at;
    EXPECT_THAT(error.what(), HasSubstr("flipped.h5: damaged")) << at;
  }
  const std::string without = whole.substr(0, whole.size() - 32);
  expect_equal(read_profile(without, "without.h5"), sample());
  EXPECT_THAT(error_of([&] { read_profile(without + "x", "more.h5"); }).what(),
              HasSubstr("more.h5: damaged: found 1 bytes behind the end of the HDF5 data"));
}

TEST_F(ProfileFile, DamageBehindARightChecksumIsSurvived) {
  save_profile(path("p.h5"), sample());
  std::string whole = read_file(path("p.h5"));
  whole.resize(whole.size() - 32);
  std::mt19937_64 random(5);
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    std::string damaged = whole;
    // Structure is in front; a third of the bytes is numbers and text.
    for (std::uint64_t i = 1 + random() % 12; i > 0; --i) {
      damaged[8 + random() % ((whole.size() - 8) / (round % 2 == 0 ? 1 : 4))] = static_cast<char>(random());
    }
    add_hdf5_checksum(&damaged);
    try {
      read_profile(damaged, "hostile.h5");
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::kData || e.kind() == ErrorKind::kIo) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("hostile.h5"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST_F(ProfileFile, UnknownParts) {
  // Later versions may add some.
  const std::string file = write_hdf5("more.h5", [&](Hdf5Writer& w) {
    w.write_attribute("schema", std::string("automap.profile/2"));
    w.write_attribute("more", 1.0);
    for (const char* name : {"c_ms", "a_bytes", "w_bytes", "stash_bytes", "t_ms"}) w.write_doubles(name, {1, 2});
  });
  EXPECT_EQ(load_profile(file).c_ms, (std::vector<double>{1, 2}));
}

TEST_F(ProfileFile, Hdf5OfAnotherMaking) {
  const std::vector<double> four = {1, 2, 3, 4};
  const auto made = [&](const std::function<void(Hdf5Writer&)>& make) {
    const std::string file = write_hdf5("made.h5", make);
    return std::string(error_of([&] { load_profile(file); }).what());
  };
  EXPECT_THAT(made([&](Hdf5Writer& w) { w.write_doubles("c_ms", four); }), HasSubstr("schema"));
  EXPECT_THAT(made([&](Hdf5Writer& w) { w.write_attribute("schema", std::string("automap.caw/1")); }),
              HasSubstr("automap.caw/1"));
  EXPECT_THAT(made([&](Hdf5Writer& w) { w.write_attribute("schema", std::string("automap.profile/3")); }),
              HasSubstr("newer"));
  EXPECT_THAT(made([&](Hdf5Writer& w) {
                w.write_attribute("schema", std::string("automap.profile/1"));
                w.write_attribute("version", std::int64_t{3});
              }),
              HasSubstr("automap.profile/3"));
  EXPECT_THAT(made([&](Hdf5Writer& w) { w.write_attribute("schema", 1.0); }), HasSubstr("attribute schema"));
  EXPECT_THAT(made([&](Hdf5Writer& w) {
                w.write_attribute("schema", std::string("automap.profile/1"));
                w.write_doubles("c_ms", four);
              }),
              HasSubstr("/a_bytes is missing"));
  EXPECT_THAT(made([&](Hdf5Writer& w) {
                w.write_attribute("schema", std::string("automap.profile/1"));
                w.write_strings("c_ms", {"1", "2"});
              }),
              HasSubstr("/c_ms: found strings, expected numbers"));
  EXPECT_THAT(made([&](Hdf5Writer& w) {
                w.write_attribute("schema", std::string("automap.profile/1"));
                for (const char* name : {"c_ms", "a_bytes", "w_bytes", "stash_bytes"}) w.write_doubles(name, four);
                w.write_doubles("layer", four);
              }),
              HasSubstr("/layer: found floating-point numbers, expected strings"));
  EXPECT_THAT(made([&](Hdf5Writer& w) {
                w.write_attribute("schema", std::string("automap.profile/1"));
                for (const char* name : {"c_ms", "a_bytes", "w_bytes"}) w.write_doubles(name, four);
                w.write_doubles("stash_bytes", {1, 2});
              }),
              HasSubstr("stash_bytes has 2 values where c_ms has 4"));
}

TEST_F(ProfileFile, Hdf5DatasetOfAnotherRank) {
  save_profile(path("p.h5"), sample());
  const Hdf5Handle file(H5Fopen(path("p.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
  ASSERT_TRUE(file.valid());
  ASSERT_GE(H5Ldelete(file.get(), "a_bytes", H5P_DEFAULT), 0);
  const hsize_t dims[] = {2, 2};
  {
    const Hdf5Handle space(H5Screate_simple(2, dims, nullptr), H5Sclose);
    const Hdf5Handle dataset(
        H5Dcreate2(file.get(), "a_bytes", H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        H5Dclose);
    ASSERT_TRUE(dataset.valid());
  }
  ASSERT_GE(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), 0);
  EXPECT_THAT(error_of([&] { load_profile(path("p.h5")); }).what(),
              HasSubstr("/a_bytes: found 2 dimensions, expected 1"));
}

TEST_F(ProfileFile, UnreadableAndUnwritablePaths) {
  EXPECT_EQ(error_of([&] { load_profile(path("absent.h5")); }).kind(), ErrorKind::kIo);
  EXPECT_EQ(error_of([&] { load_profile(folder_.string()); }).kind(), ErrorKind::kIo);
  EXPECT_EQ(error_of([&] { save_profile(path("no/such/folder.h5"), sample()); }).kind(), ErrorKind::kIo);
  EXPECT_EQ(error_of([&] { save_profile(path("p.txt"), sample()); }).kind(), ErrorKind::kUsage);
  const Error empty = error_of([&] { load_profile(write("empty", "")); });
  EXPECT_EQ(empty.kind(), ErrorKind::kData);
  EXPECT_THAT(empty.what(), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { load_profile(write("garbage", std::string(100, '\x01'))); }).what(),
              HasSubstr("not a profile"));
}

TEST_F(ProfileFile, FullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  for (const char* name : {"full.h5", "full.csv"}) {
    std::filesystem::create_symlink("/dev/full", path(name));
    const Error error = error_of([&] { save_profile(path(name), sample()); });
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), HasSubstr(name));
    EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("0x")));
  }
  EXPECT_EQ(files(), 2u);  // the two links
}

TEST_F(ProfileFile, StandardInput) {
  save_profile(path("p.h5"), sample());
  // Only this process's descriptor 0 is changed, and put back.
  const int saved = dup(0);
  ASSERT_NE(freopen(path("p.h5").c_str(), "rb", stdin), nullptr);
  expect_equal(load_profile("-"), sample());
  ASSERT_GE(dup2(saved, 0), 0);
  close(saved);
}

// --- Version 2 ---

// All that a module's profile has. Times are stored in single precision: these are exact in it.
Profile whole() {
  Profile profile = sample();
  profile.w_bytes[3] = 7;
  profile.gradient_bytes = {0, 1.5, 0, 7};
  profile.slot_bytes = {0, 6, 0, 14};
  profile.frozen_bytes = {1, 2, 3, 4};
  profile.workspace_bytes = {8, 0, 8, 0};
  profile.layer_entry_bytes = {0, 4, 0, 2};
  profile.stage_entry_bytes = {0, 0, 6, 1};
  profile.shared = {{2, 4, 3, 1.5, 6}, {1, 3, 0, 0, 0}};
  profile.accumulated_micro_batches = 12;
  profile.times = {
      {"v100-16gb",
       {1, 2, 16},
       {{1, 2, 3, 0.5}, {2, 4, 6, 1}, {16, 32, 48, 8}},
       {{0, 0, 0, 0.25}, {0, 0, 0, 0.5}, {1, 1, 1, 1}},
       {0, 0.1, 0, 0.3}},
      {"h100", {1, 16}, {{1, 2, 3, 0.5}, {2, 4, 6, 1}}, {{0, 0, 0, 0.25}, {0, 0, 0, 0.5}}, {0, 0.01, 0, 0.03}}};
  return profile;
}

void expect_equal_whole(const Profile& a, const Profile& b) {
  EXPECT_EQ(a.c_ms, b.c_ms);
  EXPECT_EQ(a.gradient_bytes, b.gradient_bytes);
  EXPECT_EQ(a.slot_bytes, b.slot_bytes);
  EXPECT_EQ(a.frozen_bytes, b.frozen_bytes);
  EXPECT_EQ(a.workspace_bytes, b.workspace_bytes);
  EXPECT_EQ(a.layer_entry_bytes, b.layer_entry_bytes);
  EXPECT_EQ(a.stage_entry_bytes, b.stage_entry_bytes);
  EXPECT_EQ(a.accumulated_micro_batches, b.accumulated_micro_batches);
}

TEST_F(ProfileFile, Hdf5HoldsAllOfAModulesProfile) {
  const Profile profile = whole();
  save_profile(path("a.h5"), profile);
  for (const ProfileColumns columns : {ProfileColumns::kAll, ProfileColumns::kForPlanning}) {
    const Profile back = read_profile(read_file(path("a.h5")), "a.h5", columns);
    expect_equal_whole(profile, back);
    ASSERT_EQ(back.shared.size(), 2u);
    EXPECT_EQ(back.shared[0].first, 2);
    EXPECT_EQ(back.shared[0].position, 4);
    EXPECT_EQ(back.shared[0].weight_bytes, 3);
    EXPECT_EQ(back.shared[0].gradient_bytes, 1.5);
    EXPECT_EQ(back.shared[0].slot_bytes, 6);
    ASSERT_EQ(back.times.size(), 2u);
    for (std::size_t d = 0; d < 2; ++d) {
      EXPECT_EQ(back.times[d].device, profile.times[d].device);
      EXPECT_EQ(back.times[d].samples, profile.times[d].samples);
      EXPECT_EQ(back.times[d].forward_ms, profile.times[d].forward_ms);
      EXPECT_EQ(back.times[d].backward_ms, profile.times[d].backward_ms);
      EXPECT_EQ(back.times[d].optimizer_ms, profile.times[d].optimizer_ms);
    }
  }
  save_profile(path("b.h5"), profile);
  EXPECT_EQ(read_file(path("a.h5")), read_file(path("b.h5")));
}

// With replicas of 2 and 8 devices: half and an eighth of everything.
Profile with_widths() {
  Profile profile = whole();
  for (const int width : {2, 8}) {
    pipeline::WidthColumns columns;
    columns.width = width;
    const auto part = [&](std::vector<double> values) {
      for (double& value : values) value /= width;
      return values;
    };
    columns.w_bytes = part(profile.w_bytes);
    columns.gradient_bytes = part(profile.gradient_bytes);
    columns.slot_bytes = part(profile.slot_bytes);
    columns.frozen_bytes = part(profile.frozen_bytes);
    columns.stash_bytes = part(profile.stash_bytes);
    columns.workspace_bytes = part(profile.workspace_bytes);
    columns.layer_entry_bytes = part(profile.layer_entry_bytes);
    columns.stage_entry_bytes = part(profile.stage_entry_bytes);
    if (width == 8) columns.shared = profile.shared;
    for (const pipeline::DeviceTimes& times : profile.times) {
      columns.times.push_back(times);
      for (auto* rows : {&columns.times.back().forward_ms, &columns.times.back().backward_ms}) {
        for (std::vector<double>& row : *rows) row = part(row);
      }
      columns.times.back().optimizer_ms = part(times.optimizer_ms);
      columns.collective_ms.push_back(part({0, 1, 0, 2}));
    }
    columns.partition = "{\"shards\": " + std::to_string(width) + "}\n";
    columns.partition_text = "in parts";
    columns.servers = "config-a";
    profile.widths.push_back(std::move(columns));
  }
  return profile;
}

TEST_F(ProfileFile, Hdf5HoldsTheWidths) {
  const Profile profile = with_widths();
  save_profile(path("a.h5"), profile);
  const Profile back = load_profile(path("a.h5"));
  ASSERT_EQ(back.times.size(), 2u);
  EXPECT_EQ(back.times[1].forward_ms, profile.times[1].forward_ms);
  ASSERT_EQ(back.widths.size(), 2u);
  for (std::size_t w = 0; w < 2; ++w) {
    const pipeline::WidthColumns &a = profile.widths[w], &b = back.widths[w];
    EXPECT_EQ(a.width, b.width);
    EXPECT_EQ(a.w_bytes, b.w_bytes);
    EXPECT_EQ(a.gradient_bytes, b.gradient_bytes);
    EXPECT_EQ(a.slot_bytes, b.slot_bytes);
    EXPECT_EQ(a.frozen_bytes, b.frozen_bytes);
    EXPECT_EQ(a.stash_bytes, b.stash_bytes);
    EXPECT_EQ(a.workspace_bytes, b.workspace_bytes);
    EXPECT_EQ(a.layer_entry_bytes, b.layer_entry_bytes);
    EXPECT_EQ(a.stage_entry_bytes, b.stage_entry_bytes);
    EXPECT_EQ(a.shared.size(), b.shared.size());
    EXPECT_EQ(a.collective_ms, b.collective_ms);
    EXPECT_EQ(a.partition, b.partition);
    EXPECT_EQ(a.partition_text, b.partition_text);
    EXPECT_EQ(a.servers, b.servers);
    ASSERT_EQ(b.times.size(), 2u);
    for (std::size_t d = 0; d < 2; ++d) {
      EXPECT_EQ(a.times[d].device, b.times[d].device);
      EXPECT_EQ(a.times[d].samples, b.times[d].samples);
      EXPECT_EQ(a.times[d].forward_ms, b.times[d].forward_ms);
      EXPECT_EQ(a.times[d].backward_ms, b.times[d].backward_ms);
      EXPECT_EQ(a.times[d].optimizer_ms, b.times[d].optimizer_ms);
    }
  }
}

TEST_F(ProfileFile, WidthsThatDoNotFitAreRefusedByName) {
  const auto failure = [&](const std::function<void(Profile&)>& damage) {
    Profile profile = with_widths();
    damage(profile);
    try {
      save_profile(path("x.h5"), profile);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      return std::string(e.what());
    }
    return std::string("written");
  };
  EXPECT_EQ(failure([](Profile&) {}), "written");
  EXPECT_THAT(failure([](Profile& p) { p.widths[1].width = 2; }), HasSubstr("width 2 after 2"));
  EXPECT_THAT(failure([](Profile& p) { p.widths[0].stash_bytes.pop_back(); }),
              HasSubstr("width 2: column stash_bytes"));
  EXPECT_THAT(failure([](Profile& p) { p.widths[0].times.pop_back(); }), HasSubstr("width 2: times of 1 devices"));
  EXPECT_THAT(failure([](Profile& p) { p.widths[1].times[0].samples[0] = 0.5; }), HasSubstr("those of width 1"));
  EXPECT_THAT(failure([](Profile& p) { p.widths[1].collective_ms[1][0] = -1; }), HasSubstr("collective_ms"));
}

TEST_F(ProfileFile, CsvHoldsTheColumns) {
  const std::string text = to_csv(whole());
  EXPECT_THAT(text, HasSubstr("# schema = automap.profile/2\n"));
  EXPECT_THAT(text, HasSubstr("# accumulated_micro_batches = 12\n"));
  const Profile back = read_profile(text, "a.csv");
  expect_equal_whole(whole(), back);
  EXPECT_TRUE(back.times.empty());
  EXPECT_TRUE(back.shared.empty());
  EXPECT_EQ(to_csv(back), text);
  // Without anything new it stays the first version.
  EXPECT_THAT(to_csv(sample()), HasSubstr("# schema = automap.profile/1\n"));
  EXPECT_THROW(
      read_profile("# accumulated_micro_batches = 0.5\nc_ms,a_bytes,w_bytes,stash_bytes\n1,1,1,1\n1,1,1,1\n", "a.csv"),
      Error);
}

TEST_F(ProfileFile, OneLongNameTakesNoRoomFromTheOthers) {
  Profile profile;
  profile.c_ms.assign(12000, 1);
  profile.a_bytes = profile.w_bytes = profile.stash_bytes = std::vector<double>(12000, 0);
  profile.op_name.assign(12000, "short");
  profile.op_name[77] = std::string(9000, 'x');
  profile.name.assign(12000, "");
  profile.name[3] = std::string(100000, 'y');  // longer than a string of HDF5 may be
  save_profile(path("a.h5"), profile);
  EXPECT_LT(std::filesystem::file_size(path("a.h5")), 1u << 20);
  const Profile back = load_profile(path("a.h5"));
  EXPECT_EQ(back.op_name, profile.op_name);
  EXPECT_EQ(back.name, profile.name);
}

TEST_F(ProfileFile, TablesThatDoNotFitAreRefusedByName) {
  const auto failure = [&](const std::function<void(Hdf5Writer&)>& more) {
    const std::string file = write_hdf5("x.h5", [&](Hdf5Writer& w) {
      w.write_attribute("schema", std::string("automap.profile/2"));
      for (const char* name : {"c_ms", "a_bytes", "w_bytes", "stash_bytes"}) w.write_doubles(name, {1, 2});
      more(w);
    });
    try {
      load_profile(file);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      return std::string(e.what());
    }
    return std::string("read");
  };
  const auto times = [](Hdf5Writer& w, const std::vector<float>& points, std::uint64_t columns,
                        const std::vector<float>& values) {
    w.write_strings("devices", {"v100-16gb"});
    w.write_table("points", columns, points);
    w.write_table("c_forward_ms", 2, values);
    w.write_table("c_backward_ms", 2, values);
    w.write_doubles("optimizer_ms", {0, 0});
  };
  EXPECT_EQ(failure([&](Hdf5Writer& w) { times(w, {1, 1, 4, 1}, 2, {1, 2, 3, 4}); }), "read");
  // Times of another width: for later versions.
  EXPECT_EQ(failure([&](Hdf5Writer& w) { times(w, {1, 1, 4, 2}, 2, {1, 2, 3, 4}); }), "read");
  EXPECT_THAT(failure([&](Hdf5Writer& w) {
                times(w, {1, 1, 4, 1}, 2, {1, 2, 3, 4});
                w.write_doubles("widths", {2});
              }),
              HasSubstr("width_2/partition"));
  for (const double width : {1.0, 2.5, -1.0, 1e9}) {
    EXPECT_THAT(failure([&](Hdf5Writer& w) {
                  times(w, {1, 1, 4, 1}, 2, {1, 2, 3, 4});
                  w.write_doubles("widths", {width});
                }),
                HasSubstr("/widths: found"));
  }
  EXPECT_THAT(failure([&](Hdf5Writer& w) { times(w, {1, 1, 4, 0.5}, 2, {1, 2, 3, 4}); }), HasSubstr("a width of"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) {
                times(w, {1, 1, 4, 1}, 2, {1, 2, 3, 4});
                w.write_doubles("widths", {2});
                w.write_group("width_2");
                for (const char* column : {"w_bytes", "gradient_bytes", "slot_bytes", "frozen_bytes", "stash_bytes",
                                           "workspace_bytes", "optimizer_ms", "collective_ms"}) {
                  w.write_doubles(std::string("width_2/") + column, {0, 0});
                }
                w.write_strings("width_2/partition", {"", "", ""});
              }),
              HasSubstr("width 2: times on"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { times(w, {1, 1, 4, 1}, 2, {1, 2}); }), HasSubstr("/c_forward_ms"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { times(w, {1, 4}, 1, {1, 2, 3, 4}); }), HasSubstr("/points"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { times(w, {4, 1, 1, 1}, 2, {1, 2, 3, 4}); }), HasSubstr("ascending"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { times(w, {1, 1, 4, 1}, 2, {1, 2, 3, -4}); }), HasSubstr("c_forward_ms"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { w.write_strings("devices", {"v100-16gb"}); }), HasSubstr("/points"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { w.write_doubles("slot_bytes", {1}); }), HasSubstr("slot_bytes"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) {
                w.write_doubles("layer_entry_bytes", {1, 1});
              }),
              HasSubstr("need each other"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { w.write_attribute("accumulated_micro_batches", std::int64_t{0}); }),
              HasSubstr("accumulated_micro_batches"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) {
                w.write_doubles("shared_first", {2});
                w.write_doubles("shared_position", {1});
                for (const char* name : {"shared_weight_bytes", "shared_gradient_bytes", "shared_slot_bytes"})
                  w.write_doubles(name, {1});
              }),
              HasSubstr("shared weight"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) { w.write_doubles("shared_first", {2}); }), HasSubstr("/shared_position"));
  EXPECT_THAT(failure([&](Hdf5Writer& w) {
                w.write_doubles("name_text", {65, 66});
                w.write_doubles("name_end", {2, 1});
              }),
              HasSubstr("/name_end"));
}

}  // namespace
}  // namespace automap::io
