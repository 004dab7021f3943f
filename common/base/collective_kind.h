// What devices do together to move data: the one list of kinds, for what a partitioned module needs
// (common/sharding/collectives.h), what it costs (common/machine/collectives.h) and what was measured.
#pragma once

#include <cstdint>

namespace automap {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,      // of bytes that every device holds: afterwards each holds the sum
  kReduceScatter,  // of bytes that every device holds: afterwards each holds its part of the sum
  kAllGather,      // each begins with its part of the bytes, and ends with all of them
  kAllToAll,       // each sends its part of the bytes to every device
  kPermute,        // each sends bytes to one other device: a message
};

inline const char* to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all-reduce";
    case CollectiveKind::kReduceScatter: return "reduce-scatter";
    case CollectiveKind::kAllGather: return "all-gather";
    case CollectiveKind::kAllToAll: return "all-to-all";
    case CollectiveKind::kPermute: return "collective-permute";
  }
  return "?";
}

}  // namespace automap
