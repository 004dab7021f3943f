// Wraps the HDF5 library for C++: it runs in a process of its own, handles close themselves, and failures are Errors
// with the file and the object named.
//
// The library crashes and hangs on damaged files and where memory is short, and recovers badly from failed writes. So
// it is called in a child of this process only, from in_hdf5_process(), and files to write are made in memory.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/byte_stream.h"
#include "common/base/child_process.h"
#include "common/io/hdf5_checksum.h"

namespace automap::io {

// The purpose of calling the library, which decides the meaning of a crash.
enum class Hdf5Task {
  kReadUnknown,   // bytes from anywhere
  kReadVerified,  // bytes that a checksum says are as they were written
  kWrite,
};

// The answer of `work`, which runs in a child where it may call the library. `bytes` is the number of bytes that it
// reads; its limits of time and memory depend on it. Throws what `work` throws; for its crash, or when it does not end,
// Error(kData) or Error(kIo) naming `source`; std::bad_alloc. Any thread.
std::string in_hdf5_process(Hdf5Task task, const std::string& source, std::uint64_t bytes,
                            const std::function<std::string()>& work);
// For children started otherwise: the first call of `work`, silences the library; throws std::bad_alloc.
void start_hdf5();
// To be called when `work` fails: throws std::bad_alloc when the library has failed for want of memory since it was
// started.
void throw_if_out_of_memory();
// Throws for a write that failed without a known reason: most likely memory ran out. `failed`: "x.h5: ...".
[[noreturn]] void throw_unexplained_write(const std::string& failed);
// Turns the child's result into an answer or an Error, as in_hdf5_process() does.
std::string hdf5_answer(Hdf5Task task, const std::string& source, ChildResult result);

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

// Opens a file in memory, which must outlive the handle and is not copied. Throws Error(kData) naming `source`.
Hdf5Handle open_hdf5_bytes(std::string_view bytes, const std::string& source);

// The library's own last error message, " (like this)"; empty when it has none. Without addresses.
std::string hdf5_reason();
namespace internal {
std::string readable_hdf5_reason(std::string_view description);  // for the tests
}

// Reads one HDF5 file. Datasets are one-dimensional unless said; `name` has no leading slash. All failures are
// Error(kData) naming `source` and the dataset or attribute: missing, another rank, another type, longer than the
// limit, damaged.
class Hdf5Reader {
 public:
  // `bytes` is the whole file (it may come from a pipe or a gzip stream) and must outlive the reader.
  Hdf5Reader(std::string_view bytes, std::string source);

  bool has_dataset(const std::string& name) const;
  // f64[n] for ByteReader::get_vector<double>; any integer or floating-point type in the file is converted.
  void doubles(const std::string& name, std::uint64_t max_length, ByteWriter* out) const;
  // f32[rows, columns], for read_table(); any number type is converted. At most `max_values` in all.
  void table(const std::string& name, std::uint64_t max_values, ByteWriter* out) const;
  // Strings as write_strings() has them, or of variable length; UTF-8, for read_strings().
  bool has_strings(const std::string& name) const;
  void strings(const std::string& name, std::uint64_t max_length, ByteWriter* out) const;

  // Attributes of the root group; nothing when absent.
  std::optional<std::string> string_attribute(const std::string& name) const;
  std::optional<double> number_attribute(const std::string& name) const;

 private:
  Hdf5Handle open_dataset(const std::string& name) const;
  Hdf5Handle open_numbers(const std::string& name) const;
  void joined_strings(const std::string& name, std::uint64_t max_length, ByteWriter* out) const;
  std::uint64_t checked_length(const Hdf5Handle& dataset, const std::string& name, std::uint64_t max_length) const;

  std::string source_;
  Hdf5Handle file_;
};

// Reads the output of Hdf5Reader::strings.
std::vector<std::string> read_strings(ByteReader* in);

// The output of Hdf5Reader::table: rows of `columns` values.
struct Hdf5Table {
  std::uint64_t rows = 0, columns = 0;
  std::vector<float> values;
};
Hdf5Table read_table(ByteReader* in);

// Makes one HDF5 file in memory: the same calls make the same bytes. Nothing has a variable length, so there are no
// heaps, and all structure carries the library's own checksums. Failures are Error(kIo) naming `shown_path`, the users'
// name of the file; Error(kData) for a string too long.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(std::string shown_path);
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  void write_doubles(const std::string& name, const std::vector<double>& values);  // little-endian f64[n]
  // Little-endian f32[rows, columns], one row after the other.
  void write_table(const std::string& name, std::uint64_t columns, const std::vector<float>& values);
  // For names "group/name" to come.
  void write_group(const std::string& name);
  // UTF-8 of the longest one's length, padded with NUL. Where that would take much more room than the strings (some are
  // long, most are short): NAME_text u8[bytes], all strings without anything between, and NAME_end f64[n], where each
  // ends.
  void write_strings(const std::string& name, const std::vector<std::string>& values);
  void write_attribute(const std::string& name, const std::string& value);
  void write_attribute(const std::string& name, double value);
  void write_attribute(const std::string& name, std::int64_t value);
  // The file. No call may follow.
  std::string finish();

 private:
  void require(bool ok, const std::string& what) const;
  void write_dataset(const std::string& name, hid_t file_type, const std::vector<std::uint64_t>& extents,
                     hid_t memory_type, const void* values);
  Hdf5Handle text_type(const std::string& what, std::size_t longest) const;

  std::string shown_path_;
  std::string image_;  // of the file, once that is closed
  Hdf5Handle file_;
};

}  // namespace automap::io
