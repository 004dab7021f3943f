#include "common/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/text_table.h"

namespace automap {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

std::string reason(int error) {
  return std::strerror(error);
}

[[noreturn]] void throw_too_large(const std::string& source, std::uint64_t limit_bytes, const char* expanded) {
  throw Error(ErrorKind::kData, source + ": larger than " + format_bytes(static_cast<double>(limit_bytes)) + expanded,
              "inputs above this size are refused; is this the file you meant?");
}

[[noreturn]] void throw_write_error(const std::string& path, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT)
    hint = "free some space or write to another disk; nothing half written is left";
  if (error == EACCES || error == EPERM || error == EROFS) hint = "choose an output path that you may write to";
  if (error == ENOENT) hint = "create the folder first";
  throw Error(ErrorKind::kIo, "cannot write " + path + ": " + reason(error), hint);
}

// Writes all of `bytes`; the errno of the first failure, or 0.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Temporary files to remove when a signal ends the process. Slots are claimed with `used`, published with `ready`.
constexpr int kCleanupSlots = 16;
struct CleanupSlot {
  std::atomic<bool> used{false};
  std::atomic<bool> ready{false};
  char path[PATH_MAX];
};
std::array<CleanupSlot, kCleanupSlots> cleanup_slots;

int claim_cleanup_slot(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (int i = 0; i < kCleanupSlots; ++i) {
    CleanupSlot& slot = cleanup_slots[static_cast<std::size_t>(i)];
    if (slot.used.exchange(true)) continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.ready = true;
    return i;
  }
  return -1;  // more files at once than slots: an interrupt may leave this one behind
}

void release_cleanup_slot(int i) {
  if (i < 0) return;
  CleanupSlot& slot = cleanup_slots[static_cast<std::size_t>(i)];
  slot.ready = false;
  slot.used = false;
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

}  // namespace

std::string input_name(const std::string& path) {
  return path == "-" ? "<stdin>" : path;
}

std::string read_file(const std::string& path, std::uint64_t limit_bytes) {
  const std::string source = input_name(path);
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
  if (S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) > limit_bytes) {
    throw_too_large(source, limit_bytes, "");
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
    if (filled > limit_bytes) throw_too_large(source, limit_bytes, "");
  }
  bytes.resize(filled);
  return bytes;
}

bool is_gzip(std::string_view bytes) {
  return bytes.substr(0, 3) == std::string_view("\x1f\x8b\x08", 3);
}

std::string gunzip(std::string_view bytes, const std::string& source, std::uint64_t limit_bytes) {
  z_stream stream = {};
  AM_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_streamp)> closer(&stream, inflateEnd);
  const auto damaged = [&](const std::string& what) {
    return Error(ErrorKind::kData, source + ": " + what, "the file may have been cut off or damaged in a download");
  };

  std::string out;
  // The last member's size, modulo 2^32, ends the stream: a good first guess, but never trusted beyond 64x.
  if (bytes.size() >= 18) {
    std::uint64_t size = 0;
    for (int i = 1; i <= 4; ++i)
      size = size << 8 | static_cast<unsigned char>(bytes[bytes.size() - static_cast<std::size_t>(i)]);
    out.reserve(static_cast<std::size_t>(std::min({size + 1, std::uint64_t{64} * bytes.size(), limit_bytes + 1})));
  }
  std::size_t consumed = 0, filled = 0;
  for (;;) {
    if (filled == out.size()) {
      if (filled > limit_bytes) throw_too_large(source, limit_bytes, " when expanded");
      const std::size_t room = out.capacity() - filled;
      out.resize(filled + (room > 0 ? room : std::max(kBlockBytes, filled / 2)));
    }
    // zlib counts in unsigned int: feed and drain at most 1 GiB at a time.
    constexpr std::size_t kStep = std::size_t{1} << 30;
    const std::size_t input = std::min(bytes.size() - consumed, kStep), room = std::min(out.size() - filled, kStep);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + consumed));
    stream.avail_in = static_cast<uInt>(input);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    consumed += input - stream.avail_in;
    filled += room - stream.avail_out;
    if (filled > limit_bytes) throw_too_large(source, limit_bytes, " when expanded");
    if (status == Z_STREAM_END) {
      const std::size_t next = bytes.find_first_not_of('\0', consumed);
      if (next == std::string_view::npos) break;
      if (!is_gzip(bytes.substr(next))) throw damaged("found other bytes after the end of the gzip stream");
      consumed = next;
      AM_CHECK(inflateReset(&stream) == Z_OK);
    } else if (status == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (status == Z_DATA_ERROR || status == Z_NEED_DICT) {
      throw damaged(std::string("damaged gzip stream") + (stream.msg ? std::string(": ") + stream.msg : ""));
    } else if (stream.avail_out != 0 && consumed == bytes.size()) {
      throw damaged("the gzip stream ends too early");
    }
  }
  out.resize(filled);
  return out;
}

