#include "common/io/hdf5_checksum.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap::io {
namespace {

constexpr std::string_view kSignature("\x89HDF\r\n\x1a\n", 8);
constexpr std::string_view kMark = "AutoMap checksum";
constexpr std::size_t kLengthAt = 16, kVersionAt = 24, kCrcAt = 28, kChecksumBytes = 32;
static_assert(kMark.size() == kLengthAt);
constexpr std::uint32_t kVersion = 1;
constexpr const char* kDamagedHint = "copy it again from where it is whole, or make it again";

std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

void append_number(std::string* bytes, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) *bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw Error(ErrorKind::kData, source + ": " + what, kDamagedHint);
}

}  // namespace

bool is_hdf5(std::string_view bytes) {
  return bytes.substr(0, kSignature.size()) == kSignature;
}

// HDF5 File Format Specification, II.A.
std::uint64_t hdf5_data_end(std::string_view bytes, const std::string& source) {
  constexpr std::size_t kVersionByte = 8, kMostSuperblock = 96;
  const auto damaged = [&](const std::string& what) { fail(source, "not a whole HDF5 file: " + what); };
  if (!is_hdf5(bytes)) damaged("it does not start like one");
  if (bytes.size() < kMostSuperblock) damaged("cut short after " + std::to_string(bytes.size()) + " bytes");
  const auto version = static_cast<unsigned char>(bytes[kVersionByte]);
  if (version > 3) damaged("superblock version " + std::to_string(version) + ", expected at most 3");
  const std::size_t sizes_at = version < 2 ? 13 : 9;
  const auto address_bytes = static_cast<unsigned char>(bytes[sizes_at]);
  if (address_bytes != 4 && address_bytes != 8) {
    damaged("addresses of " + std::to_string(address_bytes) + " bytes, expected 4 or 8");
  }
  // Two addresses come before it: the base and what a new file leaves undefined.
  const std::size_t addresses_at = version == 0 ? 24 : version == 1 ? 28 : 12;
  const std::uint64_t end = number_at(bytes, addresses_at + 2 * address_bytes, address_bytes);
  if (end > bytes.size()) {
    damaged("cut short or damaged: found " + std::to_string(bytes.size()) + " bytes, it says " + std::to_string(end));
  }
  return end;
}

Hdf5Bytes check_hdf5_bytes(std::string_view bytes, const std::string& source) {
  const std::size_t before = bytes.size() - std::min(bytes.size(), kChecksumBytes);
  const std::string_view last = bytes.substr(before);
  if (last.substr(0, kMark.size()) == kMark) {
    if (number_at(last, kCrcAt, 4) != crc32c(bytes.substr(0, before + kCrcAt))) {
      fail(source, "damaged: another checksum than the file's own");
    }
    if (number_at(last, kVersionAt, 4) != kVersion) {
      throw Error(ErrorKind::kData, source + ": its checksum is of a newer version than this program knows",
                  "update AutoMap, or write the file again with this version");
    }
    if (number_at(last, kLengthAt, 8) != before) fail(source, "damaged: its checksum is of a file of another length");
    return {bytes.substr(0, before), true, 0};
  }
  const std::uint64_t end = hdf5_data_end(bytes, source);
  const std::string_view behind = bytes.substr(end, kMark.size());
  if (!behind.empty() && kMark.substr(0, behind.size()) == behind) {
    fail(source, "damaged: its checksum is cut short, or other bytes follow it");
  }
  return {bytes, false, bytes.size() - end};
}

void add_hdf5_checksum(std::string* bytes) {
  const std::uint64_t length = bytes->size();
  *bytes += kMark;
  append_number(bytes, length, 8);
  append_number(bytes, kVersion, 4);
  append_number(bytes, crc32c(*bytes), 4);
}

}  // namespace automap::io
