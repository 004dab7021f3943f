// Says whether this is a sanitized build, whose runs take several times as long: it tests fewer random problems. Tests
// that it leaves out stand in tests/one_build.txt.
#pragma once

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
