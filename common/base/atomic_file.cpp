#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/inputs.h"
#include "common/base/paths.h"

namespace automap {

// Slots are made once and used again. `path` is set before `ready` and stays until `ready` is taken back.
struct RemoveOnSignal::Slot {
  std::atomic<bool> used{true};
  std::atomic<bool> ready{false};
  pid_t owner = 0;  // a forked child does not remove its parent's files
  char path[PATH_MAX];
  Slot* next = nullptr;
};

namespace {

constexpr int kMostTemporaries = 1000;
constexpr std::size_t kMostNameBytes = 255;

std::atomic<RemoveOnSignal::Slot*> slots{nullptr};
std::atomic<int> renaming{0}, waiting_signal{0};
// Temporary files that are being made; and that the process ends, so that none is to be made any more.
std::atomic<int> making{0};
std::atomic<bool> ending{false};
static_assert(std::atomic<RemoveOnSignal::Slot*>::is_always_lock_free, "the signal handler reads it");

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

// A signal that comes while files are renamed is answered when all are.
class Renaming {
 public:
  Renaming() { ++renaming; }
  ~Renaming() {
    if (--renaming > 0) return;
    if (const int signal_number = waiting_signal.exchange(0)) std::raise(signal_number);
  }
  Renaming(const Renaming&) = delete;
  Renaming& operator=(const Renaming&) = delete;
};

// Takes a lock on the open file, which ends with it. False when somebody else has it, and without locks.
bool can_lock(int fd) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

// False only when somebody else has it: a file system without locks is no error.
bool lock_file(int fd) {
  return can_lock(fd) || (errno != EAGAIN && errno != EACCES);
}

bool is_at(int fd, const std::string& path) {
  const auto open_file = regular_file_id(fd);
  return open_file && open_file == regular_file_id(path);
}

// "plan.json" -> "plan.json.automap-": the names of its temporary files go on with PID-N.tmp.
std::string temporary_stem(const std::string& target) {
  constexpr std::string_view kMark = ".automap-";
  constexpr std::size_t kNumbers = 32;
  return name_in_folder(target).substr(0, kMostNameBytes - kMark.size() - kNumbers) + std::string(kMark);
}

bool is_temporary(const std::string& name, const std::string& stem) {
  int process = 0, number = 0, end = 0;
  return name.compare(0, stem.size(), stem) == 0 &&
         std::sscanf(name.c_str() + stem.size(), "%d-%d.tmp%n", &process, &number, &end) == 2 && end > 0 &&
         stem.size() + static_cast<std::size_t>(end) == name.size();
}

// Removes the temporary files that killed runs left of this target: those that nobody has locked.
void remove_leftovers(const std::string& folder, const std::string& stem) {
  for (const std::string& name : names_in_folder(folder)) {
    if (!is_temporary(name, stem)) continue;
    const std::string path = folder + "/" + name;
    const int fd = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (can_lock(fd) && is_at(fd, path)) ::unlink(path.c_str());
    ::close(fd);
  }
}

}  // namespace

SignalsWait::SignalsWait() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
  ++making;
  if (!ending) return;
  // Another thread ends the process.
  --making;
  while (true) ::pause();
}

