// Opens regular files only: without waiting for anybody at the other end of a FIFO, and with an error for anything that
// is no regular file.
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

// Only throws as open_regular_file does: for files that are read as a whole afterwards.
void require_regular_file(const std::string& path, const std::string& missing_hint = "");

}  // namespace automap
