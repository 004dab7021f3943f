#include "common/base/folder_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/printable.h"

namespace automap {
namespace {

// AutoMap's own lock files begin with this text.
constexpr std::string_view kMark = "AutoMap: ";
constexpr std::size_t kMostOwnerBytes = 4096, kMostCommandBytes = 300;
constexpr auto kPatience = std::chrono::seconds(2);

// Locks belong to open files, and a forked child shares those: it would keep a lock for as long as it lives, also when
// its parent is killed. So children close them first of all.
constexpr std::size_t kSlots = 64;
std::array<std::atomic<int>, kSlots> held;  // descriptors + 1; 0: free

void close_in_child() {
  for (std::atomic<int>& slot : held) {
    if (const int fd = slot.exchange(0) - 1; fd >= 0) ::close(fd);
  }
}

void remember(int fd) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, close_in_child);
  static_cast<void>(registered);
  for (std::atomic<int>& slot : held) {
    int free = 0;
    if (slot.compare_exchange_strong(free, fd + 1)) return;
  }
}

void forget(int fd) {
  for (std::atomic<int>& slot : held) {
    int found = fd + 1;
    if (slot.compare_exchange_strong(found, 0)) return;
  }
}

enum class Locked { kYes, kBusy, kUnsupported };

Locked lock_descriptor(int fd, int how) {
  while (::flock(fd, how) != 0) {
    if (errno == EINTR) continue;
    return errno == EWOULDBLOCK ? Locked::kBusy : Locked::kUnsupported;
  }
  return Locked::kYes;
}

void warn_without_locks(const std::string& path, int error) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  log_warning(path + ": this file system has no locks (" + std::strerror(error) +
              "): nothing keeps a second process from writing here at the same time");
}

// Text from a file or a command line, for one line of a message: arguments and lines become words.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\0' || c == '\n') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return printable(text);
}

std::string read_start(int fd) {
  std::array<char, kMostOwnerBytes> text;
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  return std::string(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
}

std::string command_line() {
  const int fd = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text(kMostOwnerBytes, '\0');
  const ssize_t got = ::read(fd, text.data(), text.size());
  ::close(fd);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  // The program without its folders.
  const std::size_t slash = text.substr(0, text.find('\0')).rfind('/');
  if (slash != std::string::npos) text.erase(0, slash + 1);
  return text;
}

std::string owner_text() {
  const std::string command = command_line();
  std::string shown = one_line(command);
  if (shown.size() > kMostCommandBytes) {
    std::size_t end = kMostCommandBytes;
    while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xc0) == 0x80) --end;  // not within a character
    shown = shown.substr(0, end) + " ...";
  }
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  std::array<char, 64> since{};
  if (::gmtime_r(&now, &utc) != nullptr) std::strftime(since.data(), since.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return std::string(kMark) + one_line(command.substr(0, command.find('\0'))) + ", process " +
         std::to_string(::getpid()) + " on " + one_line(host.data()) + ", since " + since.data() + " (" + shown + ")\n";
}

// The text is for people: when it cannot be written, on a full disk, the lock holds all the same.
void write_owner(int fd) {
  const std::string text = owner_text();
  if (::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::ftruncate(fd, static_cast<off_t>(text.size())) != 0) {
    static_cast<void>(::ftruncate(fd, 0) == 0);
  }
}

[[noreturn]] void throw_lock_error(const std::string& path, int error) {
  std::string hint;
  if (error == EACCES || error == EPERM || error == EROFS) hint = "choose a folder that you may write to";
  if (error == ENOENT) hint = "the folder is not there, or went away: run the same command again";
  if (error == ELOOP || error == EISDIR) hint = "the name is AutoMap's in a folder that it writes: choose another one";
  throw Error(ErrorKind::kIo, "cannot lock " + path + ": " + std::strerror(error), hint);
}

// Opens without a wait at a FIFO, and never follows a link to a file that would then be emptied.
int open_lock_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0) throw_lock_error(path, errno);
  struct stat info = {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const std::string text = regular ? read_start(fd) : "";
  if (!regular || (!text.empty() && text.compare(0, kMark.size(), kMark) != 0)) {
    ::close(fd);
    throw Error(ErrorKind::kIo, "cannot lock " + path + ": found something else than a lock of AutoMap",
                "the name is AutoMap's in a folder that it writes: choose another one, or move this file away");
  }
  return fd;
}

