#include "common/base/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "automap_version.h"
#include "common/base/colour.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/inputs.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/memory.h"
#include "common/base/printable.h"

namespace automap {
namespace {

std::atomic<bool> json_errors{false};
std::atomic<int> stop_tokens{0}, other_side_waits{0};
std::atomic<bool> stop_flag{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "the signal handler needs lock-free flags");

extern "C" void on_stop_signal(int signal_number) {
  if (stop_tokens.load() > 0 && !stop_flag.exchange(true) && other_side_waits.load() == 0) return;
  if (internal::signal_must_wait(signal_number)) return;
  internal::unlink_temporary_files();
  _exit(128 + signal_number);
}

// The limit of CPU time, which would otherwise end the process without a word.
extern "C" void on_time_signal(int signal_number) {
  if (internal::signal_must_wait(signal_number)) return;
  internal::unlink_temporary_files();
  constexpr char kSays[] = "error: the limit of CPU time is used up (ulimit -t)\n";
  const ssize_t ignored = ::write(STDERR_FILENO, kSays, sizeof kSays - 1);
  static_cast<void>(ignored);
  _exit(128 + signal_number);
}

// Whoever presses Ctrl-\ wants a core dump.
extern "C" void on_quit_signal(int signal_number) {
  if (internal::signal_must_wait(signal_number)) return;
  internal::unlink_temporary_files();
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal_number, &action, nullptr);
  raise(signal_number);
}

// Where the limit of CPU time may not be passed at all (ulimit -t sets both limits), the kernel kills instead of
// sending SIGXCPU: a timer sends it before, so that temporary files go. It sends it a whole second before, because a
// virtual machine that is halted for a while sees the time jump past the timer and the limit at once.
void watch_hard_time_limit() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY || limit.rlim_cur < limit.rlim_max)
    return;
  struct sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGXCPU;
  timer_t timer = {};
  if (limit.rlim_max < 1 || ::timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) != 0) return;
  struct itimerspec at = {};
  at.it_value.tv_sec = static_cast<time_t>(limit.rlim_max) - 1;
  if (limit.rlim_max == 1) at.it_value.tv_nsec = 500'000'000;
  ::timer_settime(timer, TIMER_ABSTIME, &at, nullptr);
}

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  const std::pair<int, void (*)(int)> handlers[] = {{SIGINT, on_stop_signal},
                                                    {SIGTERM, on_stop_signal},
                                                    {SIGHUP, on_stop_signal},
                                                    {SIGXCPU, on_time_signal},
                                                    {SIGQUIT, on_quit_signal}};
  for (const auto& [signal_number, handler] : handlers) {
    // A background job of a shell without job control ignores SIGINT, one of nohup SIGHUP; keep it so.
    struct sigaction old = {};
    sigaction(signal_number, nullptr, &old);
    action.sa_handler = handler;
    if (old.sa_handler != SIG_IGN) sigaction(signal_number, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
  // Beyond the limit of file sizes, write() then fails with a reason.
  std::signal(SIGXFSZ, SIG_IGN);
}

// A program started with a standard stream closed would hand its number to the next file it opens, and results or
// messages would be written into that file.
void occupy_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // Opened the wrong way round on purpose: using the closed stream is still an error.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
      return;
  }
}

// Standard output's reader is gone: there is nobody to tell.
std::atomic<bool> reader_gone{false};

void output_failed(int error) {
  reader_gone = error == EPIPE;
  if (reader_gone) return;
  throw Error(ErrorKind::kIo, std::string("cannot write to standard output: ") + std::strerror(error),
              error == ENOSPC  ? "free some space or write to another disk"
              : error == EFBIG ? "the file size limit of this shell (ulimit -f) is too low: raise it"
                               : "");
}

// Part of a document on standard output is not followed by another.
bool printed = false;

// `output_works`: false when standard output itself has failed.
int report(const char* kind, int code, const std::string& message, const std::string& hint, bool output_works) {
  std::fputs((coloured("error:", Colour::kError, STDERR_FILENO) + " " + message + "\n" +
              (hint.empty() ? "" : "  hint: " + hint + "\n"))
                 .c_str(),
             stderr);
  if (json_errors && output_works && !printed) {
    const Json document = {{"error", {{"kind", kind}, {"message", message}, {"hint", hint}}}};
    const std::string text = json_text(document);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  return code;
}

}  // namespace

void set_json_errors(bool on) {
  json_errors = on;
}

StopToken::StopToken() {
  ++stop_tokens;
}
StopToken::~StopToken() {
  --stop_tokens;
}
bool StopToken::stop_requested() noexcept {
  return stop_flag.load(std::memory_order_relaxed);
}

OtherSideWait::OtherSideWait() {
  ++other_side_waits;
}
OtherSideWait::~OtherSideWait() {
  --other_side_waits;
}

void print(std::string_view text) {
  print_exact(printable_lines(text));
}

void print_report(const std::string& text) {
  print(wrap_lines(text, report_columns()));
}

void print_labelled(std::string_view text, std::size_t label_columns) {
  const std::string lines = printable_lines(text);
  if (!has_colours(STDOUT_FILENO)) return print_exact(lines);
  std::string out;
  for (std::size_t from = 0; from < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', from), lines.size() - 1) + 1;
    const std::string line = lines.substr(from, end - from);
    const std::size_t label = std::min(line.substr(0, label_columns).find_last_not_of(" \n") + 1, line.size());
    out += (label == 0 ? "" : coloured(line.substr(0, label), Colour::kHeading, STDOUT_FILENO)) + line.substr(label);
    from = end;
  }
  print_exact(out);
}

void print_exact(std::string_view bytes) {
  if (reader_gone) return;
  errno = 0;
  printed = printed || !bytes.empty();
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) output_failed(errno ? errno : EIO);
}

void internal::flush_standard_output() {
  if (reader_gone) return;
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) output_failed(errno ? errno : EIO);
}

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  occupy_standard_streams();
  install_signal_handlers();
  watch_hard_time_limit();
  internal::remember_inputs(true);
  json_errors = false;
  prepare_for_out_of_memory([] { return json_errors.load(); });
  // Until the arguments are understood, --json anywhere among them asks for errors as JSON.
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) json_errors = true;
  }
  int code = 0;
  bool flushing = false;
  try {
    code = body(argc, argv);
    flushing = true;
    internal::flush_standard_output();
    return code;
  } catch (const Error& e) {
    return report(to_string(e.kind()), exit_code(e.kind()), e.what(), e.hint(), !flushing && !std::ferror(stdout));
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) {
      return report(to_string(ErrorKind::kMemory), exit_code(ErrorKind::kMemory), kOutOfMemoryMessage, kOutOfMemoryHint,
                    true);
    }
    return report("internal", 1, "unexpected failure: " + printable(e.what()),
                  "this is a bug in AutoMap; please report it with the command and its input", true);
  }
}

std::string version() {
  return AUTOMAP_VERSION;
}
std::string git_revision() {
  return AUTOMAP_GIT_REVISION;
}
std::string built_with() {
  return AUTOMAP_BUILT_WITH;
}
std::string version_line() {
  return "AutoMap " + version() + " (git " + git_revision() + ", " + AUTOMAP_COMPILER + ", " + AUTOMAP_BUILD_TYPE + ")";
}

}  // namespace automap
