#include "common/base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "common/base/error.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AUTOMAP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer) || \
    __has_feature(undefined_behavior_sanitizer)
#define AUTOMAP_SANITIZED 1
#endif
#endif

namespace automap {

namespace {

#ifdef AUTOMAP_SANITIZED
constexpr bool kSanitized = true;  // sanitizers reserve terabytes of address space, and open pipes to look at memory
#else
constexpr bool kSanitized = false;
#endif

// The child's message: a header, then `bytes` of it.
enum class Word : std::uint32_t { kAnswer, kError, kNoMemory, kFailed };
struct Header {
  Word word;
  std::uint32_t kind;  // of an Error
  std::uint64_t bytes, hint_bytes;
};
// The parent's message that there are no more.
constexpr std::uint64_t kEnd = UINT64_MAX;

bool put(int socket, const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket, at, std::min(size, std::size_t{1} << 30), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

enum class Got { kAll, kEnded, kLate };
// Gives up after `patience_s` seconds without a byte; 0: never. Counted in waits of a second, so that a process that
// was stopped (Ctrl-Z) meanwhile has not waited.
Got get(int socket, void* data, std::size_t size, unsigned patience_s = 0) {
  auto* at = static_cast<char*>(data);
  unsigned waited_s = 0;
  while (size > 0) {
    if (patience_s > 0) {
      pollfd waiting = {socket, POLLIN, 0};
      const int ready = ::poll(&waiting, 1, 1000);
      if (ready == 0 && ++waited_s == patience_s) return Got::kLate;
      if (ready <= 0) continue;
    }
    const ssize_t got = ::recv(socket, at, std::min(size, std::size_t{1} << 30), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Got::kEnded;
    at += got;
    size -= static_cast<std::size_t>(got);
    waited_s = 0;
  }
  return Got::kAll;
}

// Lowers a limit; it cannot be raised again.
void limit(decltype(RLIMIT_AS) which, rlim_t soft, rlim_t hard) {
  rlimit now = {};
  if (::getrlimit(which, &now) != 0) return;
  now.rlim_max = std::min(now.rlim_max, hard);
  now.rlim_cur = std::min({now.rlim_cur, soft, now.rlim_max});
  ::setrlimit(which, &now);
}

// The address space of this process in bytes; 0 when the system does not tell.
std::uint64_t address_space() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[64] = {};
  const ssize_t got = ::read(file, text, sizeof text - 1);
  ::close(file);
  return got <= 0 ? 0 : std::strtoull(text, nullptr, 10) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// This process's handlers remove its temporary files and must not run in the child. The parent answers signals that a
// terminal sends to all (Ctrl-C), and ends the child when it ends.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    const bool ignored = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT ||
                         number == SIGPIPE || number == SIGXFSZ;
    action.sa_handler = ignored ? SIG_IGN : SIG_DFL;
    ::sigaction(number, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Every descriptor but `socket`: locks, pipes that others wait for the end of, standard output.
void drop_descriptors(int socket) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (null >= 0) {
      ::dup2(null, stream);
    } else {
      ::close(stream);
    }
  }
  const auto kept = static_cast<unsigned>(socket);
  if (kept > STDERR_FILENO + 1) ::close_range(STDERR_FILENO + 1, kept - 1, 0);
  ::close_range(kept + 1, ~0U, 0);
}

// A sanitizer's allocator (not glibc's) may be locked for ever in the fork of a process with several threads. The child
// takes every lock of it, more blocks of every size than a thread keeps for itself, and then says that it lives; one
// that does not is started again. Every few starts it is given twice the time: the machine may be busy. A class of
// sizes that is left out here is a child that hangs later: they are 16 bytes apart up to 256 bytes and then at least an
// eighth, up to 128 KiB, a thread keeps at most 256 blocks of one, and what is added to a block depends on its size.
// With one thread alone nothing can be locked.
constexpr char kAlive = '+';
constexpr unsigned kAlivePatienceS = 1;
constexpr int kStarts = 18, kStartsOfOnePatience = 3;

bool has_other_threads() {
  std::error_code error;
  int threads = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end;
       at.increment(error)) {
    ++threads;
  }
  return threads != 1;  // 0: the system does not tell
}

void use_whole_allocator() {
  constexpr std::size_t kFine = 512, kLargest = std::size_t{1} << 18, kKept = std::size_t{1} << 18;
  constexpr std::size_t kLeastBlocks = 4, kMostBlocks = 512;
  for (std::size_t size = 16; size <= kLargest; size += size < kFine ? 16 : size / 8) {
    std::vector<std::unique_ptr<char[]>> blocks(std::clamp(kKept / size, kLeastBlocks, kMostBlocks));
    for (auto& block : blocks) block.reset(new char[size]);
  }
}

void restrict_process(const ChildLimits& limits) {
  limit(RLIMIT_CORE, 0, 0);
  if (limits.seconds > 0) limit(RLIMIT_CPU, limits.seconds, limits.seconds + 1);
  const std::uint64_t size = address_space();
  if (!kSanitized && limits.memory_bytes > 0 && size > 0) {
    limit(RLIMIT_AS, size + limits.memory_bytes, size + limits.memory_bytes);
  }
  if (limits.files) return;
  limit(RLIMIT_FSIZE, 0, 0);
  if (!kSanitized) limit(RLIMIT_NOFILE, 0, 0);
}

void say(int socket, Word word, std::string_view bytes, std::string_view hint = {}, std::uint32_t kind = 0) {
  const Header header = {word, kind, bytes.size(), hint.size()};
  if (put(socket, &header, sizeof header) && put(socket, bytes.data(), bytes.size())) {
    put(socket, hint.data(), hint.size());
  }
}

// All signals wait while it lives: a handler of this process must not run in the child.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

[[noreturn]] void throw_no_process(int error) {
  if (error == ENOMEM) throw std::bad_alloc();
  throw Error(
      ErrorKind::kIo, std::string("cannot start a process: ") + std::strerror(error),
      error == EAGAIN ? "the limit of processes (ulimit -u) is reached: close other programs, or raise it" : "");
}

}  // namespace

std::optional<std::string> ChildInput::next() {
  std::uint64_t size = 0;
  if (get(socket_, &size, sizeof size) != Got::kAll) ::_exit(1);
  if (size == kEnd) return std::nullopt;
  std::string message(size, '\0');
  if (get(socket_, message.data(), size) != Got::kAll) ::_exit(1);
  return message;
}

ChildProcess::ChildProcess(const Work& work, const ChildLimits& limits)
    : limits_(limits), may_hang_(kSanitized && has_other_threads()) {
  start(work);
  for (int starts = 1; may_hang_; ++starts) {
    char word = 0;
    // A child that has ended is for finish() to tell of.
    const unsigned patience_s = kAlivePatienceS << ((starts - 1) / kStartsOfOnePatience);
    if (get(socket_, &word, sizeof word, patience_s) != Got::kLate) break;
    end();
    ::close(std::exchange(socket_, -1));
    if (starts == kStarts) {
      throw Error(ErrorKind::kIo,
                  "cannot start a process: " + std::to_string(kStarts) + " in turn gave no sign of life",
                  "the sanitizer's allocator was locked in all of them, or the machine is too busy: run it again");
    }
    start(work);
  }
  rlimit memory = {};
  // The child's own limit is the lower one unless ulimit leaves less than the budget.
  over_budget_possible_ =
      limits.memory_bytes > 0 &&
      (kSanitized ||  // which have a limit of their own, of one allocation
       (::getrlimit(RLIMIT_AS, &memory) == 0 &&
        (memory.rlim_cur == RLIM_INFINITY || memory.rlim_cur > address_space() + limits.memory_bytes)));
}

void ChildProcess::start(const Work& work) {
  int sockets[2] = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) throw_no_process(errno);
  socket_ = sockets[0];
  child_socket_ = sockets[1];
  int error = 0;
  {
    const SignalsBlocked blocked;
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    error = errno;
    if (pid_ == 0) run_child(work, parent);
  }
  ::close(std::exchange(child_socket_, -1));
  if (pid_ < 0) {
    ::close(std::exchange(socket_, -1));
    throw_no_process(error);
  }
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) end();
  if (socket_ >= 0) ::close(socket_);
}

