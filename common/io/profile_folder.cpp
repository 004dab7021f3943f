#include "common/io/profile_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/io/profile_file.h"

namespace automap::io {
namespace {

namespace fs = std::filesystem;

// No corpus of profiles needs larger ones, and a folder may hold anything: such a file is skipped unread.
constexpr std::uint64_t kMostFileBytes = 512 << 20;
constexpr const char* kHint =
    "profiles are .h5, .csv or PipeDream's graph.txt, see docs/formats/profile.md; automap-profile makes them";

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().rfind('.', 0) == 0) {
      at.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (!at->is_regular_file(ignored)) continue;
    files.push_back(at->path().string());
    if (files.size() > kMostFolderFiles) {
      throw Error(ErrorKind::kData,
                  folder + ": more than " + std::to_string(kMostFolderFiles) + " files, expected a folder of profiles",
                  kHint);
    }
  }
  if (error) throw Error(ErrorKind::kIo, "cannot read the folder " + folder + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

NamedProfile load(const std::string& path, const ProfileBytesReader& read, std::uint64_t limit) {
  NamedProfile made;
  made.path = path;
  std::string bytes = read_file(path, limit);
  made.sha256 = sha256_hex(bytes);
  made.profile = read ? read(std::move(bytes), path) : read_profile(std::move(bytes), path);
  return made;
}

}  // namespace

ProfileSet load_profiles(const std::vector<std::string>& paths, const ProfileBytesReader& read) {
  ProfileSet set;
  for (std::string path : paths) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      set.profiles.push_back(load(path, read, kMaxInputBytes));
      continue;
    }
    const std::size_t profiles = set.profiles.size(), skipped = set.skipped.size();
    for (const std::string& file : files_of(path)) {
      try {
        set.profiles.push_back(load(file, read, kMostFileBytes));
      } catch (const Error& error) {
        // The question and the program are right, and only this file is not.
        if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kIo && error.kind() != ErrorKind::kConfig) {
          throw;
        }
        set.skipped.push_back({file, error.what()});
      }
    }
    if (set.profiles.size() > profiles) continue;
    if (set.skipped.size() == skipped) throw Error(ErrorKind::kData, path + ": the folder holds no files", kHint);
    throw Error(ErrorKind::kData,
                path + ": none of its " + std::to_string(set.skipped.size() - skipped) +
                    " files is a profile that can be read; the first: " + excerpt(set.skipped[skipped].why, 200),
                kHint);
  }
  return set;
}

}  // namespace automap::io
