#include "common/base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/error.h"
#include "common/base/rng.h"

namespace automap {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "automap-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  fs::path folder_;
};

template <typename Function>
Error caught(Function function) {
  try {
    function();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::kInternal, "");
}

std::string gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string noise(std::size_t size) {
  Rng rng(1, 2, size);
  std::string out;
  for (std::size_t i = 0; i < size; ++i) out += static_cast<char>(rng.below(256));
  return out;
}

TEST_F(FilesTest, ReadsWhatWasWritten) {
  for (const std::size_t size : {0, 1, 4095, 4096, 3000000}) {
    const std::string bytes = noise(size);
    write_file_atomic(path("x"), bytes);
    EXPECT_EQ(read_file(path("x")), bytes);
  }
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
}

TEST_F(FilesTest, ReadErrorsNameThePathAndTheReason) {
  EXPECT_NE(std::string(caught([&] { read_file(path("missing")); }).what()).find("missing: No such file"),
            std::string::npos);
  const Error directory = caught([&] { read_file(folder_.string()); });
  EXPECT_EQ(directory.kind(), ErrorKind::kIo);
  EXPECT_NE(std::string(directory.what()).find("is a directory"), std::string::npos);
  put("big", std::string(1001, 'x'));
  EXPECT_EQ(read_file(path("big"), 1001).size(), 1001u);
  EXPECT_EQ(caught([&] { read_file(path("big"), 1000); }).kind(), ErrorKind::kData);
}

TEST_F(FilesTest, StreamsWithoutASizeAreLimitedToo) {
  EXPECT_EQ(caught([&] { read_file("/dev/zero", 5000000); }).kind(), ErrorKind::kData);
}

TEST_F(FilesTest, GunzipExpandsOneAndSeveralMembers) {
  const std::string a = noise(100000), b(5000000, 'b');
  EXPECT_EQ(gunzip(gzip(a), "x"), a);
  EXPECT_EQ(gunzip(gzip(b), "x"), b);
  EXPECT_EQ(gunzip(gzip(""), "x"), "");
  EXPECT_EQ(gunzip(gzip(a) + gzip(b) + gzip(a), "x"), a + b + a);
  EXPECT_EQ(gunzip(gzip(a) + std::string(512, '\0'), "x"), a);
  EXPECT_EQ(gunzip_if_gzip(a, "x"), a);
  EXPECT_EQ(gunzip_if_gzip(gzip(a), "x"), a);
}

TEST_F(FilesTest, GunzipRefusesEveryTruncationAndOtherBytesBehind) {
  const std::string whole = gzip(noise(300));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Error error = caught([&] { gunzip(whole.substr(0, size), "model.gz"); });
    EXPECT_EQ(error.kind(), ErrorKind::kData) << size;
    EXPECT_EQ(std::string(error.what()).rfind("model.gz: ", 0), 0u) << error.what();
  }
  EXPECT_EQ(caught([&] { gunzip(whole + "trailing", "x"); }).kind(), ErrorKind::kData);
}

