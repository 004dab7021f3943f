#include "common/base/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FolderLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / (std::string("automap-lock-") + info->name() + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = kFolderLockName) const { return (folder_ / name).string(); }
  std::string refusal() const {
    try {
      const FolderLock lock(folder_.string(), "do this");
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      return std::string(e.what()) + "|" + e.hint();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(FolderLockTest, TheSecondIsToldWhoTheFirstIs) {
  std::optional<FolderLock> first;
  first.emplace(folder_.string(), "");
  EXPECT_NO_THROW(first->check());
  const std::string said = refusal();
  EXPECT_THAT(said, HasSubstr(folder_.string() + " is in use by "));
  EXPECT_THAT(said, HasSubstr(", process " + std::to_string(::getpid()) + " on "));
  EXPECT_THAT(said, HasSubstr("|do this"));
  EXPECT_TRUE(is_locked(path()));
  first.reset();
  EXPECT_EQ(refusal(), "");
  EXPECT_FALSE(is_locked(path()));
  EXPECT_EQ(read_file(path()), "") << "what stays says nothing of who was there";
}

TEST_F(FolderLockTest, AKilledOwnerIsGoneAtOnceAndItsTextDecidesNothing) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    const FolderLock lock(folder_.string(), "");
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(owner)));
  ::kill(owner, SIGKILL);
  ASSERT_EQ(::waitpid(owner, nullptr, 0), owner);
  EXPECT_THAT(lock_owner(path()), HasSubstr("process " + std::to_string(owner)));
  EXPECT_EQ(refusal(), "");
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(FolderLockTest, AChildDoesNotInheritIt) {
  int ready[2], end[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(end), 0);
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    const FolderLock lock(folder_.string(), "");
    const pid_t child = ::fork();
    char byte = 0;
    if (child == 0) {
      ::close(end[1]);
      if (::write(ready[1], "x", 1) == 1 && ::read(end[0], &byte, 1) == 0) ::_exit(0);
      ::_exit(1);
    }
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(is_locked(path())) << "the child let go of its parent's lock";
  ::kill(owner, SIGKILL);
  ASSERT_EQ(::waitpid(owner, nullptr, 0), owner);
  EXPECT_EQ(refusal(), "") << "held by a child that lives on";
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) ::close(fd);
}

TEST_F(FolderLockTest, FilesOfOthersAreNotEmptied) {
  std::ofstream(path()) << "notes of mine\n";
  EXPECT_THAT(refusal(), HasSubstr("something else than a lock of AutoMap"));
  EXPECT_EQ(read_file(path()), "notes of mine\n");
  fs::remove(path());
  std::ofstream(path("target")) << "AutoMap: precious\n";
  fs::create_symlink(path("target"), path());
  EXPECT_THAT(refusal(), HasSubstr("cannot lock"));
  EXPECT_EQ(read_file(path("target")), "AutoMap: precious\n");
  fs::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("something else"));
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_THAT(refusal(), HasSubstr("cannot lock"));
}

TEST_F(FolderLockTest, AFolderThatWasReplacedIsNoLongerOurs) {
  const FolderLock lock(folder_.string(), "");
  fs::rename(folder_, folder_.string() + "-moved");
  EXPECT_THROW(lock.check(), Error);
  fs::create_directory(folder_);
  const FolderLock other(folder_.string(), "");
  EXPECT_THROW(lock.check(), Error);
  EXPECT_NO_THROW(other.check());
  fs::remove_all(folder_.string() + "-moved");
}

TEST_F(FolderLockTest, TheOwnersTextCannotSpoilAMessage) {
  std::ofstream(path()) << "AutoMap: evil\x1b[31m\r\nsecond line" << std::string(100000, 'x');
  const std::string owner = lock_owner(path());
  EXPECT_EQ(owner.find_first_of("\x1b\r\n"), std::string::npos);
  EXPECT_LT(owner.size(), 5000u);
  EXPECT_EQ(lock_owner(path("none")), "another process");
}

TEST_F(FolderLockTest, WaitingEndsWhenTheOwnerLetsGo) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    {
      const LockFile lock = LockFile::take(path());
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      ::usleep(50000);
    }
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const LockFile lock = LockFile::take(path());
  EXPECT_TRUE(lock.in_place());
  ::waitpid(owner, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace automap
