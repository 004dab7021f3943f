// Whether this is a sanitized build, whose runs take several times as long: it looks at fewer random problems, and
// leaves plans of large models, which are compared in the other build, to that one.
#pragma once

#include <gtest/gtest.h>

namespace automap {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// Random problems of the other build, for each one of this build.
constexpr int kShare = kSanitized ? 10 : 1;

}  // namespace automap

#define AUTOMAP_LEAVE_TO_THE_OTHER_BUILD() \
  if (kSanitized) GTEST_SKIP() << "sanitized build: large plans are compared in the other one"
