// Reads whole files, bounded, plain or gzipped, and computes hashes. Whole files are written by
// common/base/atomic_file.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/atomic_file.h"
#include "common/base/paths.h"

namespace automap {

// The largest input any reader accepts, before and after gunzip, unless it says otherwise.
constexpr std::uint64_t kMaxInputBytes = std::uint64_t{2} << 30;

// The bytes of `path`, or of standard input for "-". Pipes and other streams are read to their end.
// Throws Error(kIo) when it does not exist, is a directory or cannot be read; Error(kData) above `limit_bytes`.
// From then on no output of the program may replace it (common/base/inputs.h).
std::string read_file(const std::string& path, std::uint64_t limit_bytes = kMaxInputBytes);
// The same for a file of the program's own, which it may write again: a checkpoint, the list of a dataset's shards.
// Error(kData) when it is no regular file.
std::string read_own_file(const std::string& path, std::uint64_t limit_bytes = kMaxInputBytes);

// The name of the input in messages: `path`, or "<stdin>" for "-".
std::string input_name(const std::string& path);

// True when the bytes start like a gzip stream (1f 8b 08).
bool is_gzip(std::string_view bytes);

// Expands a gzip stream (several members allowed, zero padding after the last ignored).
// Throws Error(kData) naming `source`: truncated, damaged, or more than `limit_bytes` when expanded. A bomb is refused
// long before that: whatever expands more than 64 times may come to 64 MiB in all, and what expands to next to nothing
// to 1 MiB of input. Text expands up to 51 times.
std::string gunzip(std::string_view bytes, const std::string& source, std::uint64_t limit_bytes = kMaxInputBytes);

// `bytes`, expanded when they are gzipped, else unchanged.
std::string gunzip_if_gzip(std::string bytes, const std::string& source, std::uint64_t limit_bytes = kMaxInputBytes);

// Lower-case hex of SHA-256 (FIPS 180-4). sha256_hex("abc") starts with "ba7816bf".
std::string sha256_hex(std::string_view bytes);

namespace internal {
// Without the processor's own instructions, for the tests to compare with.
std::string sha256_hex_portable(std::string_view bytes);
std::uint32_t crc32c_portable(std::string_view bytes);
}  // namespace internal

// The same for bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  std::string hex() const;  // of all so far; update() may go on

 private:
  friend std::string internal::sha256_hex_portable(std::string_view bytes);
  std::array<std::uint32_t, 8> state_;
  std::array<unsigned char, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t total_bytes_ = 0;
};

// CRC-32C (Castagnoli), as in iSCSI: crc32c("123456789") = 0xe3069283. `crc` continues an earlier result.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t crc = 0);

// The folder of the running program, links resolved; empty when the system does not tell.
std::string executable_folder();

}  // namespace automap
