// Shared code of the targets that fuzz a reader. Any bytes give a value or an Error about the input; an internal Error
// (a bug), another exception, a signal or no end stops the fuzzer.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// 0, as libFuzzer wants it.
template <class Read>
int read_or_refuse(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
  }
  return 0;
}

// The path of a file in memory that holds these bytes until the next call, for readers that open their file themselves.
inline std::string path_of_file_with(std::string_view bytes) {
  static const int file = ::memfd_create("fuzz", 0);
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  return "/proc/self/fd/" + std::to_string(file);
}

// The bytes with a last four that are the checksum of all before them: what stands behind the checksum is to be
// reached.
inline std::string with_right_crc(std::string_view given) {
  std::string bytes(given);
  if (bytes.size() < 4) return bytes;
  const std::uint32_t crc = crc32c(std::string_view(bytes).substr(0, bytes.size() - 4));
  for (std::size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<char>(crc >> (8 * i) & 0xff);
  return bytes;
}

}  // namespace automap::fuzz
