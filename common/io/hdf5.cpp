#include "common/io/hdf5.h"

#include <hdf5_hl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "common/base/error.h"
#include "common/io/file_errors.h"

namespace automap::io {
namespace {

// Without this much to spare the library is not started: it does not check all of its own allocations.
constexpr std::size_t kLibraryBytes = std::size_t{16} << 20;
// Limits of reading, well above what any honest file needs: a second for 16 MB, and six times its size in memory.
constexpr unsigned kReadSeconds = 2;
constexpr std::uint64_t kBytesPerSecond = std::uint64_t{16} << 20;
constexpr std::uint64_t kReadMemory = std::uint64_t{512} << 20, kReadMemoryFactor = 6;
// The longest string: in an attribute it lies in an object header, which ends at 64 KiB.
constexpr std::size_t kMostStringBytes = 60000;

const char* class_name(H5T_class_t type) {
  switch (type) {
    case H5T_INTEGER: return "integers";
    case H5T_FLOAT: return "floating-point numbers";
    case H5T_STRING: return "strings";
    case H5T_COMPOUND: return "compounds";
    case H5T_REFERENCE: return "references";
    case H5T_ENUM: return "enumerations";
    case H5T_VLEN: return "variable-length lists";
    case H5T_ARRAY: return "arrays";
    default: return "values of another type";
  }
}

// A string type to read `file_type` into: same length and character set, so that the library has nothing to convert.
Hdf5Handle memory_string_type(const Hdf5Handle& file_type) {
  return Hdf5Handle(H5Tcopy(file_type.get()), H5Tclose);
}

std::string_view fixed_string(const char* data, std::size_t size) {
  return {data, strnlen(data, size)};
}

// Writes a string as Hdf5Reader::strings does.
void put_short_string(ByteWriter* out, std::string_view text) {
  out->put<std::uint32_t>(static_cast<std::uint32_t>(text.size()));
  out->bytes().append(text);
}

// The memory of a file being written is `image`. (H5Fget_file_image would do, but makes files that have a wrong
// checksum in HDF5 1.10.)
bool keep_in(std::string* image, hid_t access) {
  H5FD_file_image_callbacks_t calls = {};
  calls.image_malloc = [](std::size_t size, H5FD_file_image_op_t, void*) { return std::malloc(size); };
  calls.image_memcpy = [](void* to, const void* from, std::size_t size, H5FD_file_image_op_t, void*) {
    return std::memcpy(to, from, size);
  };
  calls.image_realloc = [](void*, std::size_t size, H5FD_file_image_op_t, void* data) -> void* {
    auto* kept = static_cast<std::string*>(data);
    try {
      kept->resize(size);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    return kept->data();
  };
  calls.image_free = [](void*, H5FD_file_image_op_t, void*) -> herr_t { return 0; };
  calls.udata_copy = [](void* data) { return data; };
  calls.udata_free = [](void*) -> herr_t { return 0; };
  calls.udata = image;
  return H5Pset_file_image_callbacks(access, &calls) >= 0;
}

// Set in the child once the library has failed for want of memory; what it says of that later, and what is missing
// because of it, looks like damage.
bool out_of_memory = false;

constexpr const char* kMemoryHint = "where memory ran out: close other programs, or raise the limit (ulimit -v)";

// The library calls it, instead of printing, when one of its functions fails.
herr_t note_failure(hid_t stack, void*) {
  const auto visit = [](unsigned, const H5E_error2_t* error, void*) -> herr_t {
    if (error->maj_num == H5E_RESOURCE || error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC) {
      out_of_memory = true;
    }
    return 0;
  };
  return H5Ewalk2(stack, H5E_WALK_UPWARD, visit, nullptr);
}

}  // namespace

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
  }
  return *this;
}

bool Hdf5Handle::reset() {
  const hid_t id = std::exchange(id_, -1);
  return id < 0 || close_(id) >= 0;
}

void start_hdf5() {
  void* const probe = ::mmap(nullptr, kLibraryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) throw std::bad_alloc();
  ::munmap(probe, kLibraryBytes);
  if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, note_failure, nullptr) < 0) throw std::bad_alloc();
}

void throw_if_out_of_memory() {
  if (out_of_memory) throw std::bad_alloc();
}

void throw_unexplained_write(const std::string& failed) {
  throw Error(ErrorKind::kMemory, "cannot write " + failed + ": most likely memory ran out", kMemoryHint);
}

