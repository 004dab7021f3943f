#include "common/base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "common/base/child_process.h"
#include "common/base/error.h"
#include "common/base/inputs.h"
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

std::string repeated(const std::string& text, std::size_t times) {
  std::string out;
  out.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST_F(FilesTest, GunzipRefusesBombs) {
  const std::string zeros = gzip(std::string(std::size_t{80} << 20, '\0'));
  const std::string member = gzip(std::string(std::size_t{1} << 20, 'x'));
  const std::string text = gzip(repeated("%add.1 = f32[8,128]{1,0} add(%a, %b)\n", 3000000));
  // Honest data in front must not let damaged data behind it expand further.
  const std::string behind_noise = gzip(noise(4 << 20)) + zeros;
  for (const std::string& bomb : {zeros, text, behind_noise, repeated(member, 100)}) {
    const Error error = caught([&] { gunzip(bomb, "x.gz"); });
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("x.gz: refused while expanding it: much of it expands more than 64 times"),
              std::string::npos)
        << error.what();
    EXPECT_NE(error.hint().find("gunzip"), std::string::npos);
  }
  for (const std::string& empty : {gzip(""), gzip("x")}) {
    const Error error = caught([&] { gunzip(repeated(empty, 100000), "x.gz"); });
    EXPECT_NE(std::string(error.what()).find("next to nothing"), std::string::npos) << error.what();
  }
  // Within a member: empty stored blocks, five bytes each.
  const std::string header = gzip("").substr(0, 10);
  const std::string blocks = header + repeated(std::string("\0\0\0\xff\xff", 5), 400000);
  EXPECT_NE(std::string(caught([&] { gunzip(blocks, "x.gz"); }).what()).find("next to nothing"), std::string::npos);
}

