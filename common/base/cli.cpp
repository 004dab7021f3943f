#include "common/base/cli.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>

#include "automap_version.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"

namespace automap {
namespace {

std::atomic<bool> json_errors{false};
std::atomic<int> stop_tokens{0};
std::atomic<bool> stop_flag{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "the signal handler needs lock-free flags");

extern "C" void on_stop_signal(int signal_number) {
  if (stop_tokens.load() > 0 && !stop_flag.exchange(true)) return;
  internal::unlink_temporary_files();
  _exit(128 + signal_number);
}

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal_number : {SIGINT, SIGTERM}) {
    // A background job of a shell without job control ignores SIGINT; keep it so.
    struct sigaction old = {};
    sigaction(signal_number, nullptr, &old);
    if (old.sa_handler != SIG_IGN) sigaction(signal_number, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
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
struct ReaderGone {};

[[noreturn]] void throw_output_error(int error) {
  if (error == EPIPE) throw ReaderGone();
  throw Error(ErrorKind::kIo, std::string("cannot write to standard output: ") + std::strerror(error),
              error == ENOSPC ? "free some space or write to another disk" : "");
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw_output_error(errno ? errno : EIO);
}

// `output_works` is false when standard output is what failed.
int report(const char* kind, int code, const std::string& message, const std::string& hint, bool output_works) {
  std::fputs(("error: " + message + "\n" + (hint.empty() ? "" : "  hint: " + hint + "\n")).c_str(), stderr);
  if (json_errors && output_works) {
    const nlohmann::ordered_json document = {{"error", {{"kind", kind}, {"message", message}, {"hint", hint}}}};
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

void print(std::string_view text) {
  print_exact(printable_lines(text));
}

void print_exact(std::string_view bytes) {
  errno = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) throw_output_error(errno ? errno : EIO);
}

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  occupy_standard_streams();
  install_signal_handlers();
  json_errors = false;
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) json_errors = true;
  }
  int code = 0;
  bool flushing = false;
  try {
    code = body(argc, argv);
    flushing = true;
    flush_output();
    return code;
  } catch (const ReaderGone&) {
    return code;
  } catch (const Error& e) {
    return report(to_string(e.kind()), exit_code(e.kind()), e.what(), e.hint(), !flushing && !std::ferror(stdout));
  } catch (const std::bad_alloc&) {
    return report("internal", 1, "out of memory", "close other programs, or use a machine with more memory", true);
  } catch (const std::exception& e) {
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
std::string version_line() {
  return "AutoMap " + version() + " (git " + git_revision() + ", " + AUTOMAP_COMPILER + ", " + AUTOMAP_BUILD_TYPE + ")";
}

}  // namespace automap
