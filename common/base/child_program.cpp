#include "common/base/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap {

namespace {

[[noreturn]] void throw_not_started(const std::string& program, int error) {
  throw Error(ErrorKind::kIo, "cannot run " + program + ": " + std::strerror(error));
}

// Two connected descriptors that no other program inherits, above the standard streams, which may be closed. What we
// write to is a socket, so that it is an error and no signal when the program has ended; what we read is a pipe, which
// the program may open again as /dev/stdout.
class Channel {
 public:
  enum class Kind { kWritten, kRead };
  Channel(Kind kind, const std::string& program) {
    const int failed = kind == Kind::kWritten ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data())
                                              : ::pipe2(ends_.data(), O_CLOEXEC);
    if (failed != 0) throw_not_started(program, errno);
    for (int& end : ends_) {
      if (end > STDERR_FILENO) continue;
      const int higher = ::fcntl(end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      if (higher < 0) throw_not_started(program, errno);
      ::close(end);
      end = higher;
    }
  }
  ~Channel() {
    close_end(0);
    close_end(1);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int ours() const { return ends_[0]; }
  int theirs() const { return ends_[1]; }
  void close_end(std::size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

// In the child, before the program: nothing but system calls. This process's handlers must not run there.
[[noreturn]] void become(char* const* arguments, pid_t parent, const std::array<int, 3>& streams, int failure,
                         const sigset_t& mask) {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      action = {};
      action.sa_handler = SIG_DFL;
      ::sigaction(number, &action, nullptr);
    }
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (int stream = 0; stream < 3; ++stream) ::dup2(streams[static_cast<std::size_t>(stream)], stream);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(arguments[0], arguments);
  const int error = errno;
  ::_exit(::write(failure, &error, sizeof error) < 0 ? 1 : 127);
}

// Appends what is there; false at the end.
bool take(int pipe, std::string* to) {
  std::array<char, 1 << 16> bytes;
  const ssize_t got = ::read(pipe, bytes.data(), bytes.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got <= 0) return false;
  to->append(bytes.data(), static_cast<std::size_t>(got));
  return true;
}

// The interval at which the caller is asked whether to give up.
constexpr int kAskEveryMs = 100;

// Until both of its outputs are closed, or the caller gives up.
void converse(const Channel& in, const Channel& out, const Channel& err, std::string_view input, const GiveUp& give_up,
              ProgramResult* result) {
  std::array<pollfd, 3> waiting = {{{in.ours(), POLLOUT, 0}, {out.ours(), POLLIN, 0}, {err.ours(), POLLIN, 0}}};
  while (waiting[1].fd >= 0 || waiting[2].fd >= 0) {
    if (waiting[0].fd >= 0 && input.empty()) {
      ::shutdown(waiting[0].fd, SHUT_WR);
      waiting[0].fd = -1;  // poll skips it
    }
    if (give_up && give_up(*result)) {
      result->given_up = true;
      return;
    }
    if (::poll(waiting.data(), waiting.size(), give_up ? kAskEveryMs : -1) < 0) continue;  // a signal
    if (waiting[0].fd >= 0 && waiting[0].revents != 0) {
      const ssize_t sent = ::send(waiting[0].fd, input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        input.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno != EINTR && errno != EAGAIN) {
        input = {};  // it does not read on
      }
    }
    if (waiting[1].fd >= 0 && waiting[1].revents != 0 && !take(waiting[1].fd, &result->out)) waiting[1].fd = -1;
    if (waiting[2].fd >= 0 && waiting[2].revents != 0 && !take(waiting[2].fd, &result->err)) waiting[2].fd = -1;
  }
}

// Waits for the child, which is killed first when something was thrown meanwhile.
class Reaped {
 public:
  explicit Reaped(pid_t pid) : pid_(pid) {}
  ~Reaped() {
    if (pid_ > 0) kill();
  }
  Reaped(const Reaped&) = delete;
  Reaped& operator=(const Reaped&) = delete;
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  int kill() {
    ::kill(pid_, SIGKILL);
    return wait();
  }
  bool ended() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid_;
  }

 private:
  pid_t pid_;
};

}  // namespace

ProgramResult run_program(const std::vector<std::string>& command, std::string_view input, const GiveUp& give_up) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Channel in(Channel::Kind::kWritten, command[0]), out(Channel::Kind::kRead, command[0]),
      err(Channel::Kind::kRead, command[0]), failure(Channel::Kind::kRead, command[0]);

  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid(), pid = ::fork();
  const int error = errno;
  if (pid == 0) become(arguments.data(), parent, {in.theirs(), out.theirs(), err.theirs()}, failure.theirs(), before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw_not_started(command[0], error);
  Reaped child(pid);
  for (Channel* channel : {&in, &out, &err, &failure}) channel->close_end(1);

  ProgramResult result;
  converse(in, out, err, input, give_up, &result);
  // Its outputs may be closed and it still there.
  while (give_up && !result.given_up && !child.ended()) {
    result.given_up = give_up(result);
    ::usleep(1000);
  }
  if (result.given_up) {
    result.exit_code = child.kill();
    return result;
  }
  std::string why;
  while (take(failure.ours(), &why)) {
  }
  result.exit_code = child.wait();
  if (why.size() == sizeof(int)) {
    int reason = 0;
    std::memcpy(&reason, why.data(), sizeof reason);
    throw_not_started(command[0], reason);
  }
  return result;
}

void become_program(const std::vector<std::string>& command, const std::string& hint) {
  std::vector<std::string> names = command;
  std::vector<char*> arguments;
  for (std::string& name : names) arguments.push_back(name.data());
  arguments.push_back(nullptr);
  const std::string& program = command.front();
  const std::string folder = executable_folder();
  if (!folder.empty()) ::execv((folder + "/" + program).c_str(), arguments.data());
  ::execvp(program.c_str(), arguments.data());
  throw Error(ErrorKind::kIo, "cannot run " + program + ": " + std::strerror(errno),
              hint.empty() ? "it belongs into " + (folder.empty() ? "the folder of this program" : folder) : hint);
}

}  // namespace automap
