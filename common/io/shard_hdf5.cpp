#include "common/io/shard_hdf5.h"

#include <fcntl.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/io/file_errors.h"
#include "common/io/hdf5.h"

namespace automap::io {
namespace {

// Attributes in an object header end at 64 KiB.
constexpr std::size_t kMaxConfigAttribute = 48 << 10;

// --- between the processes ---

std::string encode(const std::vector<ShardPlaces>& all) {
  ByteWriter out;
  for (const ShardPlaces& places : all) {
    out.put<std::uint64_t>(places.caw);
    out.put_vector(places.columns);
  }
  return std::move(out.bytes());
}

std::vector<ShardPlaces> decode(std::string_view bytes, std::size_t count, const std::string& source) {
  ByteReader in(bytes, source);
  std::vector<ShardPlaces> all(count);
  for (ShardPlaces& places : all) {
    places.caw = in.get<std::uint64_t>();
    places.columns = in.get_vector<std::uint64_t>();
  }
  return all;
}

// --- writing ---

[[noreturn]] void throw_hdf5_write_error(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::kIo, "cannot write " + path + ": " + what,
              "is the disk full, or the folder gone? Finished shards are kept: run the same command again");
}

// `what`: of the file, where the library has failed.
[[noreturn]] void throw_hdf5_error(const std::string& path, const std::string& what) {
  const std::string reason = hdf5_reason();
  throw_if_out_of_memory();
  // An allocation failed so early in the library that there was no place for a reason yet.
  if (reason.empty()) throw_unexplained_write(path + ": " + what);
  throw_hdf5_write_error(path, what + reason);
}

Hdf5Handle text_type() {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

bool put_text(hid_t object, const char* name, const std::string& value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle type = text_type();
  const Hdf5Handle attribute(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const char* pointer = value.c_str();
  return attribute.valid() && H5Awrite(attribute.get(), type.get(), &pointer) >= 0;
}

bool put_texts(hid_t object, const char* name, const std::vector<std::string>& values) {
  const hsize_t count = values.size();
  const Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Hdf5Handle type = text_type();
  const Hdf5Handle attribute(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  std::vector<const char*> pointers;
  pointers.reserve(values.size());
  for (const std::string& value : values) pointers.push_back(value.c_str());
  return attribute.valid() && H5Awrite(attribute.get(), type.get(), pointers.data()) >= 0;
}

bool put_count(hid_t object, const char* name, std::uint64_t value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle attribute(H5Acreate2(object, name, H5T_STD_U64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  return attribute.valid() && H5Awrite(attribute.get(), H5T_NATIVE_UINT64, &value) >= 0;
}

bool put_floats(hid_t object, const char* name, const std::vector<float>& values) {
  const hsize_t count = values.size();
  const Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Hdf5Handle attribute(H5Acreate2(object, name, H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  return attribute.valid() && H5Awrite(attribute.get(), H5T_NATIVE_FLOAT, values.data()) >= 0;
}

hid_t file_type(ColumnType type) {
  switch (type) {
    case ColumnType::kF32: return H5T_IEEE_F32LE;
    case ColumnType::kU8: return H5T_STD_U8LE;
    case ColumnType::kU16: return H5T_STD_U16LE;
    case ColumnType::kU32: return H5T_STD_U32LE;
    case ColumnType::kI16: return H5T_STD_I16LE;
  }
  return -1;
}

struct Skeleton {
  Hdf5Handle file, caw;
  std::vector<Hdf5Handle> columns;
};

// All of a shard but its data, whose places are allocated. The bytes depend on the arguments only: no times are kept.
// The skeleton is never destroyed: closing a file that could not be written crashes the library, and the process ends
// anyway.
Skeleton& create_skeleton(const ShardPlan& plan) {
  const DatasetManifest& manifest = *plan.manifest;
  const auto require = [&](bool ok, const std::string& what) {
    if (!ok) throw_hdf5_error(plan.shown, what);
  };
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // All attributes stay in the object's header, whose checksum covers them.
  constexpr unsigned kMaxCompact = 64, kMinDense = 32;
  require(H5Pset_attr_phase_change(creation.get(), kMaxCompact, kMinDense) >= 0 &&
              H5Pset_obj_track_times(creation.get(), false) >= 0 &&
              H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V110) >= 0 &&
              H5Pset_alignment(access.get(), kAlignment, kAlignment) >= 0 &&
              H5Pset_file_locking(access.get(), false, true) >= 0,
          "the file");
  Skeleton& made = *new Skeleton;
  // The caller has made the file; when it is gone, so is he, and the library would make it again.
  if (::access(plan.path.c_str(), F_OK) != 0) throw_hdf5_write_error(plan.shown, "the file is gone");
  made.file = Hdf5Handle(H5Fcreate(plan.path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  require(made.file.valid(), "the file");
  const hid_t file = made.file.get();
  require(
      put_text(file, "schema", dataset_schema(manifest.version)) && put_text(file, "generator", manifest.generator) &&
          put_count(file, "seed", manifest.seed) && put_count(file, "first_row", plan.first_row) &&
          put_count(file, "granularity", pipeline::kGranularity) &&
          put_text(file, "config_sha256", sha256_hex(manifest.config_json)) &&
          (manifest.config_json.size() > kMaxConfigAttribute || put_text(file, "config_json", manifest.config_json)),
      "the attributes");

  const auto dataset = [&](const char* name, hid_t type, const std::vector<hsize_t>& shape, bool chunked) {
    const Hdf5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    bool ok = H5Pset_obj_track_times(properties.get(), false) >= 0 &&
              H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER) >= 0;
    if (chunked) {
      const hsize_t chunk[3] = {plan.chunk_rows, 3, pipeline::kGranularity};
      ok = ok && H5Pset_chunk(properties.get(), 3, chunk) >= 0 && H5Pset_shuffle(properties.get()) >= 0 &&
           H5Pset_deflate(properties.get(), kDeflateLevel) >= 0;
    } else {
      ok = ok && H5Pset_layout(properties.get(), H5D_CONTIGUOUS) >= 0 &&
           H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY) >= 0;
    }
    const Hdf5Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose);
    Hdf5Handle created(ok ? H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT) : -1,
                       H5Dclose);
    require(created.valid(), std::string("dataset /") + name);
    return created;
  };

  const Hdf5Handle letter(H5Tcopy(H5T_C_S1), H5Tclose);  // one character
  const Hdf5Handle channel = dataset("channel", letter.get(), {3}, false);
  require(H5Dwrite(channel.get(), letter.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, "CAW") >= 0 &&
              H5DSset_scale(channel.get(), "channel") >= 0,
          "dataset /channel");
  made.caw = dataset("caw", H5T_IEEE_F32LE, {plan.rows, 3, pipeline::kGranularity}, manifest.compressed);
  const hid_t caw = made.caw.get();
  require(H5DSset_label(caw, 0, "env") >= 0 && H5DSset_label(caw, 1, "channel") >= 0 &&
              H5DSset_label(caw, 2, "position") >= 0 && H5DSattach_scale(caw, channel.get(), 1) >= 0 &&
              put_text(caw, "units", "1") && put_floats(caw, "range", {0, 1}) &&
              put_text(caw, "paper", "arXiv 2007.04069, 4.5.1"),
          "dataset /caw");
  if (manifest.oracle) {
    const Hdf5Handle properties(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    H5Pset_obj_track_times(properties.get(), false);
    const Hdf5Handle group(H5Gcreate2(file, "oracle", H5P_DEFAULT, properties.get(), H5P_DEFAULT), H5Gclose);
    require(group.valid(), "group /oracle");
  }
  for (const DatasetColumn& column : dataset_columns(manifest.oracle, manifest.version)) {
    std::vector<hsize_t> shape = {plan.rows};
    if (column.width > 1) shape.push_back(static_cast<hsize_t>(column.width));
    made.columns.push_back(dataset(column.name, file_type(column.type), shape, false));
    const hid_t id = made.columns.back().get();
    require(put_text(id, "units", column.units), std::string("dataset /") + column.name);
    const std::string_view name = column.name;
    if (name == "distribution") require(put_texts(id, "names", manifest.distributions), "dataset /distribution");
    if (name == "schedule") require(put_texts(id, "names", {"1f1b", "1f1b-overlap", "adaptive"}), "dataset /schedule");
  }
  return made;
}

// Closes the file; where its values lie.
std::string complete(const ShardPlan& plan, Skeleton* made) {
  ShardPlaces places;
  if (!plan.manifest->compressed) places.caw = H5Dget_offset(made->caw.get());
  for (std::size_t c = 0; c < made->columns.size(); ++c) {
    places.columns.push_back(H5Dget_offset(made->columns[c].get()));
    if (places.columns.back() == HADDR_UNDEF) {
      const DatasetManifest& manifest = *plan.manifest;
      throw_hdf5_error(plan.shown,
                       std::string("dataset /") + dataset_columns(manifest.oracle, manifest.version)[c].name);
    }
  }
  made->columns.clear();
  const bool closed = made->caw.reset();
  if (!made->file.reset() || !closed || places.caw == HADDR_UNDEF) throw_hdf5_error(plan.shown, "the file");
  return encode({places});
}

// --- reading ---

hid_t memory_type(ColumnType type) {
  switch (type) {
    case ColumnType::kF32: return H5T_NATIVE_FLOAT;
    case ColumnType::kU8: return H5T_NATIVE_UINT8;
    case ColumnType::kU16: return H5T_NATIVE_UINT16;
    case ColumnType::kU32: return H5T_NATIVE_UINT32;
    case ColumnType::kI16: return H5T_NATIVE_INT16;
  }
  return -1;
}

std::string shape_text(const std::vector<hsize_t>& shape) {
  std::string text;
  for (const hsize_t length : shape) text += (text.empty() ? "" : " x ") + std::to_string(length);
  return text;
}

struct Wanted {
  std::string name;
  ColumnType type;
  std::vector<hsize_t> shape;
};

// One dataset of a shard: where its values lie in the file, or 0 when they were expanded to `expanded`.
std::uint64_t look_into_dataset(const Hdf5Handle& file, const ShardBytes& shard, const Wanted& wanted, char* expanded) {
  const std::string shown = "dataset /" + wanted.name;
  const std::string& path = shard.path;
  // A missing group on the way is an error of the library, not "no".
  const Hdf5Handle dataset(H5Dopen2(file.get(), wanted.name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) fail_data(path, shown + " is missing or damaged" + hdf5_reason());
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = space.valid() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  std::vector<hsize_t> found(static_cast<std::size_t>(std::max(rank, 0)));
  if (rank < 0 || H5Sget_simple_extent_dims(space.get(), found.data(), nullptr) != rank || found != wanted.shape) {
    fail_data(path, shown + ": found " + shape_text(found) + " values, expected " + shape_text(wanted.shape));
  }
  const Hdf5Handle stored(H5Dget_type(dataset.get()), H5Tclose);
  if (!stored.valid() || H5Tequal(stored.get(), memory_type(wanted.type)) <= 0) {
    fail_data(path, shown + ": found another type than docs/formats/dataset.md has");
  }
  if (expanded != nullptr) {
    if (H5Dread(dataset.get(), memory_type(wanted.type), H5S_ALL, H5S_ALL, H5P_DEFAULT, expanded) < 0) {
      fail_data(path, shown + " cannot be expanded: damaged" + hdf5_reason(), kAgainHint);
    }
    return 0;
  }
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF) fail_data(path, shown + " is not stored in one piece", kAgainHint);
  return offset;
}

std::string text_attribute(const Hdf5Handle& file, const std::string& path, const char* name) {
  const Hdf5Handle attribute(H5Aexists(file.get(), name) > 0 ? H5Aopen(file.get(), name, H5P_DEFAULT) : -1, H5Aclose);
  const Hdf5Handle type(attribute.valid() ? H5Aget_type(attribute.get()) : -1, H5Tclose);
  if (!type.valid() || H5Tis_variable_str(type.get()) <= 0) {
    fail_data(path, std::string("attribute ") + name + ": missing, expected a string");
  }
  char* pointer = nullptr;
  if (H5Aread(attribute.get(), type.get(), &pointer) < 0) {
    fail_data(path, std::string("attribute ") + name + " cannot be read" + hdf5_reason());
  }
  std::string value = pointer == nullptr ? "" : pointer;
  H5free_memory(pointer);
  return value;
}

std::uint64_t count_attribute(const Hdf5Handle& file, const std::string& path, const char* name) {
  const Hdf5Handle attribute(H5Aexists(file.get(), name) > 0 ? H5Aopen(file.get(), name, H5P_DEFAULT) : -1, H5Aclose);
  const Hdf5Handle space(attribute.valid() ? H5Aget_space(attribute.get()) : -1, H5Sclose);
  std::uint64_t value = 0;
  if (!space.valid() || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Aread(attribute.get(), H5T_NATIVE_UINT64, &value) < 0) {
    fail_data(path, std::string("attribute ") + name + ": missing, expected one whole number");
  }
  return value;
}

ShardPlaces look_into_shard(const ShardBytes& shard, const DatasetManifest& manifest) {
  const std::string& path = shard.path;
  const ShardEntry& entry = *shard.entry;
  const Hdf5Handle file = open_hdf5_bytes(shard.bytes, path);
  const std::string schema = text_attribute(file, path, "schema");
  if (schema != dataset_schema(manifest.version)) {
    fail_data(path,
              "found schema \"" + excerpt(schema, 60) + "\", dataset.json says " + dataset_schema(manifest.version),
              "use the version of AutoMap that wrote it, or make the dataset again with automap-datagen");
  }
  const auto check_count = [&](const char* name, std::uint64_t expected) {
    const std::uint64_t found = count_attribute(file, path, name);
    if (found != expected) {
      fail_data(
          path,
          std::string(name) + ": found " + std::to_string(found) + ", dataset.json says " + std::to_string(expected),
          "is this shard from another dataset?");
    }
  };
  check_count("first_row", entry.first_row);
  check_count("seed", manifest.seed);
  check_count("granularity", pipeline::kGranularity);
  const auto check_text = [&](const char* name, const std::string& expected) {
    const std::string found = text_attribute(file, path, name);
    if (found == expected) return;
    fail_data(path,
              std::string(name) + ": found " + excerpt(found, 64) + ", dataset.json says " + excerpt(expected, 64),
              "this shard is from another dataset: run the automap-datagen command again, it writes the right one");
  };
  check_text("generator", manifest.generator);
  check_text("config_sha256", sha256_hex(manifest.config_json));
  ShardPlaces places;
  places.caw = look_into_dataset(file, shard, {"caw", ColumnType::kF32, {entry.rows, 3, pipeline::kGranularity}},
                                 shard.expanded_caw);
  if (places.caw != entry.caw_offset) fail_data(path, "/caw is not where dataset.json says");
  for (const DatasetColumn& column : dataset_columns(manifest.oracle, manifest.version)) {
    std::vector<hsize_t> shape = {entry.rows};
    if (column.width > 1) shape.push_back(static_cast<hsize_t>(column.width));
    places.columns.push_back(look_into_dataset(file, shard, {column.name, column.type, shape}, nullptr));
  }
  return places;
}

// Here, not in the child: whatever became of that, no place is outside of the file.
void check_places(const ShardPlaces& places, const ShardBytes& shard, const DatasetManifest& manifest) {
  const auto check = [&](const char* name, std::uint64_t at, std::uint64_t bytes) {
    if (at > shard.bytes.size() || bytes > shard.bytes.size() - at) {
      fail_data(shard.path, std::string("dataset /") + name + " ends behind the end of the file: cut short",
                kAgainHint);
    }
  };
  if (shard.expanded_caw == nullptr) check("caw", places.caw, shard.entry->rows * kCawRowBytes);
  const std::vector<DatasetColumn>& columns = dataset_columns(manifest.oracle, manifest.version);
  if (places.columns.size() != columns.size()) fail_data(shard.path, "damaged", kAgainHint);
  for (std::size_t c = 0; c < places.columns.size(); ++c) {
    const DatasetColumn& column = columns[c];
    check(column.name, places.columns[c], shard.entry->rows * column.row_bytes());
  }
}

std::vector<ShardPlaces> look_into(const ShardBytes* first, std::size_t count, const DatasetManifest& manifest) {
  std::uint64_t bytes = 0;
  constexpr std::uint64_t kStructureBytes = std::uint64_t{1} << 20;
  for (std::size_t s = 0; s < count; ++s) {
    bytes += first[s].expanded_caw != nullptr ? first[s].bytes.size() : kStructureBytes;
  }
  const std::string answer = in_hdf5_process(Hdf5Task::kReadVerified, first->path, bytes, [&] {
    std::vector<ShardPlaces> all;
    for (std::size_t s = 0; s < count; ++s) all.push_back(look_into_shard(first[s], manifest));
    return encode(all);
  });
  std::vector<ShardPlaces> all = decode(answer, count, first->path);
  for (std::size_t s = 0; s < count; ++s) check_places(all[s], first[s], manifest);
  return all;
}

}  // namespace

ShardPlaces make_shard(const ShardPlan& plan) {
  const std::string answer =
      in_hdf5_process(Hdf5Task::kWrite, plan.shown, 0, [&] { return complete(plan, &create_skeleton(plan)); });
  return decode(answer, 1, plan.shown)[0];
}

CompressedShard::CompressedShard(const ShardPlan& plan, std::uint64_t reserved_bytes)
    : shown_(plan.shown),
      child_(
          [plan, reserved_bytes](ChildInput& chunks) {
            start_hdf5();
            Skeleton& made = create_skeleton(plan);
            // The library truncates the file, which gives back what was reserved. Without is no failure yet.
            const int file = ::open(plan.path.c_str(), O_RDWR | O_CLOEXEC);
            if (file >= 0) {
              if (::fallocate(file, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(reserved_bytes)) != 0) errno = 0;
              ::close(file);
            }
            hsize_t at[3] = {0, 0, 0};
            while (const std::optional<std::string> chunk = chunks.next()) {
              if (H5Dwrite_chunk(made.caw.get(), H5P_DEFAULT, 0, at, chunk->size(), chunk->data()) < 0) {
                throw_hdf5_error(plan.shown, "dataset /caw");
              }
              at[0] += plan.chunk_rows;
            }
            return complete(plan, &made);
          },
          [] {
            ChildLimits limits;
            limits.files = true;
            limits.outlives_thread = true;  // rows are made by many threads
            return limits;
          }()) {}

void CompressedShard::append(std::string_view chunk) {
  if (!child_.send(chunk)) finish();  // which says why
}

ShardPlaces CompressedShard::finish() {
  return decode(hdf5_answer(Hdf5Task::kWrite, shown_, child_.finish()), 1, shown_)[0];
}

std::vector<ShardPlaces> look_into_shards(const std::vector<ShardBytes>& shards, const DatasetManifest& manifest) {
  if (shards.empty()) return {};
  try {
    return look_into(shards.data(), shards.size(), manifest);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kIo || shards.size() == 1) throw;
  }
  // The child died: one each finds the shard that it died of.
  std::vector<ShardPlaces> all;
  for (const ShardBytes& shard : shards) all.push_back(look_into(&shard, 1, manifest)[0]);
  return all;
}

}  // namespace automap::io