SignalsWait::~SignalsWait() {
  --making;
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

RemoveOnSignal::RemoveOnSignal(const std::string& path) : slot_(nullptr) {
  AM_CHECK(path.size() < PATH_MAX);
  for (Slot* slot = slots.load(); slot != nullptr && slot_ == nullptr; slot = slot->next) {
    if (!slot->used.exchange(true)) slot_ = slot;
  }
  if (slot_ == nullptr) {
    slot_ = new Slot;
    slot_->next = slots.load();
    while (!slots.compare_exchange_weak(slot_->next, slot_)) {
    }
  }
  slot_->owner = ::getpid();
  std::memcpy(slot_->path, path.c_str(), path.size() + 1);
  slot_->ready = true;
}

RemoveOnSignal::~RemoveOnSignal() {
  slot_->ready = false;
  slot_->used = false;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) throw Error(ErrorKind::kIo, "cannot write: the output path is empty");
  if (const int descriptor = descriptor_of_output(path_); descriptor >= 0) {
    if (::fcntl(descriptor, F_GETFD) < 0) throw_write_error(path_, errno);
    return;
  }
  const std::string target = resolve_output(path_);
  struct stat info = {};
  const bool exists = ::stat(target.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    throw Error(ErrorKind::kIo, "cannot write " + path_ + ": it is a directory", "give a file name inside it");
  }
  if (exists && !S_ISREG(info.st_mode)) return;
  check_output(target, path_);
  // A read-only file is refused although renaming over it would work: its owner meant it.
  if (exists && ::access(target.c_str(), W_OK) != 0) throw_write_error(path_, errno);
  target_path_ = target;
  open_temporary();
  if (exists) ::fchmod(fd_, info.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::open_temporary() {
  const std::string folder = folder_of(target_path_), stem = temporary_stem(target_path_);
  remove_leftovers(folder, stem);
  for (int number = 0; number < kMostTemporaries; ++number) {
    temporary_path_ = folder + "/" + stem + std::to_string(::getpid()) + "-" + std::to_string(number) + ".tmp";
    const SignalsWait wait;
    fd_ = ::open(temporary_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    // Another output of this run, or of a process with this number in another container.
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) throw_write_error(path_, errno);
    try {
      // Between open and lock another run may have taken it for a leftover.
      if (lock_file(fd_) && is_at(fd_, temporary_path_)) {
        // A new file, whatever had its number before.
        forget_input(*regular_file_id(fd_));
        cleanup_ = std::make_unique<RemoveOnSignal>(temporary_path_);
        return;
      }
    } catch (...) {
      ::unlink(temporary_path_.c_str());
      ::close(std::exchange(fd_, -1));
      throw;
    }
    ::close(std::exchange(fd_, -1));
  }
  throw_write_error(path_, EEXIST);
}

const std::string& AtomicFile::temporary_path() {
  AM_CHECK(!prepared_ && bytes_.empty());
  if (is_stream() && fd_ < 0) {
    fd_ = ::memfd_create("automap-output", MFD_CLOEXEC);
    if (fd_ < 0) throw_write_error(path_, errno);
    temporary_path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  return temporary_path_;
}

void AtomicFile::write(std::string_view bytes) {
  AM_CHECK(!prepared_);
  if (is_stream()) {
    bytes_ += bytes;
  } else if (const int error = write_all(fd_, bytes)) {
    throw_write_error(path_, error);
  }
}

void AtomicFile::prepare() {
  if (prepared_) return;
  if (is_stream()) {
    write_stream();
  } else {
    check_output(target_path_, path_);  // it may have been read since
    if (::fsync(fd_) != 0) throw_write_error(path_, errno);
  }
  prepared_ = true;
}

void AtomicFile::write_stream() {
  if (fd_ >= 0) {
    struct stat info = {};
    if (::fstat(fd_, &info) != 0) throw_write_error(path_, errno);
    bytes_.resize(static_cast<std::size_t>(info.st_size));
    std::size_t filled = 0;
    while (filled < bytes_.size()) {
      const ssize_t got = ::pread(fd_, bytes_.data() + filled, bytes_.size() - filled, static_cast<off_t>(filled));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw_write_error(path_, got < 0 ? errno : EIO);
      filled += static_cast<std::size_t>(got);
    }
  }
  const OtherSideWait wait;
  const int descriptor = descriptor_of_output(path_);
  const bool standard = descriptor == STDOUT_FILENO;
  if (standard) internal::flush_standard_output();
  int out = descriptor;
  if (out < 0) {
    // Somebody who stops the program does not want it to wait until the FIFO has a reader.
    const int now = StopToken::stop_requested() ? O_NONBLOCK : 0;
    out = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | now);
    if (out < 0) throw_write_error(path_, errno);
    if (now != 0) ::fcntl(out, F_SETFL, 0);
  }
  const int error = write_all(out, bytes_);
  if (out != descriptor) ::close(out);
  // The reader of standard output may stop early ("| head"): nobody is left to tell, as with print().
  if (error != 0 && !(standard && error == EPIPE)) throw_write_error(standard ? "standard output" : path_, error);
}

void AtomicFile::commit() {
  commit_all({this});
}

void AtomicFile::prepare_all(const std::vector<AtomicFile*>& files) {
  // Streams cannot be taken back, so they come after everything else that may fail.
  for (const bool streams : {false, true}) {
    for (AtomicFile* file : files) {
      if (file->is_stream() == streams) file->prepare();
    }
  }
}

void AtomicFile::commit_all(const std::vector<AtomicFile*>& files) {
  for (const AtomicFile* file : files) AM_CHECK(!file->published_);
  prepare_all(files);
  internal::flush_standard_output();
  const Renaming guard;
  std::size_t done = 0;
  try {
    for (; done < files.size(); ++done) files[done]->publish(files.size() > 1);
  } catch (...) {
    while (done > 0) files[--done]->withdraw();
    throw;
  }
  for (AtomicFile* file : files) file->finish();
}

void AtomicFile::publish(bool undoable) {
  if (is_stream()) return;
  check_output(target_path_, path_);
  replaces_ = regular_file_id(target_path_).has_value();
  // Exchanged, the old file is kept until it is certain that the others appear.
  exchanged_ = undoable && replaces_ &&
               ::renameat2(AT_FDCWD, temporary_path_.c_str(), AT_FDCWD, target_path_.c_str(), RENAME_EXCHANGE) == 0;
  if (!exchanged_ && ::rename(temporary_path_.c_str(), target_path_.c_str()) != 0) throw_write_error(path_, errno);
  published_ = true;
  // From here on, a file under the temporary name is the user's old one, so it must not be removed.
  cleanup_.reset();
}

void AtomicFile::withdraw() {
  if (!published_) return;
  bool back = false;  // not on a file system that cannot exchange files
  if (exchanged_) {
    back = ::renameat2(AT_FDCWD, temporary_path_.c_str(), AT_FDCWD, target_path_.c_str(), RENAME_EXCHANGE) == 0;
  } else if (!replaces_) {
    back = ::rename(target_path_.c_str(), temporary_path_.c_str()) == 0;
  }
  // Where it cannot be taken back, the old file stays under the temporary name rather than nowhere.
  if (back) published_ = exchanged_ = false;
}

void AtomicFile::finish() {
  if (is_stream()) return;
  if (exchanged_) ::unlink(temporary_path_.c_str());
  // The rename itself is only on disk once the folder is; a file system that cannot sync folders is not an error.
  const int folder = ::open(folder_of(target_path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  discard();
}

void AtomicFile::discard() {
  if (!is_stream() && fd_ >= 0 && !published_) ::unlink(temporary_path_.c_str());
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  cleanup_.reset();
}

AtomicFile& OutputSet::add(const std::string& path) {
  return *files_.emplace_back(std::make_unique<AtomicFile>(path));
}

std::vector<AtomicFile*> OutputSet::all() const {
  std::vector<AtomicFile*> files;
  for (const auto& file : files_) files.push_back(file.get());
  return files;
}

void OutputSet::prepare() {
  AtomicFile::prepare_all(all());
}

void OutputSet::commit() {
  AtomicFile::commit_all(all());
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

namespace internal {

void unlink_temporary_files() noexcept {
  ending = true;
  // Another thread that is making a file registers it in a moment; after a fork there may be no such thread.
  constexpr int kMostWaits = 1000;
  for (int waits = 0; making > 0 && waits < kMostWaits; ++waits) {
    const timespec moment = {0, 100'000};
    ::nanosleep(&moment, nullptr);
  }
  for (const RemoveOnSignal::Slot* slot = slots.load(); slot != nullptr; slot = slot->next) {
    if (slot->ready && slot->owner == ::getpid()) ::unlink(slot->path);
  }
}

bool signal_must_wait(int signal_number) noexcept {
  if (renaming.load() == 0) return false;
  waiting_signal.store(signal_number);
  return true;
}

}  // namespace internal

}  // namespace automap
