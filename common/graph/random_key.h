// Recognizes the keys of random number generators.
#pragma once

#include <cstdint>

#include "common/graph/graph.h"

namespace automap::graph {

// An array that looks like a key, u32[2], u32[4], u64[2] or u64[3], and so is no batch of two, three or four.
inline bool is_random_key(const Shape& shape) {
  if (!shape.is_array() || shape.dims.size() != 1) return false;
  const std::int64_t words = shape.dims[0];
  return (shape.type == ElementType::kU32 && (words == 2 || words == 4)) ||
         (shape.type == ElementType::kU64 && (words == 2 || words == 3));
}

}  // namespace automap::graph
