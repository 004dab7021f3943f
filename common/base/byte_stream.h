// Plain bytes in and out, for checkpoints and between processes: little-endian values one after the other, vectors with
// their length in front.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/base/error.h"

namespace automap {

class ByteWriter {
 public:
  template <typename T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void put_vector(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put<std::uint64_t>(values.size());
    if (!values.empty()) bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void put_string(std::string_view text) {
    put<std::uint64_t>(text.size());
    bytes_.append(text);
  }
  // Room for `count` bytes, for the caller to fill before the next call.
  char* put_space(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return bytes_.data() + bytes_.size() - count;
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

// Every get throws Error(kData) naming `source` when the bytes end too early; never allocates more than there is.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, std::string source) : bytes_(bytes), source_(std::move(source)) {}

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  template <typename T>
  std::vector<T> get_vector() {
    const auto count = get<std::uint64_t>();
    if (count > (bytes_.size() - at_) / sizeof(T)) fail("a length beyond its end");
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(values.data(), take(values.size() * sizeof(T)), values.size() * sizeof(T));
    return values;
  }
  std::string get_string() { return std::string(get_bytes(get<std::uint64_t>())); }
  std::string_view get_bytes(std::uint64_t count) {
    if (count > left()) fail("a length beyond its end");
    return {take(static_cast<std::size_t>(count)), static_cast<std::size_t>(count)};
  }
  std::size_t left() const { return bytes_.size() - at_; }
  bool at_end() const { return at_ == bytes_.size(); }
  const std::string& source() const { return source_; }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, source_ + ": damaged: " + what + " at byte " + std::to_string(at_),
                "use an earlier copy of it, or make it again");
  }

 private:
  const char* take(std::size_t count) {
    if (count > bytes_.size() - at_) fail("it ends too early");
    const char* at = bytes_.data() + at_;
    at_ += count;
    return at;
  }

  std::string_view bytes_;
  std::string source_;
  std::size_t at_ = 0;
};

}  // namespace automap
