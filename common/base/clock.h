// Monotonic time, for limits and for reported durations.
#pragma once

#include <chrono>

namespace automap {

// Seconds of the steady clock, from any origin.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace automap
