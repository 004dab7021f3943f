#include "common/io/dataset_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/regular_file.h"
#include "common/io/dataset_repair.h"
#include "common/io/shard_hdf5.h"

namespace automap::io {
namespace {
using pipeline::RowProblem;

// A generous estimate of HDF5's own structures in a shard, for reserving space.
constexpr std::uint64_t kOverheadBytes = std::uint64_t{1} << 20;
// Started on its way to the disk while the next rows are made.
constexpr std::uint64_t kWriteBackBytes = std::uint64_t{8} << 20;
constexpr std::size_t kHashBlockBytes = std::size_t{1} << 20;

[[noreturn]] void throw_shard_write_error(const std::string& path, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) {
    hint = "free some space and run the same command again: finished shards are kept, nothing half written is left";
  }
  if (error == EFBIG) hint = "the file size limit (ulimit -f) is below a shard's size: raise it, or lower --shard-rows";
  if (error == EACCES || error == EPERM || error == EROFS) hint = "choose a folder that you may write to";
  if (error == ENOENT)
    hint = "somebody removed the folder, or the file while it was written: run the same command again";
  throw Error(ErrorKind::kIo, "cannot write " + path + ": " + std::strerror(error), hint);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool has_prefix(const std::string& text, std::string_view prefix) {
  return std::string_view(text).substr(0, prefix.size()) == prefix;
}

bool has_suffix(const std::string& text, std::string_view suffix) {
  return text.size() >= suffix.size() && std::string_view(text).substr(text.size() - suffix.size()) == suffix;
}

// Removes the files that killed runs left. A shard being written is locked by its writer, on whatever machine;
// dataset.json is only written under the folder's lock, which the caller holds.
void remove_leftovers(const std::string& folder) {
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) throw Error(ErrorKind::kIo, "cannot read " + folder + ": " + std::strerror(errno));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) names.emplace_back(entry->d_name);
  ::closedir(directory);
  for (const std::string& name : names) {
    if (!has_suffix(name, ".tmp")) continue;
    const std::string path = folder + "/" + name;
    if (has_prefix(name, std::string(kManifestName) + ".")) ::unlink(path.c_str());
    if (!has_prefix(name, "shard-")) continue;
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

// "seed: holds 1, asked for 2" lines; empty when they are the same dataset.
std::vector<std::string> differences(const DatasetManifest& found, const DatasetManifest& wanted) {
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& name, const auto& have, const auto& want) {
    const std::string have_text = excerpt(Json(have).dump(), 100), want_text = excerpt(Json(want).dump(), 100);
    if (have != want) lines.push_back(name + ": holds " + have_text + ", asked for " + want_text);
  };
  compare("schema", dataset_schema(found.version), dataset_schema(wanted.version));
  compare("seed", found.seed, wanted.seed);
  compare("shard-rows", found.shard_rows, wanted.shard_rows);
  compare("oracle", found.oracle, wanted.oracle);
  compare("compress", found.compressed, wanted.compressed);
  compare("made by", found.generator, wanted.generator);
  if (found.config_json != wanted.config_json) {
    const Json have = Json::parse(found.config_json), want = Json::parse(wanted.config_json);
    constexpr std::size_t kShown = 3;
    std::size_t shown = 0;
    const std::vector<JsonDifference> all = json_differences(have, want);
    for (const JsonDifference& one : all) {
      if (shown++ == kShown) break;
      lines.push_back("config" + one.path + ": holds " + excerpt(one.have, 60) + ", asked for " +
                      excerpt(one.want, 60));
    }
    if (all.size() > kShown) lines.push_back(std::to_string(all.size() - kShown) + " more keys of the config");
    if (all.empty()) lines.push_back("config: the same keys in another order");
  } else {
    compare("distributions", found.distributions, wanted.distributions);
  }
  return lines;
}

void check_same(const std::string& path, const DatasetManifest& found, const DatasetManifest& wanted) {
  const std::vector<std::string> lines = differences(found, wanted);
  if (lines.empty()) return;
  throw Error(ErrorKind::kConfig, path + ": this folder has another dataset",
              "choose another folder with -o, or delete this one to replace it", lines);
}

}  // namespace