std::string in_hdf5_process(Hdf5Task task, const std::string& source, std::uint64_t bytes,
                            const std::function<std::string()>& work) {
  ChildLimits limits;
  if (task == Hdf5Task::kWrite) {
    limits.files = true;
  } else {
    limits.seconds = kReadSeconds + static_cast<unsigned>(bytes / kBytesPerSecond);
    limits.memory_bytes = kReadMemory + kReadMemoryFactor * bytes;
  }
  const auto with_library = [&](ChildInput&) {
    start_hdf5();
    try {
      return work();
    } catch (const Error&) {
      throw_if_out_of_memory();
      throw;
    }
  };
  ChildProcess child(with_library, limits);
  return hdf5_answer(task, source, child.finish());
}

std::string hdf5_answer(Hdf5Task task, const std::string& source, ChildResult result) {
  if (result.answer) return std::move(*result.answer);
  if (result.out_of_memory && !result.over_budget) throw std::bad_alloc();
  if (task == Hdf5Task::kReadUnknown) {
    throw Error(ErrorKind::kData, source + ": damaged: the HDF5 library cannot read it (" + result.failure + ")",
                "copy it again from where it is whole, or make it again");
  }
  const std::string failed = source + ": the HDF5 library failed (" + result.failure + ")";
  if (task == Hdf5Task::kWrite) throw_unexplained_write(failed);
  throw Error(ErrorKind::kIo, "cannot read " + failed + ", although its checksum is right: most likely memory ran out",
              kMemoryHint);
}

namespace internal {
std::string readable_hdf5_reason(std::string_view description) {
  // "file write failed: time = ..., filename = 'x', errno = 28, error message = 'No space left on device', buf = 0x..."
  constexpr std::string_view kMessage = "error message = '";
  const std::size_t message = description.find(kMessage);
  if (message != std::string_view::npos) {
    const std::string_view text = description.substr(message + kMessage.size());
    return std::string(description.substr(0, description.find(':'))) + ": " +
           std::string(text.substr(0, text.find('\'')));
  }
  std::string kept;
  while (!description.empty()) {
    const std::string_view clause = description.substr(0, description.find(", "));
    description.remove_prefix(std::min(description.size(), clause.size() + 2));
    if (clause.find("0x") == std::string_view::npos) kept += (kept.empty() ? "" : ", ") + std::string(clause);
  }
  return kept;
}
}  // namespace internal

std::string hdf5_reason() {
  std::string reason;
  const auto visit = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit, &reason);
  reason = internal::readable_hdf5_reason(reason);
  return reason.empty() ? "" : " (" + reason + ")";
}

Hdf5Handle open_hdf5_bytes(std::string_view bytes, const std::string& source) {
  // Read-only, so that the library does not write where it may not.
  Hdf5Handle file(H5LTopen_file_image(const_cast<char*>(bytes.data()), bytes.size(),
                                      H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE),
                  H5Fclose);
  if (!file.valid()) fail_data(source, "not a whole HDF5 file: truncated or damaged" + hdf5_reason());
  return file;
}

Hdf5Reader::Hdf5Reader(std::string_view bytes, std::string source)
    : source_(std::move(source)), file_(open_hdf5_bytes(bytes, source_)) {}

bool Hdf5Reader::has_dataset(const std::string& name) const {
  return H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) > 0;
}

Hdf5Handle Hdf5Reader::open_dataset(const std::string& name) const {
  if (!has_dataset(name)) fail_data(source_, "dataset /" + name + " is missing");
  Hdf5Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) fail_data(source_, "/" + name + " cannot be opened as a dataset" + hdf5_reason());
  return dataset;
}

std::uint64_t Hdf5Reader::checked_length(const Hdf5Handle& dataset, const std::string& name,
                                         std::uint64_t max_length) const {
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = space.valid() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank != 1) {
    fail_data(source_, "dataset /" + name + ": found " +
                           (rank < 0 ? "no dataspace" : std::to_string(rank) + " dimensions") +
                           ", expected 1 dimension");
  }
  hsize_t length = 0;
  if (H5Sget_simple_extent_dims(space.get(), &length, nullptr) != 1) {
    fail_data(source_, "dataset /" + name + ": no length" + hdf5_reason());
  }
  if (length > max_length) {
    fail_data(source_, "dataset /" + name + ": found " + std::to_string(length) + " values, expected at most " +
                           std::to_string(max_length));
  }
  return length;
}

Hdf5Handle Hdf5Reader::open_numbers(const std::string& name) const {
  Hdf5Handle dataset = open_dataset(name);
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  const H5T_class_t type_class = type.valid() ? H5Tget_class(type.get()) : H5T_NO_CLASS;
  if (type_class != H5T_FLOAT && type_class != H5T_INTEGER) {
    fail_data(source_, "dataset /" + name + ": found " + class_name(type_class) + ", expected numbers");
  }
  return dataset;
}

