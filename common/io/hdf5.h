// The HDF5 library behind C++: handles that close themselves, failures as Error with the file and the object named.
// The library's own error printing is switched off. Not thread-safe (neither is Debian's serial HDF5).
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automap::io {

// Owns one HDF5 identifier.
class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Handle() { reset(); }
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(other.id_), close_(other.close_) { other.id_ = -1; }
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;

  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  // Closes now; false when closing failed (a file whose last bytes could not be written).
  bool reset();

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// Whoever may call the library from several threads holds this meanwhile: not every build of it is thread-safe.
std::mutex& hdf5_mutex();

// Opens a file on disk to read, without the library's file locks (they fail on read-only and network file systems).
// Throws Error(kIo) or Error(kData) naming `path`: cannot be opened; truncated or damaged.
Hdf5Handle open_hdf5_file(const std::string& path);

// What the library itself says went wrong last, " (like this)"; empty when it says nothing.
std::string hdf5_reason();

// True for bytes that start like an HDF5 file.
bool is_hdf5(std::string_view bytes);

// Reads one HDF5 file. Datasets are one-dimensional; `name` has no leading slash. All failures are Error(kData) naming
// `source` and the dataset or attribute: missing, another rank, another type, longer than the limit, damaged.
class Hdf5Reader {
 public:
  // `bytes` is the whole file (it may come from a pipe or a gzip stream) and must outlive the reader.
  Hdf5Reader(std::string_view bytes, std::string source);

  bool has_dataset(const std::string& name) const;
  // f64[n]; any integer or floating-point type in the file is converted.
  std::vector<double> doubles(const std::string& name, std::uint64_t max_length) const;
  // Fixed or variable-length strings, UTF-8.
  std::vector<std::string> strings(const std::string& name, std::uint64_t max_length) const;

  // Attributes of the root group; nothing when absent.
  std::optional<std::string> string_attribute(const std::string& name) const;
  std::optional<double> number_attribute(const std::string& name) const;

  const std::string& source() const { return source_; }

 private:
  Hdf5Handle open_dataset(const std::string& name) const;
  std::uint64_t checked_length(const Hdf5Handle& dataset, const std::string& name, std::uint64_t max_length) const;

  std::string source_;
  Hdf5Handle file_;
};

// Writes one HDF5 file at `path` (truncated). Failures are Error(kIo) naming `shown_path`, what users call the file.
// The file is complete once close() has returned.
class Hdf5Writer {
 public:
  Hdf5Writer(const std::string& path, std::string shown_path);

  void write_doubles(const std::string& name, const std::vector<double>& values);       // little-endian f64[n]
  void write_strings(const std::string& name, const std::vector<std::string>& values);  // variable-length UTF-8
  void write_attribute(const std::string& name, const std::string& value);
  void write_attribute(const std::string& name, double value);
  void write_attribute(const std::string& name, std::int64_t value);
  void close();

 private:
  void require(bool ok, const std::string& what) const;

  std::string shown_path_;
  Hdf5Handle file_;
};

}  // namespace automap::io