// --- the folder ---

DatasetFolder::DatasetFolder(std::string folder, const DatasetManifest& wanted, std::uint64_t first_shard,
                             std::uint64_t last_shard)
    : folder_(std::move(folder)) {
  AM_CHECK(wanted.rows > 0 && wanted.shard_rows > 0);
  create_folders(folder_);
  const std::string path = folder_ + "/" + kManifestName;
  const LockFile lock = lock_dataset(folder_);
  remove_stale_claims(folder_);
  remove_leftovers(folder_);
  manifest_ = wanted;
  manifest_.shards.clear();
  std::string text;
  if (::access(path.c_str(), F_OK) == 0) {
    text = read_own_file(path);
    const DatasetManifest found = understand_manifest(folder_, text, wanted);
    check_same(path, found, wanted);
    if (found.rows > wanted.rows) {
      throw Error(ErrorKind::kConfig,
                  path + ": holds " + std::to_string(found.rows) + " rows, asked for " + std::to_string(wanted.rows),
                  "a dataset can grow but not shrink: ask for at least as many rows, or choose another folder");
    }
    manifest_.shards = found.shards;
    if (found.rows < wanted.rows) {
      // The number of rows is everybody's.
      if (const std::vector<DatasetWriter> others = dataset_writers(folder_); !others.empty()) {
        throw Error(ErrorKind::kIo,
                    folder_ + ": cannot be extended from " + std::to_string(found.rows) + " rows to " +
                        std::to_string(wanted.rows) + " while shards of it are being made by " + others.front().owner,
                    "wait until it has ended");
      }
      // The last shard may have been short; full shards stay as they are.
      if (!manifest_.shards.empty() && manifest_.shards.back().rows < manifest_.shard_rows) manifest_.shards.pop_back();
    }
  }
  claim_.emplace(folder_, first_shard, std::min(last_shard, wanted.num_shards()));
  // Also when only its form is another one: repaired, or of a version that wrote no checksum.
  const std::string now = to_json_text(manifest_);
  if (now != text) write_file_atomic(path, now);
}

DatasetFolder::~DatasetFolder() = default;

bool DatasetFolder::is_complete(std::uint64_t shard) const {
  const ShardEntry* entry = manifest_.find(shard);
  return entry != nullptr && !shard_problem(folder_, manifest_, *entry, ShardHashes::kCrc);
}

void DatasetFolder::add(const ShardEntry& entry) {
  const std::string path = folder_ + "/" + kManifestName;
  const LockFile lock = lock_dataset(folder_);
  require_regular_file(path, "somebody removed it while the dataset was being made: run the same command again");
  const DatasetManifest found = parse_manifest(read_own_file(path), path);
  check_same(path, found, manifest_);
  if (found.rows != manifest_.rows) {
    throw Error(ErrorKind::kConfig, path + ": was extended to " + std::to_string(found.rows) + " rows meanwhile",
                "run again with --rows " + std::to_string(found.rows));
  }
  manifest_.shards = found.shards;
  const auto at = std::lower_bound(manifest_.shards.begin(), manifest_.shards.end(), entry,
                                   [](const ShardEntry& a, const ShardEntry& b) { return a.first_row < b.first_row; });
  if (at != manifest_.shards.end() && at->first_row == entry.first_row) {
    *at = entry;
  } else {
    manifest_.shards.insert(at, entry);
  }
  write_file_atomic(path, to_json_text(manifest_));
}

