#pragma once

#include <cstddef>
#include <cstdint>

namespace automap::partition {

// Nodes, steps and buffers as indices of vectors.
inline std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace automap::partition
