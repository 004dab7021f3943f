// Ends the program cleanly when memory runs out, wherever that is noticed: in a destructor, in a thread, before main or
// while an error is being reported. It prints one clear message on standard error and the document of --json, removes
// temporary files, and exits with 3.
#pragma once

#include <exception>

namespace automap {

// run_main's message for std::bad_alloc.
extern const char kOutOfMemoryMessage[];  // "out of memory"
extern const char kOutOfMemoryHint[];

// True for std::bad_alloc, and for a std::system_error that says that the system has no memory or no thread left.
bool is_out_of_memory(const std::exception& error);

// Reports running out of memory without allocating, removes temporary files and ends the process with exit code 3.
// `json`: also prints the document of --json on standard output. Called where nothing can be thrown any more.
[[noreturn]] void end_out_of_memory(bool json) noexcept;

// Makes sure that running out of memory later can be reported: grows the stack of the calling thread now (under
// `ulimit -v` it could not grow later, and the kernel would kill the process), and replaces std::terminate's handler by
// one that reports std::bad_alloc as above. `json` tells the handler whether --json was given when it is called.
void prepare_for_out_of_memory(bool (*json)());

}  // namespace automap
