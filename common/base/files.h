// Whole files in and out: bounded reading (plain or gzipped), atomic writing, hashes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace automap {

// The largest input any reader accepts, before and after gunzip, unless it says otherwise.
constexpr std::uint64_t kMaxInputBytes = std::uint64_t{2} << 30;

// The bytes of `path`, or of standard input for "-". Pipes and other streams are read to their end.
// Throws Error(kIo) when it does not exist, is a directory or cannot be read; Error(kData) above `limit_bytes`.
std::string read_file(const std::string& path, std::uint64_t limit_bytes = kMaxInputBytes);

// What people call the input in messages: `path`, or "<stdin>" for "-".
std::string input_name(const std::string& path);

// True when the bytes start like a gzip stream (1f 8b 08).
bool is_gzip(std::string_view bytes);

// Expands a gzip stream (several members allowed, zero padding after the last ignored).
// Throws Error(kData) naming `source`: truncated, damaged, or more than `limit_bytes` when expanded.
std::string gunzip(std::string_view bytes, const std::string& source, std::uint64_t limit_bytes = kMaxInputBytes);

// `bytes`, expanded when they are gzipped, else unchanged.
std::string gunzip_if_gzip(std::string bytes, const std::string& source, std::uint64_t limit_bytes = kMaxInputBytes);

// A file that appears complete or not at all: bytes go to a temporary file in the same folder, commit() syncs it and
// renames it over `path`, then syncs the folder. Without commit(), and when the process is interrupted, the
// temporary file is removed and `path` stays as it was. A symbolic link is followed; the mode of a replaced file is
// kept. Where renaming makes no sense ("-" = standard output, pipes, devices) commit() copies the bytes instead.
//
// Every failure throws Error(kIo) that names the path and the reason (no such folder, not writable, a directory,
// disk full).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  // For writers that want a path (HDF5): an existing empty file; close it before commit().
  const std::string& temporary_path() const { return temporary_path_; }
  void commit();

 private:
  void discard();

  std::string path_;         // as the user gave it
  std::string target_path_;  // with links followed; empty when the bytes are copied instead
  std::string temporary_path_;
  int fd_ = -1;
  int cleanup_slot_ = -1;
  bool committed_ = false;
};

// AtomicFile(path).write(bytes).commit().
void write_file_atomic(const std::string& path, std::string_view bytes);

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

namespace internal {
// Removes the temporary files of every AtomicFile in flight. Async-signal-safe: for the interrupt handler only.
void unlink_temporary_files() noexcept;
}  // namespace internal

}  // namespace automap
