#include "common/base/paths.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "common/base/error.h"

namespace automap {
namespace {

// As many as the kernel follows.
constexpr int kMostLinks = 40;

FileId id_of(const struct stat& info) {
  return {static_cast<std::uint64_t>(info.st_dev), static_cast<std::uint64_t>(info.st_ino)};
}

// The target of a link, as a path from here; nullopt when `path` is no link.
std::optional<std::string> read_link(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
  if (size <= 0 || size == static_cast<ssize_t>(sizeof target)) return std::nullopt;
  const std::string to(target, static_cast<std::size_t>(size));
  return to[0] == '/' ? to : folder_of(path) + "/" + to;
}

// The same path without slashes at its end.
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::optional<FileId> regular_file_id(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return id_of(info);
}

std::optional<FileId> regular_file_id(int descriptor) {
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return id_of(info);
}

std::optional<FileId> folder_id(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return std::nullopt;
  return id_of(info);
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_in_folder(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::vector<std::string> names_in_folder(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const directory = ::opendir(folder.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory)) names.emplace_back(entry->d_name);
  ::closedir(directory);
  return names;
}

int descriptor_of_output(const std::string& path) {
  if (path == "-" || path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const char* folder : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::size_t size = std::strlen(folder);
    int number = -1;
    if (path.compare(0, size, folder) != 0) continue;
    const auto [end, status] = std::from_chars(path.data() + size, path.data() + path.size(), number);
    if (status == std::errc() && end == path.data() + path.size() && number >= 0) return number;
  }
  return -1;
}

std::string resolve_output(const std::string& path) {
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved)) return resolved;
  if (errno != ENOENT) throw_write_error(path, errno);
  std::string at = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    const std::optional<std::string> target = read_link(at);
    if (!target) return at;
    at = *target;
  }
  throw_write_error(path, ELOOP);
}

void create_folders(const std::string& given) {
  const std::string path = without_slashes(given);
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) throw_write_error(path, ENOTDIR);
    return;
  }
  if (errno != ENOENT) throw_write_error(path, errno);
  if (const std::optional<std::string> target = read_link(path)) {
    create_folders(*target);
    return;
  }
  if (const std::string above = folder_of(path); above != path) create_folders(above);
  // Somebody else may be making it at the same time.
  if (::mkdir(path.c_str(), 0777) != 0 && (errno != EEXIST || !folder_id(path))) throw_write_error(path, errno);
}

namespace {

bool is_fifo(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

}  // namespace

void throw_write_error(const std::string& path, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT)
    hint = "free some space or write to another disk; nothing half written is left";
  if (error == EFBIG) {
    hint = "the file size limit of this shell (ulimit -f) is too low: raise it; nothing half written is left";
  }
  if (error == EACCES || error == EPERM || error == EROFS) hint = "choose an output path that you may write to";
  if (error == ENXIO && is_fifo(path)) hint = "nobody reads from it: start its reader first, or name a file";
  if (error == ENOENT) hint = "create the folder first";
  if (error == ENOTDIR) hint = "a file is where a folder should be; choose another output path";
  if (error == ELOOP) hint = "it is a link that leads back to itself: remove it, or choose another output path";
  throw Error(ErrorKind::kIo, "cannot write " + path + ": " + std::strerror(error), hint);
}

}  // namespace automap
