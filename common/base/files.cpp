#include "common/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/inputs.h"
#include "common/base/regular_file.h"
#include "common/base/text_table.h"

namespace automap {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

std::string reason(int error) {
  return std::strerror(error);
}

[[noreturn]] void throw_too_large(const std::string& source, std::uint64_t limit_bytes) {
  throw Error(ErrorKind::kData, source + ": larger than " + format_bytes(static_cast<double>(limit_bytes)),
              "inputs above this size are refused; is this the file you meant?");
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string read_whole(const std::string& path, std::uint64_t limit_bytes, bool is_input) {
  const std::string source = input_name(path);
  // A FIFO in place of a file of the program's own would be waited for without end.
  if (!is_input) require_regular_file(path);
  std::optional<OtherSideWait> wait;
  if (is_input && !regular_file_id(path)) {
    wait.emplace();
    if (StopToken::stop_requested())
      throw Error(ErrorKind::kStopped, "stopped by a signal before " + source + " was read");
  }
  FileDescriptor file(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    throw Error(ErrorKind::kIo, "cannot read " + source + ": " + reason(error),
                error == ENOENT ? "check the path; relative paths start at the current folder" : "");
  }
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) throw Error(ErrorKind::kIo, "cannot read " + source + ": " + reason(errno));
  if (S_ISDIR(info.st_mode)) {
    throw Error(ErrorKind::kIo, "cannot read " + source + ": it is a directory, expected a file");
  }
  if (is_input) remember_input(file.get(), source);
  if (S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) > limit_bytes) {
    throw_too_large(source, limit_bytes);
  }
  std::string bytes;
  // One byte more than the file tells, so that the end is seen without another round of growing.
  if (S_ISREG(info.st_mode)) bytes.reserve(static_cast<std::size_t>(info.st_size) + 1);
  std::size_t filled = 0;
  for (;;) {
    if (filled == bytes.size()) {
      const std::size_t room = bytes.capacity() - filled;
      bytes.resize(filled + (room > 0 ? room : std::max(kBlockBytes, filled)));
    }
    const ssize_t got =
        ::read(file.get(), bytes.data() + filled, std::min(bytes.size() - filled, std::size_t{1} << 30));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw Error(ErrorKind::kIo, "cannot read " + source + ": " + reason(errno));
    }
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    if (filled > limit_bytes) throw_too_large(source, limit_bytes);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace

std::string input_name(const std::string& path) {
  return path == "-" ? "<stdin>" : path;
}

std::string read_file(const std::string& path, std::uint64_t limit_bytes) {
  return read_whole(path, limit_bytes, true);
}

std::string read_own_file(const std::string& path, std::uint64_t limit_bytes) {
  return read_whole(path, limit_bytes, false);
}

std::string executable_folder() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "";
  const std::string_view whole(path, static_cast<std::size_t>(size));
  return std::string(whole.substr(0, whole.rfind('/')));
}

}  // namespace automap