void ChildProcess::run_child(const Work& work, pid_t parent) {
  const int socket = child_socket_;
  reset_signals();
  if (!limits_.outlives_thread) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
  }
  drop_descriptors(socket);
  restrict_process(limits_);
  if (may_hang_) {
    use_whole_allocator();
    put(socket, &kAlive, sizeof kAlive);
  }
  try {
    ChildInput input(socket);
    const std::string answer = work(input);
    say(socket, Word::kAnswer, answer);
  } catch (const Error& e) {
    say(socket, Word::kError, e.what(), e.hint(), static_cast<std::uint32_t>(e.kind()));
  } catch (const std::bad_alloc&) {
    say(socket, Word::kNoMemory, {});
  } catch (const std::exception& e) {
    say(socket, Word::kFailed, e.what());
  } catch (...) {
    say(socket, Word::kFailed, "an unknown exception");
  }
  ::_exit(0);
}

bool ChildProcess::send(std::string_view message) {
  const std::uint64_t size = message.size();
  return put(socket_, &size, sizeof size) && put(socket_, message.data(), message.size());
}

std::string ChildProcess::end() {
  // A child that has crashed keeps its own signal.
  ::kill(pid_, SIGKILL);
  int status = 0;
  pid_t ended = -1;
  do {
    ended = ::waitpid(pid_, &status, 0);
  } while (ended < 0 && errno == EINTR);
  pid_ = -1;
  if (ended < 0) return "it ended";  // somebody else waited for it
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    if (number == SIGXCPU) return "not done after " + std::to_string(limits_.seconds) + " s";
    const char* name = ::sigdescr_np(number);
    return "killed by signal " + std::to_string(number) + (name ? std::string(" (") + name + ")" : "");
  }
  return "it ended with exit code " + std::to_string(WEXITSTATUS(status));
}