std::string compress_chunk(const float* caw, std::uint64_t rows, std::uint64_t chunk_rows) {
  AM_CHECK(rows <= chunk_rows);
  constexpr std::size_t kValueBytes = sizeof(float);
  const std::size_t values = chunk_rows * kCawRowBytes / kValueBytes, given = rows * kCawRowBytes / kValueBytes;
  // Shuffle: all first bytes, then all second bytes, ...
  std::vector<unsigned char> shuffled(values * kValueBytes);
  const auto* bytes = reinterpret_cast<const unsigned char*>(caw);
  for (std::size_t byte = 0; byte < kValueBytes; ++byte) {
    unsigned char* out = shuffled.data() + byte * values;
    for (std::size_t i = 0; i < given; ++i) out[i] = bytes[i * kValueBytes + byte];
  }
  uLongf size = compressBound(shuffled.size());
  std::string packed(size, '\0');
  const int status =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size, shuffled.data(), shuffled.size(), kDeflateLevel);
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  AM_CHECK(status == Z_OK);
  packed.resize(size);
  return packed;
}

// --- a shard ---

struct ShardWriter::File {
  std::optional<RemoveOnSignal> remove_on_signal;
  int fd = -1;
  int direct = -1;  // the same file without the page cache, where the file system knows that
  std::unique_ptr<CompressedShard> compressed;
  ~File() {
    if (direct >= 0) ::close(direct);
    if (fd >= 0) ::close(fd);
  }
};

ShardWriter::ShardWriter(const std::string& folder, const DatasetManifest& manifest, std::uint64_t shard)
    : folder_(folder),
      name_(shard_file_name(shard)),
      oracle_(manifest.oracle),
      compressed_(manifest.compressed),
      first_row_(shard * manifest.shard_rows),
      rows_(manifest.rows_of_shard(shard)),
      chunk_rows_(std::min(kChunkRows, rows_)),
      file_(std::make_unique<File>()) {
  const std::string shown = folder_ + "/" + name_;
  // The temporary file is locked for as long as this process lives, which is how another run knows that it is in use.
  for (int attempt = 0;; ++attempt) {
    path_ = shown + "." + std::to_string(::getpid()) + "-" + std::to_string(attempt) + ".tmp";
    const SignalsWait wait;
    file_->fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_->fd < 0 && errno == EEXIST && attempt < 1000) continue;
    if (file_->fd < 0) throw_shard_write_error(shown, errno);
    // Between open and flock another run may have taken it for a leftover, and be about to remove it.
    const bool taken = ::flock(file_->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat here = {}, there = {};
    if (!taken && ::fstat(file_->fd, &here) == 0 && ::stat(path_.c_str(), &there) == 0 && here.st_ino == there.st_ino) {
      file_->remove_on_signal.emplace(path_);
      break;
    }
    ::close(std::exchange(file_->fd, -1));
  }
  try {
    std::uint64_t expected_bytes = rows_ * kCawRowBytes + kOverheadBytes;
    for (const DatasetColumn& column : dataset_columns(oracle_)) {
      expected_bytes += rows_ * column.row_bytes() + kAlignment;
    }
    // A full disk, or a file size limit, is found now and not by the HDF5 library, which recovers badly. File systems
    // that cannot reserve space are written without.
    const auto reserve = [&](int mode, std::uint64_t bytes) {
      if (::fallocate(file_->fd, mode, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS &&
          errno != EINTR) {
        throw_shard_write_error(shown, errno);
      }
    };
    reserve(0, expected_bytes);
    for (const DatasetColumn& column : dataset_columns(oracle_)) columns_.emplace_back(rows_ * column.row_bytes());
    const ShardPlan plan = {path_, shown, &manifest, first_row_, rows_, chunk_rows_};
    if (compressed_) {
      file_->compressed = std::make_unique<CompressedShard>(plan, expected_bytes);
    } else {
      ShardPlaces places = make_shard(plan);
      caw_offset_ = places.caw;
      column_offsets_ = std::move(places.columns);
      struct stat info = {};
      if (::fstat(file_->fd, &info) != 0) throw_shard_write_error(shown, errno);
      reserve(0, static_cast<std::uint64_t>(info.st_size));
      // In shards of few rows HDF5 puts small columns into the gap before /caw; their bytes come last, so the hashes
      // wait for them. Else hashing goes along with writing, while the rows are in the cache.
      const auto first_column = std::min_element(column_offsets_.begin(), column_offsets_.end());
      hash_at_end_ = *first_column < caw_offset_;
      if (!hash_at_end_) {
        hash_file(0, caw_offset_, true);
        file_->direct = ::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
      }
    }
  } catch (...) {
    file_->compressed.reset();  // its process writes the file
    ::unlink(path_.c_str());
    throw;
  }
  if (oracle_) {
    const std::size_t first = dataset_columns(false).size();
    for (std::size_t c = first; c < first + 3; ++c) std::memset(columns_[c].data(), 0xff, columns_[c].size());  // -1
    const float none = std::numeric_limits<float>::quiet_NaN();
    std::vector<char>& length = columns_[first + 3];
    for (std::size_t at = 0; at < length.size(); at += sizeof none) std::memcpy(length.data() + at, &none, sizeof none);
  }
}

ShardWriter::~ShardWriter() {
  if (!file_) return;
  file_->compressed.reset();
  ::unlink(path_.c_str());
}

void ShardWriter::set_row(std::uint64_t i, const RowProblem& row) {
  AM_DCHECK(i < rows_);
  static_assert(sizeof row.schedule == 1 && std::is_standard_layout_v<RowProblem>, "columns are copied by place");
  const auto* bytes = reinterpret_cast<const char*>(&row);
  const std::vector<DatasetColumn>& columns = dataset_columns(false);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const DatasetColumn& column = columns[c];
    std::memcpy(columns_[c].data() + i * column.row_bytes(), bytes + column.member_offset, column.row_bytes());
  }
}