std::string gunzip_if_gzip(std::string bytes, const std::string& source, std::uint64_t limit_bytes) {
  return is_gzip(bytes) ? gunzip(bytes, source, limit_bytes) : std::move(bytes);
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat info = {};
  const bool exists = path_ != "-" && ::stat(path_.c_str(), &info) == 0;
  if (path_.empty()) throw Error(ErrorKind::kIo, "cannot write: the output path is empty");
  if (exists && S_ISDIR(info.st_mode)) {
    throw Error(ErrorKind::kIo, "cannot write " + path_ + ": it is a directory", "give a file name inside it");
  }
  if (path_ == "-" || (exists && !S_ISREG(info.st_mode))) {
    const char* folder = std::getenv("TMPDIR");
    static std::atomic<int> count{0};  // a program may write to several devices
    temporary_path_ = std::string(folder && *folder ? folder : "/tmp") + "/automap-output-" + std::to_string(count++);
  } else {
    char resolved[PATH_MAX];
    target_path_ = exists && ::realpath(path_.c_str(), resolved) ? resolved : path_;
    // A read-only file is refused although renaming over it would work: its owner meant it.
    if (exists && ::access(target_path_.c_str(), W_OK) != 0) throw_write_error(path_, errno);
    temporary_path_ = target_path_;
  }
  temporary_path_ += "." + std::to_string(::getpid()) + ".tmp";
  // The name is ours alone (process id), so what stands there is left over from a killed run.
  ::unlink(temporary_path_.c_str());
  cleanup_slot_ = claim_cleanup_slot(temporary_path_);
  fd_ = ::open(temporary_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    const int error = errno;
    release_cleanup_slot(cleanup_slot_);
    throw_write_error(path_, error);
  }
  if (exists && S_ISREG(info.st_mode)) ::fchmod(fd_, info.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  if (!committed_) ::unlink(temporary_path_.c_str());
  release_cleanup_slot(cleanup_slot_);
  cleanup_slot_ = -1;
}

void AtomicFile::write(std::string_view bytes) {
  AM_CHECK(fd_ >= 0);
  if (const int error = write_all(fd_, bytes)) throw_write_error(path_, error);
}

void AtomicFile::commit() {
  AM_CHECK(fd_ >= 0 && !committed_);
  if (target_path_.empty()) {
    const std::string bytes = read_file(temporary_path_, UINT64_MAX);
    FileDescriptor out(path_ == "-" ? STDOUT_FILENO : ::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    if (out.get() < 0) throw_write_error(path_, errno);
    const int error = write_all(out.get(), bytes);
    // The reader of standard output may stop early ("| head"): nobody is left to tell, as with print().
    if (error != 0 && !(path_ == "-" && error == EPIPE)) {
      throw_write_error(path_ == "-" ? "standard output" : path_, error);
    }
    discard();
    return;
  }
  if (::fsync(fd_) != 0) throw_write_error(path_, errno);
  if (::rename(temporary_path_.c_str(), target_path_.c_str()) != 0) throw_write_error(path_, errno);
  committed_ = true;
  // The rename itself is only on disk once the folder is; a file system that cannot sync folders is not an error.
  const std::size_t slash = target_path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : target_path_.substr(0, slash);
  const FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
  discard();
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

std::string executable_folder() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "";
  const std::string_view whole(path, static_cast<std::size_t>(size));
  return std::string(whole.substr(0, whole.rfind('/')));
}

namespace internal {
void unlink_temporary_files() noexcept {
  for (CleanupSlot& slot : cleanup_slots) {
    if (slot.ready) ::unlink(slot.path);
  }
}
}  // namespace internal

}  // namespace automap
