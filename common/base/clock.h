// Time that only goes forward, for limits and for what is reported.
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