void ShardWriter::set_label(std::uint64_t i, const OracleLabel& label, const RowProblem& row) {
  AM_CHECK(oracle_ && i < rows_ && label.cuts.size() <= kOracleBoundaries &&
           label.device_cuts.size() == label.cuts.size() &&
           (label.variants.empty() || label.variants.size() == label.cuts.size() + 1));
  const std::size_t first = dataset_columns(false).size();
  std::int16_t cuts[kOracleBoundaries], device_cuts[kOracleBoundaries];
  std::fill(std::begin(cuts), std::end(cuts), std::int16_t{-1});
  std::fill(std::begin(device_cuts), std::end(device_cuts), std::int16_t{-1});
  for (std::size_t s = 0; s < label.cuts.size(); ++s) {
    cuts[s] = static_cast<std::int16_t>(grid_point(label.cuts[s], row.num_instructions));
    device_cuts[s] = static_cast<std::int16_t>(label.device_cuts[s]);
  }
  std::uint8_t variants[kOracleBoundaries + 1];
  std::fill(std::begin(variants), std::end(variants), kNoVariant);
  for (std::size_t s = 0; s <= label.cuts.size() && std::isfinite(label.length_ms); ++s) {
    variants[s] = label.variants.empty() ? std::uint8_t{0} : label.variants[s];
  }
  const auto length = static_cast<float>(label.length_ms / static_cast<double>(row.scale_ms));
  std::memcpy(columns_[first].data() + i * sizeof cuts, cuts, sizeof cuts);
  std::memcpy(columns_[first + 1].data() + i * sizeof device_cuts, device_cuts, sizeof device_cuts);
  std::memcpy(columns_[first + 2].data() + i * sizeof variants, variants, sizeof variants);
  std::memcpy(columns_[first + 3].data() + i * sizeof length, &length, sizeof length);
}

void ShardWriter::write_at(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_->fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_shard_write_error(folder_ + "/" + name_, errno);
    }
    offset += static_cast<std::uint64_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// False when the file system does not want it after all.
bool ShardWriter::write_direct(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_->direct, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EINVAL) throw_shard_write_error(folder_ + "/" + name_, errno);
    if (written <= 0 || static_cast<std::size_t>(written) % kDirectAlignment != 0) {
      ::close(std::exchange(file_->direct, -1));
      return false;
    }
    offset += static_cast<std::uint64_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void ShardWriter::hash(std::string_view bytes) {
  crc_ = crc32c(bytes, crc_);
}

