#include "common/io/hdf5.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/error.h"

namespace automap::io {
namespace {

void silence() {
  // Per-thread state of the library; cheap enough to repeat.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

[[noreturn]] void fail_data(const std::string& source, const std::string& what) {
  throw Error(ErrorKind::kData, source + ": " + what);
}

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

Hdf5Handle utf8_type() {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

std::string fixed_string(const char* data, std::size_t size) {
  return std::string(data, strnlen(data, size));
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

std::string hdf5_reason() {
  std::string reason;
  const auto visit = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit, &reason);
  return reason.empty() ? "" : " (" + reason + ")";
}

std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

Hdf5Handle open_hdf5_file(const std::string& path) {
  silence();
  if (::access(path.c_str(), R_OK) != 0) {
    throw Error(ErrorKind::kIo, "cannot read " + path + ": " + std::strerror(errno));
  }
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (!access.valid() || H5Pset_file_locking(access.get(), false, true) < 0) {
    throw Error(ErrorKind::kInternal, path + ": HDF5 refuses to go without file locks" + hdf5_reason());
  }
  Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file.valid()) {
    fail_data(path, "not a whole HDF5 file: truncated or damaged" + hdf5_reason());
  }
  return file;
}

bool is_hdf5(std::string_view bytes) {
  return bytes.substr(0, 8) == std::string_view("\x89HDF\r\n\x1a\n", 8);
}

Hdf5Reader::Hdf5Reader(std::string_view bytes, std::string source) : source_(std::move(source)) {
  silence();
  Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  constexpr std::size_t kIncrement = 1 << 16;
  // The library copies the image; it never touches the disk.
  if (!access.valid() || H5Pset_fapl_core(access.get(), kIncrement, 0) < 0 ||
      H5Pset_file_image(access.get(), const_cast<char*>(bytes.data()), bytes.size()) < 0) {
    throw Error(ErrorKind::kInternal, source_ + ": HDF5 refuses a file image" + hdf5_reason());
  }
  // The library wants a name that no file has, and takes equal names for one file.
  static int count = 0;
  const std::string name = "/dev/null/image" + std::to_string(++count);
  file_ = Hdf5Handle(H5Fopen(name.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file_.valid()) {
    fail_data(source_, "not a whole HDF5 file: truncated or damaged" + hdf5_reason());
  }
}

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

std::vector<double> Hdf5Reader::doubles(const std::string& name, std::uint64_t max_length) const {
  silence();
  const Hdf5Handle dataset = open_dataset(name);
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  const H5T_class_t type_class = type.valid() ? H5Tget_class(type.get()) : H5T_NO_CLASS;
  if (type_class != H5T_FLOAT && type_class != H5T_INTEGER) {
    fail_data(source_, "dataset /" + name + ": found " + class_name(type_class) + ", expected numbers");
  }
  std::vector<double> values(checked_length(dataset, name, max_length));
  if (!values.empty() && H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    fail_data(source_, "dataset /" + name + " cannot be read" + hdf5_reason());
  }
  return values;
}

std::vector<std::string> Hdf5Reader::strings(const std::string& name, std::uint64_t max_length) const {
  silence();
  const Hdf5Handle dataset = open_dataset(name);
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  const H5T_class_t type_class = type.valid() ? H5Tget_class(type.get()) : H5T_NO_CLASS;
  if (type_class != H5T_STRING) {
    fail_data(source_, "dataset /" + name + ": found " + class_name(type_class) + ", expected strings");
  }
  const std::uint64_t length = checked_length(dataset, name, max_length);
  std::vector<std::string> values;
  if (length == 0) return values;
  values.reserve(length);
  const Hdf5Handle memory_type = memory_string_type(type);
  if (H5Tis_variable_str(type.get()) > 0) {
    const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
    std::vector<char*> pointers(length, nullptr);
    const bool ok = H5Dread(dataset.get(), memory_type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) >= 0;
    if (ok) {
      for (const char* pointer : pointers) values.emplace_back(pointer == nullptr ? "" : pointer);
    }
    const std::string why = ok ? "" : hdf5_reason();
    H5Dvlen_reclaim(memory_type.get(), space.get(), H5P_DEFAULT, pointers.data());
    if (!ok) fail_data(source_, "dataset /" + name + " cannot be read" + why);
    return values;
  }
  const std::size_t size = H5Tget_size(type.get());
  constexpr std::size_t kMaxFixedSize = 1 << 16;
  if (size == 0 || size > kMaxFixedSize || size * length > (std::size_t{1} << 32)) {
    fail_data(source_, "dataset /" + name + ": found strings of " + std::to_string(size) + " bytes, expected at most " +
                           std::to_string(kMaxFixedSize));
  }
  std::vector<char> block(size * length);
  if (H5Dread(dataset.get(), memory_type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, block.data()) < 0) {
    fail_data(source_, "dataset /" + name + " cannot be read" + hdf5_reason());
  }
  for (std::uint64_t i = 0; i < length; ++i) values.push_back(fixed_string(block.data() + i * size, size));
  return values;
}

std::optional<std::string> Hdf5Reader::string_attribute(const std::string& name) const {
  silence();
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
    std::string value = pointer == nullptr ? "" : pointer;
    H5Dvlen_reclaim(memory_type.get(), space.get(), H5P_DEFAULT, &pointer);
    return value;
  }
  const std::size_t size = H5Tget_size(type.get());  // attributes are at most 64 KiB in a file
  std::vector<char> block(size);
  if (H5Aread(attribute.get(), memory_type.get(), block.data()) < 0) {
    fail_data(source_, "attribute " + name + " cannot be read" + hdf5_reason());
  }
  return fixed_string(block.data(), size);
}

std::optional<double> Hdf5Reader::number_attribute(const std::string& name) const {
  silence();
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

Hdf5Writer::Hdf5Writer(const std::string& path, std::string shown_path) : shown_path_(std::move(shown_path)) {
  silence();
  file_ = Hdf5Handle(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  require(file_.valid(), "the file");
}

void Hdf5Writer::require(bool ok, const std::string& what) const {
  if (!ok) {
    throw Error(ErrorKind::kIo, "cannot write " + shown_path_ + ": " + what + hdf5_reason(),
                "is the disk full, or the folder not writable?");
  }
}

void Hdf5Writer::write_doubles(const std::string& name, const std::vector<double>& values) {
  const hsize_t length = values.size();
  const Hdf5Handle space(H5Screate_simple(1, &length, nullptr), H5Sclose);
  const Hdf5Handle dataset(
      H5Dcreate2(file_.get(), name.c_str(), H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  require(dataset.valid(), "dataset /" + name);
  require(
      values.empty() || H5Dwrite(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0,
      "dataset /" + name);
}

void Hdf5Writer::write_strings(const std::string& name, const std::vector<std::string>& values) {
  const hsize_t length = values.size();
  const Hdf5Handle space(H5Screate_simple(1, &length, nullptr), H5Sclose);
  const Hdf5Handle type = utf8_type();
  const Hdf5Handle dataset(
      H5Dcreate2(file_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
  require(dataset.valid(), "dataset /" + name);
  std::vector<const char*> pointers;
  pointers.reserve(values.size());
  for (const std::string& value : values) pointers.push_back(value.c_str());
  require(values.empty() || H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) >= 0,
          "dataset /" + name);
}

void Hdf5Writer::write_attribute(const std::string& name, const std::string& value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle type = utf8_type();
  const Hdf5Handle attribute(H5Acreate2(file_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose);
  const char* pointer = value.c_str();
  require(attribute.valid() && H5Awrite(attribute.get(), type.get(), &pointer) >= 0, "attribute " + name);
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

void Hdf5Writer::close() {
  require(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) >= 0 && file_.reset(), "the file");
}

}  // namespace automap::io
