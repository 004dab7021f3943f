#include "common/io/profile_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/io/profile_file.h"
#include "tests/temporary_folder.h"

namespace automap::io {
namespace {

pipeline::Profile profile_of(int n) {
  pipeline::Profile profile;
  for (int i = 0; i < n; ++i) {
    profile.c_ms.push_back(1 + i);
    profile.a_bytes.push_back(i + 1 < n ? 1 : 0);
    profile.w_bytes.push_back(1);
    profile.stash_bytes.push_back(0);
  }
  return profile;
}

std::string message(const std::vector<std::string>& paths, ErrorKind kind) {
  try {
    load_profiles(paths);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ProfileFolder, TakesAllProfilesInOrderOfTheirPaths) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("below"));
  std::filesystem::create_directory(folder.file(".hidden"));
  save_profile(folder.file("b.csv"), profile_of(3));
  save_profile(folder.file("a.h5"), profile_of(5));
  save_profile(folder.file("below/c.csv"), profile_of(7));
  save_profile(folder.file(".hidden/d.csv"), profile_of(9));
  write_file_atomic(folder.file("LICENSE"), "text\n");
  write_file_atomic(folder.file("broken.csv"), "c_ms,a_bytes,w_bytes,stash_bytes\n1,2,three,4\n");
  const ProfileSet set = load_profiles({folder.path() + "/"});
  ASSERT_EQ(set.profiles.size(), 3u);
  EXPECT_EQ(set.profiles[0].path, folder.file("a.h5"));
  EXPECT_EQ(set.profiles[0].profile.size(), 5);
  EXPECT_EQ(set.profiles[1].path, folder.file("b.csv"));
  EXPECT_EQ(set.profiles[2].path, folder.file("below/c.csv"));
  EXPECT_EQ(set.profiles[1].sha256, sha256_hex(read_file(folder.file("b.csv"))));
  ASSERT_EQ(set.skipped.size(), 2u);
  EXPECT_NE(set.skipped[1].why.find("broken.csv:2"), std::string::npos) << set.skipped[1].why;
  // Files by name, each as often as it is named.
  EXPECT_EQ(load_profiles({folder.file("b.csv"), folder.path()}).profiles.size(), 4u);
}

TEST(ProfileFolder, WhatCannotBeReadIsSaid) {
  const TemporaryFolder folder;
  EXPECT_NE(message({folder.path()}, ErrorKind::kData).find("holds no files"), std::string::npos);
  write_file_atomic(folder.file("notes.txt"), "text\n");
  const std::string none = message({folder.path()}, ErrorKind::kData);
  EXPECT_NE(none.find("none of its 1 files is a profile"), std::string::npos) << none;
  EXPECT_NE(none.find("notes.txt"), std::string::npos) << none;
  // Named itself, it is an error even beside others.
  save_profile(folder.file("good.csv"), profile_of(3));
  EXPECT_NE(message({folder.path(), folder.file("notes.txt")}, ErrorKind::kData).find("not a profile"),
            std::string::npos);
  message({folder.file("missing.csv")}, ErrorKind::kIo);
}

}  // namespace
}  // namespace automap::io
