#include "common/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/error.h"

namespace automap {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

[[noreturn]] void throw_kind(const std::string& path, mode_t mode) {
  throw Error(ErrorKind::kData, path + ": is " + kind_of(mode) + ", expected a file");
}

}  // namespace

RegularFile open_regular_file(const std::string& path, const std::string& missing_hint) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const int error = errno;
  struct stat info = {};
  // A socket cannot be opened at all, and the system's words for that are about devices.
  if (fd < 0 && error == ENXIO && ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw_kind(path, info.st_mode);
  }
  if (fd < 0) {
    throw Error(ErrorKind::kIo, "cannot read " + path + ": " + std::strerror(error),
                error == ENOENT ? missing_hint : "");
  }
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw_kind(path, info.st_mode);
  }
  return {fd, static_cast<std::uint64_t>(info.st_size)};
}

void require_regular_file(const std::string& path, const std::string& missing_hint) {
  ::close(open_regular_file(path, missing_hint).fd);
}

}  // namespace automap