void Hdf5Reader::doubles(const std::string& name, std::uint64_t max_length, ByteWriter* out) const {
  const Hdf5Handle dataset = open_numbers(name);
  const std::uint64_t length = checked_length(dataset, name, max_length);
  out->put<std::uint64_t>(length);
  if (length == 0) return;
  char* values = out->put_space(length * sizeof(double));
  if (H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
    fail_data(source_, "dataset /" + name + " cannot be read" + hdf5_reason());
  }
}

void Hdf5Reader::table(const std::string& name, std::uint64_t max_values, ByteWriter* out) const {
  const Hdf5Handle dataset = open_numbers(name);
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = space.valid() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank != 2) {
    fail_data(source_, "dataset /" + name + ": found " +
                           (rank < 0 ? "no dataspace" : std::to_string(rank) + " dimensions") +
                           ", expected 2 dimensions");
  }
  std::array<hsize_t, 2> extents{};
  if (H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) != 2) {
    fail_data(source_, "dataset /" + name + ": no extents" + hdf5_reason());
  }
  if (extents[0] > max_values || extents[1] > max_values || (extents[1] > 0 && extents[0] > max_values / extents[1])) {
    fail_data(source_, "dataset /" + name + ": found " + std::to_string(extents[0]) + " x " +
                           std::to_string(extents[1]) + " values, expected at most " + std::to_string(max_values));
  }
  out->put<std::uint64_t>(extents[0]);
  out->put<std::uint64_t>(extents[1]);
  const std::uint64_t count = extents[0] * extents[1];
  out->put<std::uint64_t>(count);
  if (count == 0) return;
  char* values = out->put_space(count * sizeof(float));
  if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
    fail_data(source_, "dataset /" + name + " cannot be read" + hdf5_reason());
  }
}

Hdf5Table read_table(ByteReader* in) {
  Hdf5Table table;
  table.rows = in->get<std::uint64_t>();
  table.columns = in->get<std::uint64_t>();
  table.values = in->get_vector<float>();
  return table;
}

bool Hdf5Reader::has_strings(const std::string& name) const {
  return has_dataset(name) || has_dataset(name + "_text");
}

