// Loads several profiles at once: files named one by one, and folders of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/pipeline/profile.h"

namespace automap::io {

struct NamedProfile {
  std::string path;    // as named; of a folder: the folder, a slash, the rest
  std::string sha256;  // of the bytes as stored
  pipeline::Profile profile;
};

struct SkippedFile {
  std::string path, why;
};

struct ProfileSet {
  std::vector<NamedProfile> profiles;
  std::vector<SkippedFile> skipped;  // files of folders that are no profile, or damaged
};

// Bytes as stored to a profile; throws Error when they are none.
using ProfileBytesReader = std::function<pipeline::Profile(std::string bytes, const std::string& source)>;

// A folder with more files than this is taken for a mistake ("/").
constexpr std::size_t kMostFolderFiles = 4096;

// Paths are files, or folders, of which every regular file is tried, those of folders below too, in the order of their
// paths; names that begin with a dot are left out. Other files of a folder are skipped and reported; a file that is
// named itself must be a profile. `read`: by default read_profile. Throws Error(kIo) when a path cannot be read,
// Error(kData) when a named file is no profile, when a folder has none that can be read (naming the fault of the first
// file) or too many files.
ProfileSet load_profiles(const std::vector<std::string>& paths, const ProfileBytesReader& read = {});

}  // namespace automap::io