// Far above what honest files reach (51), below 64 MiB of it; and any size of what expands usually.
TEST_F(FilesTest, GunzipTakesWhatIsHonest) {
  const std::string zeros(std::size_t{60} << 20, '0');
  EXPECT_EQ(gunzip(gzip(zeros), "x").size(), zeros.size());
  std::string lines;
  Rng rng(3, 4, 5);
  while (lines.size() < (std::size_t{100} << 20)) {
    // Compresses about 40 times.
    lines += "    \"instruction\": {\"opcode\": \"add\", \"shape\": \"f32[8,128,768]{2,1,0}\", \"operands\": [" +
             std::to_string(rng.below(1000)) +
             "], \"metadata\": {\"op_name\": \"jit(step)/transformer/layer/mlp\"}},\n";
  }
  const std::string packed = gzip(lines);
  EXPECT_GT(lines.size() / packed.size(), 20u);
  EXPECT_EQ(gunzip(packed, "x").size(), lines.size());
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

TEST_F(FilesTest, DanglingLinksAreWrittenThroughAndLoopsRefused) {
  fs::create_directory(path("there"));
  fs::create_symlink("there/new", path("dangling"));
  fs::create_symlink("dangling", path("twice"));
  write_file_atomic(path("twice"), "through");
  EXPECT_TRUE(fs::is_symlink(path("twice")));
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_EQ(read_file(path("there/new")), "through");
  fs::create_symlink("no/such/folder/x", path("nowhere"));
  EXPECT_FALSE(caught([&] { write_file_atomic(path("nowhere"), "x"); }).hint().empty());
  EXPECT_TRUE(fs::is_symlink(path("nowhere")));

  fs::create_symlink("b", path("a"));
  fs::create_symlink("a", path("b"));
  for (const char* name : {"a", "b"}) {
    const Error loop = caught([&] { write_file_atomic(path(name), "x"); });
    EXPECT_EQ(loop.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(loop.what()).find("Too many levels of symbolic links"), std::string::npos) << loop.what();
    EXPECT_TRUE(fs::is_symlink(path(name)));
    EXPECT_EQ(caught([&] { create_folders(path(name)); }).kind(), ErrorKind::kIo);
    EXPECT_EQ(caught([&] { create_folders(path(name) + "/in/it"); }).kind(), ErrorKind::kIo);
  }
}

TEST_F(FilesTest, FoldersAreMadeWithThoseAbove) {
  create_folders(path("a/b/c/"));
  create_folders(path("a/b/c"));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
  fs::create_symlink("made/by/link", path("link"));
  create_folders(path("link"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_TRUE(fs::is_directory(path("made/by/link")));
  create_folders(path("link/deeper"));
  EXPECT_TRUE(fs::is_directory(path("made/by/link/deeper")));
  put("file", "x");
  for (const char* name : {"file", "file/below"}) {
    const Error error = caught([&] { create_folders(path(name)); });
    EXPECT_NE(std::string(error.what()).find("Not a directory"), std::string::npos) << error.what();
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_EQ(read_file(path("file")), "x");
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

// In a process of its own: one that has done this makes no temporary file any more, since it is about to end.
TEST_F(FilesTest, InterruptRemovesFilesInFlight) {
  ChildLimits limits;
  limits.files = true;
  const auto interrupted = [&](ChildInput&) {
    std::vector<std::unique_ptr<AtomicFile>> files;
    // More than fit into any table of a fixed size that one would think of.
    for (int i = 0; i < 100; ++i) files.push_back(std::make_unique<AtomicFile>(path("x" + std::to_string(i))));
    const std::size_t before = names().size();
    internal::unlink_temporary_files();
    return std::to_string(before) + " before, " + std::to_string(names().size()) + " after";
  };
  const ChildResult said = ChildProcess(interrupted, limits).finish();
  EXPECT_EQ(said.answer, "100 before, 0 after") << said.failure;
  EXPECT_TRUE(names().empty());
  write_file_atomic(path("x"), "this process goes on");
  EXPECT_EQ(read_file(path("x")), "this process goes on");
}

// A child that inherits files in flight does not take them from its parent when it ends.
TEST_F(FilesTest, AChildsInterruptLeavesFilesOfItsParent) {
  AtomicFile file(path("x"));
  file.write("the parent's");
  ChildLimits limits;
  limits.files = true;
  const auto interrupted = [&](ChildInput&) {
    internal::unlink_temporary_files();
    return std::to_string(names().size());
  };
  EXPECT_EQ(ChildProcess(interrupted, limits).finish().answer, "1");
  file.commit();
  EXPECT_EQ(read_file(path("x")), "the parent's");
}

TEST_F(FilesTest, WhatAKilledRunLeftIsRemovedAndNothingElse) {
  const std::vector<std::string> kept = {"x.1-0.tmp",          "x.automap-1-0.tmp.mine", "x.automap-1.tmp",
                                         "y.automap-1-0.tmp",  "x.automap-1-0x.tmp",     "x.automap-notes.tmp",
                                         "xx.automap-1-0.tmp", "my.x.automap-1-0.tmp"};
  for (const std::string& name : kept) put(name, "keep");
  put("x.automap-1-0.tmp", "left over");
  AtomicFile in_use(path("x"));
  {
    AtomicFile file(path("x"));
    EXPECT_EQ(names().size(), kept.size() + 2);
    EXPECT_FALSE(fs::exists(path("x.automap-1-0.tmp")));
    file.write("second");
    file.commit();
  }
  in_use.write("first, but later");
  in_use.commit();
  EXPECT_EQ(read_file(path("x")), "first, but later");
  EXPECT_EQ(names().size(), kept.size() + 1);
}

TEST_F(FilesTest, TheLongestNamesCanBeWritten) {
  const std::string name(255, 'n');
  write_file_atomic(path(name), "x");
  EXPECT_EQ(names(), std::vector<std::string>{name});
}

TEST_F(FilesTest, SeveralOutputsAppearTogether) {
  put("old", "old");
  {
    OutputSet set;
    set.add(path("old")).write("new");
    set.add(path("fresh")).write("fresh");
    set.prepare();
    EXPECT_EQ(read_file(path("old")), "old");
    set.commit();
  }
  EXPECT_EQ(read_file(path("old")), "new");
  EXPECT_EQ(names(), (std::vector<std::string>{"fresh", "old"}));
}

TEST_F(FilesTest, OfSeveralOutputsAllAppearOrNone) {
  put("old", "old");
  const auto unchanged = [&] {
    EXPECT_EQ(read_file(path("old")), "old");
    EXPECT_EQ(names(), (std::vector<std::string>{"old"}));
  };
  {
    // A device that takes nothing.
    OutputSet set;
    set.add(path("old")).write("new");
    set.add(path("fresh")).write("fresh");
    set.add("/dev/full").write("x");
    EXPECT_EQ(caught([&] { set.commit(); }).kind(), ErrorKind::kIo);
  }
  unchanged();
  {
    // A folder comes into the way of the last one when the others are in their places already.
    OutputSet set;
    set.add(path("old")).write("new");
    set.add(path("fresh")).write("fresh");
    set.add(path("blocked")).write("blocked");
    set.prepare();
    fs::create_directory(path("blocked"));
    EXPECT_EQ(caught([&] { set.commit(); }).kind(), ErrorKind::kIo);
    fs::remove(path("blocked"));
  }
  unchanged();
}

TEST_F(FilesTest, DevicesOfAWriterThatWantsAPath) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  {
    AtomicFile file(path("pipe"));
    std::ofstream(file.temporary_path(), std::ios::binary | std::ios::trunc) << "by somebody else";
    file.commit();
  }
  char buffer[32] = {};
  EXPECT_EQ(::read(reader, buffer, sizeof buffer), 16);
  EXPECT_STREQ(buffer, "by somebody else");
  ::close(reader);
}

// When standard output is appended to a file, its old content stays.
TEST_F(FilesTest, DescriptorsAreNotReplaced) {
  put("log", "before\n");
  const int log = ::open(path("log").c_str(), O_WRONLY | O_APPEND);
  write_file_atomic("/dev/fd/" + std::to_string(log), "after\n");
  ::close(log);
  EXPECT_EQ(read_file(path("log")), "before\nafter\n");
}

class InputsTest : public FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    internal::remember_inputs(true);
  }
  void TearDown() override {
    internal::remember_inputs(false);
    FilesTest::TearDown();
  }
};

TEST_F(InputsTest, WhatWasReadIsNotReplaced) {
  put("input", "mine");
  fs::create_symlink("input", path("soft"));
  fs::create_hard_link(path("input"), path("hard"));
  AtomicFile before(path("input"));
  before.write("new");
  EXPECT_EQ(read_file(path("input")), "mine");
  for (const std::string name : {"input", "./input", "soft", "hard"}) {
    const Error error = caught([&] { write_file_atomic(path(name), "new"); });
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << name;
    EXPECT_NE(std::string(error.what()).find(path("input")), std::string::npos) << error.what();
  }
  // Opened before the input was read.
  EXPECT_EQ(caught([&] { before.commit(); }).kind(), ErrorKind::kUsage);
  EXPECT_EQ(read_own_file(path("hard")), "mine");
  EXPECT_EQ(caught([&] { check_folder(folder_.string(), {"h*"}); }).kind(), ErrorKind::kUsage);
  check_folder(folder_.string(), {"other*", "in"});
  check_folder(path("missing"), {"*"});

  forget_input(path("input"));
  write_file_atomic(path("input"), "new");
  EXPECT_EQ(read_own_file(path("input")), "new");
  EXPECT_EQ(read_own_file(path("hard")), "mine");
}

// The number of a removed input may be that of a file which the program writes next, again and again.
TEST_F(InputsTest, NumbersOfFilesAreUsedAgain) {
  for (int i = 0; i < 20; ++i) {
    put("input", "mine");
    read_file(path("input"));
    fs::remove(path("input"));
    write_file_atomic(path("own"), "1");
    write_file_atomic(path("own"), "2");
  }
}

TEST_F(InputsTest, OwnFilesAreWrittenAgain) {
  put("checkpoint", "1");
  EXPECT_EQ(read_own_file(path("checkpoint")), "1");
  write_file_atomic(path("checkpoint"), "2");
}

TEST_F(InputsTest, RolesTellWhatWouldBeLost) {
  const auto refused = [&](const std::vector<NamedFile>& files) -> std::string {
    try {
      check_files(files);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      return e.what();
    }
    return "";
  };
  const auto in = FileRole::kReadsFile, folder = FileRole::kReadsFolder, out = FileRole::kWritesFile;
  put("x", "x");
  fs::create_directories(path("data/deep"));
  put("data/shard", "x");
  fs::create_symlink("x", path("soft"));
  fs::create_hard_link(path("x"), path("hard"));
  fs::create_symlink("not-there", path("dangling"));
  for (const std::string name : {"x", "./x", "data/../x", "soft", "hard"}) {
    EXPECT_NE(refused({{"MODEL", path("x"), in}, {"-o", path(name), out}}).find("-o would replace MODEL"),
              std::string::npos)
        << name;
    EXPECT_NE(refused({{"-o", path(name), out}, {"--emit", path("x"), out}}).find("-o and --emit both want"),
              std::string::npos)
        << name;
  }
  for (const std::string name : {"data/shard", "data/new", "data/deep/new", "./data/deep/../new"}) {
    EXPECT_NE(refused({{"FILE", path("data"), folder}, {"--plot", path(name), out}}).find("is inside FILE"),
              std::string::npos)
        << name;
  }
  EXPECT_NE(refused({{"-o", path("new"), out}, {"--emit", path("./new"), out}}).find("both want"), std::string::npos);
  EXPECT_NE(refused({{"-o", path("not-there"), out}, {"--emit", path("dangling"), out}}).find("both want"),
            std::string::npos);
  EXPECT_NE(refused({{"-o", "-", out}, {"--emit", "-", out}}).find("standard output"), std::string::npos);
  // A folder that happens to be called as a preset; what is not there; devices; the same input twice.
  EXPECT_EQ(refused({{"--cluster", path("data"), in}, {"-o", path("data/new"), out}}), "");
  EXPECT_EQ(refused({{"--cluster", "config-c", in}, {"-o", path("config-c"), out}}), "");
  EXPECT_EQ(refused({{"-o", "/dev/null", out}, {"--emit", "/dev/null", out}, {"MODEL", "/dev/null", in}}), "");
  EXPECT_EQ(refused({{"MODEL", path("x"), in}, {"--variables", path("x"), in}, {"-o", path("y"), out}}), "");
  EXPECT_EQ(refused({{"FILE", path("data"), folder}, {"--plot", path("new"), out}}), "");
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