void ShardWriter::hash_file(std::uint64_t begin, std::uint64_t end, bool rest) {
  std::vector<char> block(std::min<std::uint64_t>(kHashBlockBytes, end - begin));
  while (begin < end) {
    const ssize_t got =
        ::pread(file_->fd, block.data(), std::min<std::uint64_t>(block.size(), end - begin), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw_shard_write_error(folder_ + "/" + name_, got < 0 ? errno : EIO);
    const std::string_view bytes(block.data(), static_cast<std::size_t>(got));
    hash(bytes);
    if (rest) rest_crc_ = crc32c(bytes, rest_crc_);
    begin += static_cast<std::uint64_t>(got);
  }
}

void ShardWriter::append(const float* caw, std::uint64_t rows) {
  AM_CHECK(file_ && !compressed_ && appended_ + rows <= rows_);
  const std::string_view bytes(reinterpret_cast<const char*>(caw), rows * kCawRowBytes);
  const std::uint64_t offset = caw_offset_ + appended_ * kCawRowBytes;
  if (!hash_at_end_) hash(bytes);
  const bool aligned = file_->direct >= 0 && offset % kDirectAlignment == 0 &&
                       reinterpret_cast<std::uintptr_t>(caw) % kDirectAlignment == 0;
  const std::size_t whole = aligned ? bytes.size() / kDirectAlignment * kDirectAlignment : 0;
  const bool direct = whole > 0 && write_direct(offset, bytes.substr(0, whole));
  if (!direct || whole < bytes.size()) write_at(offset + (direct ? whole : 0), bytes.substr(direct ? whole : 0));
  appended_ += rows;
  const std::uint64_t end = appended_ * kCawRowBytes;
  if (!direct && end - write_back_from_ >= kWriteBackBytes) {
    ::sync_file_range(file_->fd, static_cast<off_t>(caw_offset_ + write_back_from_),
                      static_cast<off_t>(end - write_back_from_), SYNC_FILE_RANGE_WRITE);
    write_back_from_ = end;
  }
}

void ShardWriter::append_chunk(std::string_view bytes) {
  AM_CHECK(file_ && compressed_ && appended_ < rows_);
  file_->compressed->append(bytes);
  appended_ = std::min(rows_, appended_ + chunk_rows_);
}

ShardEntry ShardWriter::commit() {
  AM_CHECK(file_ && appended_ == rows_);
  const std::string shown = folder_ + "/" + name_;
  if (compressed_) {
    column_offsets_ = file_->compressed->finish().columns;
    file_->compressed.reset();
  }
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    write_at(column_offsets_[c], std::string_view(columns_[c].data(), columns_[c].size()));
  }
  struct stat info = {};
  if (::fstat(file_->fd, &info) != 0) throw_shard_write_error(shown, errno);
  // Frees reserved space that was not needed.
  if (compressed_ && ::ftruncate(file_->fd, info.st_size) != 0) throw_shard_write_error(shown, errno);
  ShardEntry entry;
  entry.file = name_;
  entry.first_row = first_row_;
  entry.rows = rows_;
  entry.bytes = static_cast<std::uint64_t>(info.st_size);
  if (compressed_) {
    hash_file(0, entry.bytes, true);
  } else {
    const std::uint64_t caw_end = caw_offset_ + rows_ * kCawRowBytes;
    if (hash_at_end_) {
      hash_file(0, caw_offset_, true);
      hash_file(caw_offset_, caw_end, false);
    }
    hash_file(caw_end, entry.bytes, true);
  }
  entry.caw_offset = caw_offset_;
  entry.rest_crc32c = rest_crc_;
  entry.crc32c = crc_;
  if (::fsync(file_->fd) != 0) throw_shard_write_error(shown, errno);
  if (::rename(path_.c_str(), shown.c_str()) != 0) throw_shard_write_error(shown, errno);
  const Descriptor directory(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
  file_.reset();
  columns_.clear();
  return entry;
}

}  // namespace automap::io
