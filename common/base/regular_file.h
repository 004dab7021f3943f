// Files that must be files: opened without waiting for anybody at the other end of a FIFO, and refused when they are
// something else than a regular file.
#pragma once

#include <cstdint>
#include <string>

namespace automap {

// A descriptor for reading that the caller closes, and the size in bytes. Throws Error(kIo) when the file is not there
// or cannot be opened, with `missing_hint` when it is not there; Error(kData) for directories, FIFOs, sockets, devices.
struct RegularFile {
  int fd = -1;
  std::uint64_t bytes = 0;
};
RegularFile open_regular_file(const std::string& path, const std::string& missing_hint = "");

// All of it. Throws as open_regular_file does, and Error(kData) above `limit_bytes`.
std::string read_regular_file(const std::string& path, const std::string& missing_hint = "",
                              std::uint64_t limit_bytes = std::uint64_t{1} << 30);

}  // namespace automap
