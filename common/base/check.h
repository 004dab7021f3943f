// AM_CHECK is for bugs: it is always on and must never be reachable from user input (that is what Error is for).
// AM_DCHECK is the same for hot loops and vanishes in release builds.
#pragma once

#include <string>

#include "common/base/error.h"

namespace automap::internal {
[[noreturn]] inline void check_failed(const char* expression, const char* file, int line) {
  throw Error(ErrorKind::kInternal,
              std::string(file) + ":" + std::to_string(line) + ": internal check failed: " + expression,
              "this is a bug in AutoMap; please report it with the command and its input");
}
}  // namespace automap::internal

#define AM_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::automap::internal::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define AM_DCHECK(condition) static_cast<void>(0)
#else
#define AM_DCHECK(condition) AM_CHECK(condition)
#endif