ChildResult ChildProcess::finish() {
  constexpr unsigned kClockFactor = 10, kClockSeconds = 20;
  const unsigned patience_s = limits_.seconds > 0 ? kClockFactor * limits_.seconds + kClockSeconds : 0;
  put(socket_, &kEnd, sizeof kEnd);
  ChildResult result;
  Header header = {};
  std::string bytes, hint;
  Got got = get(socket_, &header, sizeof header, patience_s);
  if (got == Got::kAll) {
    // A child that was taken over may say anything, but not more than it had memory for.
    const std::uint64_t most_bytes = limits_.memory_bytes > 0 ? limits_.memory_bytes : std::uint64_t{1} << 40;
    if (header.bytes > most_bytes || header.hint_bytes > most_bytes || header.word > Word::kFailed) {
      result.failure = "its answer makes no sense";
      return result;
    }
    bytes.resize(header.bytes);
    hint.resize(header.hint_bytes);
    got = get(socket_, bytes.data(), bytes.size(), patience_s);
    if (got == Got::kAll) got = get(socket_, hint.data(), hint.size(), patience_s);
  }
  const std::string how = end();
  if (got != Got::kAll) {
    result.failure = got == Got::kLate ? "not done in time" : how;
    return result;
  }
  switch (header.word) {
    case Word::kAnswer: result.answer = std::move(bytes); break;
    case Word::kError:
      throw Error(header.kind <= static_cast<std::uint32_t>(ErrorKind::kInternal) ? static_cast<ErrorKind>(header.kind)
                                                                                  : ErrorKind::kData,
                  bytes, hint);
    case Word::kNoMemory:
      result.failure = "out of memory";
      result.out_of_memory = true;
      result.over_budget = over_budget_possible_;
      break;
    case Word::kFailed: result.failure = bytes; break;
  }
  return result;
}

}  // namespace automap
