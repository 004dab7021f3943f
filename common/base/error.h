// The one exception type of the project.
//
// Throw it where the fact is known: say what is wrong, where (file:line:column when there is one), what was
// expected and, in `hint`, what to do about it. Only run_main (common/base/cli.h) catches it for good.
// Expected outcomes (no plan fits, end of data, propagation got stuck) are return values, never exceptions.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace automap {

enum class ErrorKind {
  kUsage,       // wrong flags or arguments                      -> exit 2
  kConfig,      // a config, cluster or options file is wrong    -> exit 2
  kData,        // an input file cannot be understood            -> exit 3
  kIo,          // a file cannot be read or written              -> exit 3
  kMemory,      // memory ran out                             -> exit 3
  kInfeasible,  // the question has no feasible answer           -> exit 4
  kStopped,     // a signal came before there was a result       -> exit 75
  kInternal,    // a bug in AutoMap                              -> exit 1
};

// "usage", "config", "data", "io", "memory", "infeasible", "stopped", "internal": the `kind` of a JSON error document.
const char* to_string(ErrorKind kind);

// The exit code of a process that ends with an error of this kind (docs/exit-codes.md).
int exit_code(ErrorKind kind);

// what() is the message and, each behind "\n  ", its lines.
class Error : public std::runtime_error {
 public:
  // `lines` stand indented below the message: an excerpt, a list. All three may quote anything: each is one line and
  // made printable (common/base/printable.h), so that no name in them can act on a terminal or look like a line of
  // ours.
  Error(ErrorKind kind, const std::string& message, const std::string& hint = "",
        const std::vector<std::string>& lines = {});

  ErrorKind kind() const { return kind_; }
  // The user's way to fix it; may be empty.
  const std::string& hint() const { return hint_; }

 private:
  ErrorKind kind_;
  std::string hint_;
};

}  // namespace automap