TEST_F(FilesTest, GunzipSurvivesEveryFlippedByte) {
  const std::string whole = gzip(noise(200)), bytes = gunzip(whole, "x");
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    try {
      // Flags of the header (name, time) do not change the content; everything else must be noticed.
      EXPECT_EQ(gunzip(damaged, "x"), bytes) << at;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST_F(FilesTest, GunzipStopsAtTheLimit) {
  const std::string bomb = gzip(std::string(20000000, 'x'));
  EXPECT_LT(bomb.size(), 30000u);
  EXPECT_EQ(caught([&] { gunzip(bomb, "x", 1000000); }).kind(), ErrorKind::kData);
  EXPECT_EQ(gunzip(bomb, "x", 20000000).size(), 20000000u);
  EXPECT_EQ(caught([&] { gunzip(bomb, "x", 19999999); }).kind(), ErrorKind::kData);
}

TEST_F(FilesTest, WithoutCommitTheOldFileStays) {
  put("x", "old");
  {
    AtomicFile file(path("x"));
    file.write("new");
    EXPECT_EQ(names().size(), 2u);
  }
  EXPECT_EQ(read_file(path("x")), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
}

TEST_F(FilesTest, ReplacingKeepsTheModeAndFollowsLinks) {
  put("real", "old");
  fs::permissions(path("real"), fs::perms(0640));
  fs::create_symlink("real", path("link"));
  write_file_atomic(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("real")), "new");
  EXPECT_EQ(fs::status(path("real")).permissions(), fs::perms(0640));
}

TEST_F(FilesTest, WriteErrorsNameThePathAndLeaveNothing) {
  EXPECT_EQ(caught([&] { write_file_atomic(folder_.string(), "x"); }).kind(), ErrorKind::kIo);
  const Error missing = caught([&] { write_file_atomic(path("no/such/x"), "x"); });
  EXPECT_NE(std::string(missing.what()).find("no/such/x: No such file"), std::string::npos) << missing.what();
  EXPECT_FALSE(missing.hint().empty());
  EXPECT_EQ(caught([&] { write_file_atomic("", "x"); }).kind(), ErrorKind::kIo);
  {
    // Several devices at once: each has its own bytes.
    AtomicFile one("/dev/null"), two("/dev/null");
    one.write("1");
    two.write("2");
    two.commit();
    one.commit();
  }
  const Error full = caught([&] { write_file_atomic("/dev/full", "x"); });
  EXPECT_EQ(full.kind(), ErrorKind::kIo);
  EXPECT_NE(std::string(full.what()).find("No space left"), std::string::npos) << full.what();
  EXPECT_TRUE(names().empty());
}

TEST_F(FilesTest, AnUnwritableFolderIsAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(caught([&] { write_file_atomic(path("x"), "x"); }).kind(), ErrorKind::kIo);
}

TEST_F(FilesTest, PathsForOtherWriters) {
  AtomicFile file(path("x.h5"));
  std::ofstream(file.temporary_path(), std::ios::binary | std::ios::trunc) << "by somebody else";
  file.commit();
  EXPECT_EQ(read_file(path("x.h5")), "by somebody else");
  EXPECT_EQ(names(), std::vector<std::string>{"x.h5"});
}

TEST_F(FilesTest, PipesAreWrittenThrough) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomic(path("pipe"), "through");
  char buffer[16] = {};
  EXPECT_EQ(::read(reader, buffer, sizeof buffer), 7);
  EXPECT_STREQ(buffer, "through");
  ::close(reader);
}

TEST_F(FilesTest, InterruptRemovesFilesInFlight) {
  AtomicFile file(path("x"));
  EXPECT_EQ(names().size(), 1u);
  internal::unlink_temporary_files();
  EXPECT_TRUE(names().empty());
}

TEST(Hash, Sha256KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hash, ProcessorInstructionsAndPiecesAgreeWithThePlainLoops) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>((i * 131) ^ (i >> 3));
  for (std::size_t size = 0; size < text.size(); size += size < 300 ? 1 : 37) {
    const std::string part = text.substr(size % 7, size);
    EXPECT_EQ(sha256_hex(part), internal::sha256_hex_portable(part)) << size;
    EXPECT_EQ(crc32c(part), internal::crc32c_portable(part)) << size;
    Sha256 hash;
    for (std::size_t at = 0; at < part.size();) {
      const std::size_t step = 1 + (at * 29 + size) % 150;
      hash.update(std::string_view(part).substr(at, step));
      at += step;
      hash.hex();  // looking does not change what follows
    }
    EXPECT_EQ(hash.hex(), sha256_hex(part)) << size;
  }
}

TEST(Hash, Crc32cKnownAnswers) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720 B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  const std::string text = "continues where it stopped";
  for (std::size_t at = 0; at <= text.size(); ++at)
    EXPECT_EQ(crc32c(text.substr(at), crc32c(text.substr(0, at))), crc32c(text));
}

}  // namespace
}  // namespace automap
