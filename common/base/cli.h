// The parts of every program's main(): the one place that catches errors, signals, and a checked standard output.
//
//   int main(int argc, char** argv) { return automap::run_main(argc, argv, tool_main); }
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace automap {

// The process ended early on a signal with its best result so far (docs/exit-codes.md).
constexpr int kExitStoppedEarly = 75;
constexpr int kExitInterrupted = 130;

// Runs `body` and returns the exit code. An Error prints "error: ..." and its hint on standard error and maps its kind
// to the code; with --json the document {"error":{"kind","message","hint"}} also goes to standard output. Installs
// the signal handlers (see StopToken), and flushes and checks standard output at the end: a full disk behind it is
// Error(kIo), a reader that went away (EPIPE) ends the program quietly with its own code.
int run_main(int argc, char** argv, const std::function<int(int, char**)>& body);

// Results are written to standard output by these only; all throw Error(kIo) when that fails. When the reader went
// away, this and all later output is dropped: the files that the program writes do not depend on it.
//
// Text for people: everything in it but line ends is made printable (common/base/printable.h).
void print(std::string_view text);
// The same of a report, whose lines are broken where they are longer than the terminal is wide (fitted_table.h).
void print_report(const std::string& text);
// As print, of lines behind labels (ASCII) in the first so many columns, which are in bold on a terminal with colours.
void print_labelled(std::string_view text, std::size_t label_columns);
// Data for programs, byte by byte: JSON (json_text), INI, HLO.
void print_exact(std::string_view bytes);

namespace internal {
// Flushes all that was printed; throws as print() does.
void flush_standard_output();
}  // namespace internal

// Makes run_main print errors as JSON, too. On from the start when --json stands among the arguments.
void set_json_errors(bool on);

// SIGINT, SIGTERM and SIGHUP. By default the first one ends the process at once (exit 128 + signal number, temporary
// files removed). While a StopToken is alive the first one only raises the flag and the next one ends the process.
// SIGXCPU and SIGQUIT always end it, temporary files removed. Signals that were ignored when the program started
// (nohup) stay ignored.
class StopToken {
 public:
  StopToken();
  ~StopToken();
  StopToken(const StopToken&) = delete;
  StopToken& operator=(const StopToken&) = delete;
  // Cheap enough for inner loops; safe from any thread.
  static bool stop_requested() noexcept;
};

// Alive where the process waits for who is at the other end of a pipe: nobody asks StopToken meanwhile, so that the
// first signal ends the process then, too.
class OtherSideWait {
 public:
  OtherSideWait();
  ~OtherSideWait();
  OtherSideWait(const OtherSideWait&) = delete;
  OtherSideWait& operator=(const OtherSideWait&) = delete;
};

// "AutoMap 0.1.0 (git 1a2b3c4, g++ 12.2.0, Release)"
std::string version_line();
std::string built_with();  // "HDF5 1.10.8, CBC, LibTorch 1.8.0; policies pipeline.policy": known when CMake configured
std::string version();     // "0.1.0"
std::string git_revision();  // "1a2b3c4d5e6f" with "-dirty" when the tree was changed; "unknown" outside git

}  // namespace automap
