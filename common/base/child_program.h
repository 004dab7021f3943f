// Runs another program to its end, with bytes as its input and output, or replaces this program by it.
//
//   const ProgramResult done = run_program({"python3", "script.py", "-"}, text);
//   if (done.exit_code != 0) throw Error(ErrorKind::kData, done.err);
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace automap {

struct ProgramResult {
  int exit_code = 0;  // 128 + signal when a signal ended it
  std::string out, err;
  bool given_up = false;  // it was killed, as the caller wanted
};

// Called while a program runs, ten times a second and whenever it has written something, with its output so far; if it
// returns true, the program is killed.
using GiveUp = std::function<bool(const ProgramResult&)>;

// Runs command[0], found in PATH unless it has a slash, and waits for its end. It reads `input` as its standard input
// (and need not read all of it); what it writes is kept in memory. It is killed when this process is; it has none of
// this process's files open. Throws Error(kIo) naming it when it cannot be started.
// run_program({"cat"}, "abc") gives {0, "abc", ""}.
ProgramResult run_program(const std::vector<std::string>& command, std::string_view input, const GiveUp& give_up = {});

// Replaces this process by command[0], which stands beside this program's own file, else in PATH. Throws Error(kIo)
// when there is no such program; `hint`: the way to get it; empty: the error says that it belongs beside this one.
[[noreturn]] void become_program(const std::vector<std::string>& command, const std::string& hint = "");

}  // namespace automap