void Hdf5Reader::joined_strings(const std::string& name, std::uint64_t max_length, ByteWriter* out) const {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
  const Hdf5Handle texts = open_numbers(name + "_text"), ends = open_numbers(name + "_end");
  const std::uint64_t bytes = checked_length(texts, name + "_text", kMostBytes);
  const std::uint64_t length = checked_length(ends, name + "_end", max_length);
  std::string text(bytes, '\0');
  std::vector<double> end(length, 0.0);
  if ((bytes > 0 && H5Dread(texts.get(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) ||
      (length > 0 && H5Dread(ends.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, end.data()) < 0)) {
    fail_data(source_, "dataset /" + name + "_text cannot be read" + hdf5_reason());
  }
  out->put<std::uint64_t>(length);
  double begin = 0;
  for (const double stop : end) {
    if (!(stop >= begin && stop <= static_cast<double>(bytes)) || stop != std::floor(stop)) {
      fail_data(source_, "dataset /" + name + "_end: found " + std::to_string(stop) + ", expected ends from " +
                             std::to_string(begin) + " to " + std::to_string(bytes) + ", ascending");
    }
    const auto from = static_cast<std::size_t>(begin);
    put_short_string(out, std::string_view(text).substr(from, static_cast<std::size_t>(stop) - from));
    begin = stop;
  }
}

void Hdf5Reader::strings(const std::string& name, std::uint64_t max_length, ByteWriter* out) const {
  if (!has_dataset(name) && has_dataset(name + "_text")) return joined_strings(name, max_length, out);
  const Hdf5Handle dataset = open_dataset(name);
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  const H5T_class_t type_class = type.valid() ? H5Tget_class(type.get()) : H5T_NO_CLASS;
  if (type_class != H5T_STRING) {
    fail_data(source_, "dataset /" + name + ": found " + class_name(type_class) + ", expected strings");
  }
  const std::uint64_t length = checked_length(dataset, name, max_length);
  out->put<std::uint64_t>(length);
  if (length == 0) return;
  const Hdf5Handle memory_type = memory_string_type(type);
  const auto read = [&](void* values) {
    if (H5Dread(dataset.get(), memory_type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
      fail_data(source_, "dataset /" + name + " cannot be read" + hdf5_reason());
    }
  };
  if (H5Tis_variable_str(type.get()) > 0) {
    // The process ends before anybody would want the memory back.
    std::vector<char*> pointers(length, nullptr);
    read(pointers.data());
    for (const char* pointer : pointers) put_short_string(out, pointer == nullptr ? "" : pointer);
    return;
  }
  const std::size_t size = H5Tget_size(type.get());
  constexpr std::size_t kMaxFixedSize = 1 << 16;
  if (size == 0 || size > kMaxFixedSize || size * length > (std::size_t{1} << 32)) {
    fail_data(source_, "dataset /" + name + ": found strings of " + std::to_string(size) + " bytes, expected at most " +
                           std::to_string(kMaxFixedSize));
  }
  std::vector<char> block(size * length);
  read(block.data());
  for (std::uint64_t i = 0; i < length; ++i) put_short_string(out, fixed_string(block.data() + i * size, size));
}

std::vector<std::string> read_strings(ByteReader* in) {
  const auto length = in->get<std::uint64_t>();
  std::vector<std::string> values;
  if (length > in->left() / sizeof(std::uint32_t)) in->fail("a length beyond its end");
  values.reserve(length);
  for (std::uint64_t i = 0; i < length; ++i) values.emplace_back(in->get_bytes(in->get<std::uint32_t>()));
  return values;
}

std::optional<std::string> Hdf5Reader::string_attribute(const std::string& name) const {
  if (H5Aexists(file_.get(), name.c_str()) <= 0) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(file_.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  const Hdf5Handle type(attribute.valid() ? H5Aget_type(attribute.get()) : -1, H5Tclose);
  const Hdf5Handle space(attribute.valid() ? H5Aget_space(attribute.get()) : -1, H5Sclose);
  if (!type.valid() || !space.valid() || H5Tget_class(type.get()) != H5T_STRING ||
      H5Sget_simple_extent_npoints(space.get()) != 1) {
    fail_data(source_, "attribute " + name + ": expected one string");
  }
  const Hdf5Handle memory_type = memory_string_type(type);
  if (H5Tis_variable_str(type.get()) > 0) {
    char* pointer = nullptr;
    if (H5Aread(attribute.get(), memory_type.get(), &pointer) < 0) {
      fail_data(source_, "attribute " + name + " cannot be read" + hdf5_reason());
    }
    return pointer == nullptr ? "" : pointer;
  }
  const std::size_t size = H5Tget_size(type.get());  // attributes are at most 64 KiB in a file
  std::vector<char> block(size);
  if (H5Aread(attribute.get(), memory_type.get(), block.data()) < 0) {
    fail_data(source_, "attribute " + name + " cannot be read" + hdf5_reason());
  }
  return std::string(fixed_string(block.data(), size));
}

std::optional<double> Hdf5Reader::number_attribute(const std::string& name) const {
  if (H5Aexists(file_.get(), name.c_str()) <= 0) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(file_.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  const Hdf5Handle type(attribute.valid() ? H5Aget_type(attribute.get()) : -1, H5Tclose);
  const Hdf5Handle space(attribute.valid() ? H5Aget_space(attribute.get()) : -1, H5Sclose);
  const H5T_class_t type_class = type.valid() ? H5Tget_class(type.get()) : H5T_NO_CLASS;
  double value = 0;
  if ((type_class != H5T_FLOAT && type_class != H5T_INTEGER) || !space.valid() ||
      H5Sget_simple_extent_npoints(space.get()) != 1 || H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    fail_data(source_, "attribute " + name + ": expected one number");
  }
  return value;
}

Hdf5Writer::Hdf5Writer(std::string shown_path) : shown_path_(std::move(shown_path)) {
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // In memory: the library wants a name that no file has. Links and attributes stay in object headers, which the newer
  // format checksums.
  constexpr std::size_t kIncrement = std::size_t{1} << 20;
  constexpr unsigned kMaxCompact = 64, kMinDense = 32;
  require(H5Pset_link_phase_change(creation.get(), kMaxCompact, kMinDense) >= 0 &&
              H5Pset_attr_phase_change(creation.get(), kMaxCompact, kMinDense) >= 0 &&
              H5Pset_obj_track_times(creation.get(), false) >= 0 &&
              H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V110) >= 0 &&
              H5Pset_fapl_core(access.get(), kIncrement, false) >= 0 && keep_in(&image_, access.get()),
          "the file");
  file_ = Hdf5Handle(H5Fcreate("/dev/null/memory", H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  require(file_.valid(), "the file");
}

void Hdf5Writer::require(bool ok, const std::string& what) const {
  if (!ok) throw Error(ErrorKind::kIo, "cannot write " + shown_path_ + ": " + what + hdf5_reason());
}

Hdf5Handle Hdf5Writer::text_type(const std::string& what, std::size_t longest) const {
  if (longest > kMostStringBytes) {
    throw Error(ErrorKind::kData,
                "cannot write " + shown_path_ + ": " + what + ": found a string of " + std::to_string(longest) +
                    " bytes, HDF5 has room for " + std::to_string(kMostStringBytes),
                "write the profile as .csv, which has no such limit");
  }
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  require(H5Tset_size(type.get(), std::max<std::size_t>(longest, 1)) >= 0 &&
              H5Tset_strpad(type.get(), H5T_STR_NULLPAD) >= 0 && H5Tset_cset(type.get(), H5T_CSET_UTF8) >= 0,
          what);
  return type;
}

void Hdf5Writer::write_dataset(const std::string& name, hid_t file_type, const std::vector<std::uint64_t>& extents,
                               hid_t memory_type, const void* values) {
  const std::vector<hsize_t> dims(extents.begin(), extents.end());
  const Hdf5Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  const Hdf5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  require(H5Pset_obj_track_times(properties.get(), false) >= 0, "dataset /" + name);
  const Hdf5Handle dataset(
      H5Dcreate2(file_.get(), name.c_str(), file_type, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
      H5Dclose);
  const bool empty = std::find(extents.begin(), extents.end(), std::uint64_t{0}) != extents.end();
  require(
      dataset.valid() && (empty || H5Dwrite(dataset.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0),
      "dataset /" + name);
}

void Hdf5Writer::write_group(const std::string& name) {
  constexpr unsigned kMaxCompact = 64, kMinDense = 32;
  const Hdf5Handle properties(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  require(H5Pset_link_phase_change(properties.get(), kMaxCompact, kMinDense) >= 0 &&
              H5Pset_obj_track_times(properties.get(), false) >= 0,
          "group /" + name);
  const Hdf5Handle group(H5Gcreate2(file_.get(), name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), H5Gclose);
  require(group.valid(), "group /" + name);
}

void Hdf5Writer::write_doubles(const std::string& name, const std::vector<double>& values) {
  write_dataset(name, H5T_IEEE_F64LE, {values.size()}, H5T_NATIVE_DOUBLE, values.data());
}

void Hdf5Writer::write_table(const std::string& name, std::uint64_t columns, const std::vector<float>& values) {
  write_dataset(name, H5T_IEEE_F32LE, {columns == 0 ? 0 : values.size() / columns, columns}, H5T_NATIVE_FLOAT,
                values.data());
}

void Hdf5Writer::write_strings(const std::string& name, const std::vector<std::string>& values) {
  std::size_t longest = 1, text = 0;
  for (const std::string& value : values) {
    longest = std::max(longest, value.size());
    text += value.size();
  }
  constexpr std::size_t kLittle = 1 << 16;
  if (longest > kMostStringBytes || longest * values.size() > 2 * text + kLittle) {
    std::string all;
    all.reserve(text);
    std::vector<double> end;
    end.reserve(values.size());
    for (const std::string& value : values) end.push_back(static_cast<double>((all += value).size()));
    write_dataset(name + "_text", H5T_STD_U8LE, {all.size()}, H5T_NATIVE_UINT8, all.data());
    write_doubles(name + "_end", end);
    return;
  }
  const Hdf5Handle type = text_type("dataset /" + name, longest);
  std::string block(longest * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) values[i].copy(block.data() + i * longest, longest);
  write_dataset(name, type.get(), {values.size()}, type.get(), block.data());
}

void Hdf5Writer::write_attribute(const std::string& name, const std::string& value) {
  const Hdf5Handle type = text_type("attribute " + name, value.size());
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle attribute(H5Acreate2(file_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose);
  // An empty string is stored as one NUL, which c_str() ends with.
  require(attribute.valid() && H5Awrite(attribute.get(), type.get(), value.c_str()) >= 0, "attribute " + name);
}

void Hdf5Writer::write_attribute(const std::string& name, double value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle attribute(
      H5Acreate2(file_.get(), name.c_str(), H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  require(attribute.valid() && H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, &value) >= 0, "attribute " + name);
}

void Hdf5Writer::write_attribute(const std::string& name, std::int64_t value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle attribute(
      H5Acreate2(file_.get(), name.c_str(), H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  require(attribute.valid() && H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value) >= 0, "attribute " + name);
}

std::string Hdf5Writer::finish() {
  require(file_.reset(), "the file");
  image_.resize(hdf5_data_end(image_, shown_path_));
  return std::move(image_);
}

}  // namespace automap::io