bool same_file(int fd, const std::string& path) {
  struct stat mine = {}, there = {};
  return ::fstat(fd, &mine) == 0 && ::lstat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

}  // namespace

LockFile::LockFile(std::string path, int fd, AtEnd at_end) : path_(std::move(path)), fd_(fd), at_end_(at_end) {
  try {
    if (at_end_ == AtEnd::kRemove) remove_on_signal_ = std::make_unique<RemoveOnSignal>(path_);
    remember(fd_);
    write_owner(fd_);
  } catch (...) {
    release();
    throw;
  }
}

LockFile::LockFile(LockFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      at_end_(other.at_end_),
      remove_on_signal_(std::move(other.remove_on_signal_)) {}

LockFile::~LockFile() {
  if (fd_ >= 0) release();
}

void LockFile::release() noexcept {
  if (at_end_ == AtEnd::kRemove) {
    if (in_place()) ::unlink(path_.c_str());
  } else {
    static_cast<void>(::ftruncate(fd_, 0) == 0);
  }
  forget(fd_);
  // Not left to close(): a child that was forked this moment may not have closed its own yet.
  lock_descriptor(fd_, LOCK_UN);
  ::close(fd_);
}

std::optional<LockFile> LockFile::try_take(const std::string& path, AtEnd at_end) {
  for (;;) {
    std::string name = path;  // before there is a file that a lack of memory could leave behind
    const SignalsWait wait;
    const int fd = open_lock_file(path);
    const Locked locked = lock_descriptor(fd, LOCK_EX | LOCK_NB);
    if (locked == Locked::kUnsupported) warn_without_locks(path, errno);
    // Between open and flock the file may have been removed, and another one have taken its place.
    if (locked != Locked::kBusy && same_file(fd, path)) return LockFile(std::move(name), fd, at_end);
    ::close(fd);
    if (locked == Locked::kBusy) return std::nullopt;
  }
}

LockFile LockFile::take(const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  for (bool told = false;;) {
    if (std::optional<LockFile> taken = try_take(path)) return std::move(*taken);
    if (!told && std::chrono::steady_clock::now() - start > kPatience) {
      log_info("waiting for " + lock_owner(path) + " to let go of " + path);
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

bool LockFile::in_place() const {
  return same_file(fd_, path_);
}

namespace {
// Nothing when the file cannot be opened. A shared lock, so that two who look do not see each other.
std::optional<Locked> look_at_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  const Locked locked = lock_descriptor(fd, LOCK_SH | LOCK_NB);
  ::close(fd);
  return locked;
}
}  // namespace

bool is_locked(const std::string& path) {
  return look_at_lock(path) == Locked::kBusy;
}

bool is_unlocked(const std::string& path) {
  return look_at_lock(path) == Locked::kYes;
}

std::string lock_owner(const std::string& path) {
  std::string text;
  // Whoever has just taken the lock writes his name a moment later.
  constexpr int kLooks = 50;
  for (int look = 0; look < kLooks && text.empty(); ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) break;
    text = one_line(read_start(fd));
    ::close(fd);
    if (text.empty() && !is_locked(path)) break;
  }
  if (text.compare(0, kMark.size(), kMark) != 0 || text.size() == kMark.size()) return "another process";
  return text.substr(kMark.size());
}

FolderLock::FolderLock(std::string folder, const std::string& hint)
    : folder_(std::move(folder)), file_([&] {
        const std::string path = folder_ + "/" + kFolderLockName;
        std::optional<LockFile> taken = LockFile::try_take(path);
        if (!taken) throw Error(ErrorKind::kIo, folder_ + " is in use by " + lock_owner(path), hint);
        return std::move(*taken);
      }()) {}

void FolderLock::check() const {
  if (file_.in_place()) return;
  throw Error(ErrorKind::kIo, folder_ + ": was removed, moved or replaced while it was being written",
              "leave the folder alone until the run has ended; nothing more was written");
}

}  // namespace automap
