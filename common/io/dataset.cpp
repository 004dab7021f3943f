#include "common/io/dataset.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/inputs.h"
#include "common/base/printable.h"
#include "common/base/regular_file.h"
#include "common/io/dataset_format.h"
#include "common/io/dataset_lock.h"
#include "common/io/file_errors.h"
#include "common/io/shard_checks.h"
#include "common/io/shard_hdf5.h"

namespace automap::io {
// A file in memory, read-only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const std::string& path, std::uint64_t expected_bytes) : size_(expected_bytes) {
    const auto [fd, size] = open_regular_file(path, kAgainHint);
    remember_input(fd, path);
    if (size == expected_bytes) data_ = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    if (size != expected_bytes) {
      fail_data(path,
                "found " + std::to_string(size) + " bytes, dataset.json says " + std::to_string(expected_bytes) +
                    (size < expected_bytes ? ": cut short" : ""),
                kAgainHint);
    }
    if (data_ == MAP_FAILED) {
      throw Error(ErrorKind::kIo, "cannot map " + path + " into memory: " + std::strerror(error));
    }
  }
  // Zeros, which child processes can fill.
  static Mapping shared(std::uint64_t bytes) {
    Mapping made;
    made.size_ = bytes;
    made.data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made.data_ == MAP_FAILED) throw std::bad_alloc();
    return made;
  }
  ~Mapping() {
    if (data_ != MAP_FAILED) ::munmap(data_, size_);
  }
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, MAP_FAILED)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  const char* data() const { return static_cast<const char*>(data_); }
  char* writable_data() { return static_cast<char*>(data_); }
  std::uint64_t size() const { return size_; }

 private:
  void* data_ = MAP_FAILED;
  std::uint64_t size_ = 0;
};

struct Shard {
  std::string path;
  Mapping mapping;
  Mapping expanded;           // /caw of a compressed shard
  const char* caw = nullptr;  // in one of the two
  std::vector<const char*> columns;
};

namespace {

using pipeline::kGranularity;
using pipeline::RowProblem;

// Maps and verifies a shard; its values are found afterwards.
Shard map_shard(const std::string& folder, const DatasetManifest& manifest, const ShardEntry& entry) {
  Shard shard;
  shard.path = folder + "/" + entry.file;
  const std::string& path = shard.path;
  shard.mapping = Mapping(path, entry.bytes);
  const std::string_view bytes(shard.mapping.data(), entry.bytes);
  std::uint32_t crc = 0;
  if (manifest.compressed) {
    crc = crc32c(bytes);
  } else {
    const std::uint64_t caw_end = entry.caw_offset + entry.rows * kCawRowBytes;
    crc = crc32c(bytes.substr(caw_end), crc32c(bytes.substr(0, entry.caw_offset)));
  }
  if (crc != entry.rest_crc32c) {
    fail_data(path, "damaged, or changed after it was written: another CRC-32C than in dataset.json", kAgainHint);
  }
  if (manifest.compressed) shard.expanded = Mapping::shared(entry.rows * kCawRowBytes);
  return shard;
}

// Maps, verifies and looks into shards.
std::vector<Shard> open_shards(const std::string& folder, const DatasetManifest& manifest,
                               const std::vector<const ShardEntry*>& entries) {
  std::vector<Shard> shards;
  shards.reserve(entries.size());
  std::vector<ShardBytes> bytes;
  for (const ShardEntry* entry : entries) {
    Shard& shard = shards.emplace_back(map_shard(folder, manifest, *entry));
    bytes.push_back({shard.path,
                     {shard.mapping.data(), shard.mapping.size()},
                     entry,
                     manifest.compressed ? shard.expanded.writable_data() : nullptr});
  }
  const std::vector<ShardPlaces> places = look_into_shards(bytes, manifest);
  for (std::size_t s = 0; s < shards.size(); ++s) {
    Shard& shard = shards[s];
    shard.caw = manifest.compressed ? shard.expanded.data() : shard.mapping.data() + places[s].caw;
    for (const std::uint64_t at : places[s].columns) shard.columns.push_back(shard.mapping.data() + at);
  }
  return shards;
}

std::string missing_shards(const DatasetManifest& manifest) {
  std::string text;
  std::uint64_t missing = 0;
  constexpr std::uint64_t kShown = 3;
  for (std::uint64_t s = 0; s < manifest.num_shards(); ++s) {
    if (manifest.find(s) != nullptr) continue;
    if (missing++ < kShown) text += (text.empty() ? "" : ", ") + shard_file_name(s);
  }
  if (missing > kShown) text += ", ...";
  return std::to_string(missing) + " of " + std::to_string(manifest.num_shards()) + " shards are missing (" + text +
         ")";
}

}  // namespace

struct DatasetReader::State {
  std::string folder;
  DatasetManifest manifest;
  std::string fingerprint;
  std::vector<Shard> shards;
  std::unique_ptr<ShardChecks> checks;  // of what `shards` map: goes first

  const Shard& shard_of(std::uint64_t row) const { return shards[row / manifest.shard_rows]; }
  [[noreturn]] void bad_row(std::uint64_t i, const std::string& what) const {
    fail_data(shard_of(i).path + ", row " + std::to_string(i % manifest.shard_rows), what,
              "automap-inspect --verify says whether the file is as it was written");
  }
  // Reads a row without checking its values; row() checks its enumerations.
  RowProblem read_row(std::uint64_t i) const;
};

DatasetManifest read_manifest(const std::string& folder) {
  struct stat info = {};
  if (::stat(folder.c_str(), &info) != 0) {
    throw Error(ErrorKind::kIo, "cannot read " + folder + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(info.st_mode)) fail_data(folder, "is a file, expected the folder of a dataset");
  const std::string path = folder + "/" + kManifestName;
  if (::access(path.c_str(), F_OK) != 0) {
    fail_data(folder, std::string("no dataset here: ") + kManifestName + " is missing",
              "automap-datagen makes datasets");
  }
  require_regular_file(path);
  return parse_manifest(read_file(path), path);
}

DatasetReader::DatasetReader(const std::string& folder, RowChecks checks) : state_(std::make_unique<State>()) {
  state_->folder = folder;
  DatasetManifest& manifest = state_->manifest;
  manifest = read_manifest(folder);
  state_->fingerprint = manifest.fingerprint();
  try {
    if (manifest.shards.size() != manifest.num_shards()) {
      fail_data(folder, "not complete: " + missing_shards(manifest), kAgainHint);
    }
    std::vector<const ShardEntry*> entries;
    for (const ShardEntry& entry : manifest.shards) entries.push_back(&entry);
    state_->shards = open_shards(folder, manifest, entries);
  } catch (const Error& e) {
    const std::vector<DatasetWriter> writers = dataset_writers(folder);
    if (writers.empty()) throw;
    // dataset.json and the shards may have changed one after the other.
    throw Error(e.kind(), e.what(),
                folder + " is being written by " + writers.front().owner + ": wait until it has ended");
  }
  // Compressed shards were expanded, after all of the file was compared with its checksum.
  if (checks == RowChecks::kNone || manifest.compressed) return;
  std::vector<ShardChecks::Item> items;
  for (std::size_t s = 0; s < state_->shards.size(); ++s) {
    const Shard& shard = state_->shards[s];
    items.push_back({shard.path, {shard.mapping.data(), shard.mapping.size()}, manifest.shards[s].crc32c});
  }
  state_->checks = std::make_unique<ShardChecks>(std::move(items), kAgainHint);
}

DatasetReader::~DatasetReader() = default;
DatasetReader::DatasetReader(DatasetReader&&) noexcept = default;
DatasetReader& DatasetReader::operator=(DatasetReader&&) noexcept = default;

std::uint64_t DatasetReader::size() const {
  return state_->manifest.rows;
}
bool DatasetReader::has_oracle() const {
  return state_->manifest.oracle;
}
const std::vector<std::string>& DatasetReader::distributions() const {
  return state_->manifest.distributions;
}
const std::string& DatasetReader::fingerprint() const {
  return state_->fingerprint;
}
const DatasetManifest& DatasetReader::manifest() const {
  return state_->manifest;
}

RowProblem DatasetReader::State::read_row(std::uint64_t i) const {
  if (i >= manifest.rows) {
    throw Error(ErrorKind::kUsage, folder + ": row " + std::to_string(i) + " of " + std::to_string(manifest.rows) +
                                       " asked for, rows count from 0");
  }
  if (checks) checks->require(i / manifest.shard_rows);
  const Shard& shard = shard_of(i);
  const std::uint64_t at = i % manifest.shard_rows;
  RowProblem row;
  std::memcpy(row.caw.data(), shard.caw + at * kCawRowBytes, kCawRowBytes);
  auto* bytes = reinterpret_cast<char*>(&row);
  const std::vector<DatasetColumn>& columns = dataset_columns(false, manifest.version);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const DatasetColumn& column = columns[c];
    std::memcpy(bytes + column.member_offset, shard.columns[c] + at * column.row_bytes(), column.row_bytes());
  }
  return row;
}

RowProblem DatasetReader::row(std::uint64_t i) const {
  const RowProblem row = state_->read_row(i);
  // Version 1 has no rows with this enumeration; check_row() refuses values that are no enumeration at all.
  if (state_->manifest.version == 1 && row.schedule > pipeline::Schedule::k1f1bOverlap) {
    state_->bad_row(
        i, "schedule is " + std::to_string(static_cast<unsigned>(row.schedule)) + ", expected 0 or 1 in version 1");
  }
  if (row.distribution >= state_->manifest.distributions.size()) {
    state_->bad_row(i, "distribution is " + std::to_string(row.distribution) + ", but there are " +
                           std::to_string(state_->manifest.distributions.size()));
  }
  try {
    pipeline::check_row(row);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kData) throw;
    state_->bad_row(i, e.what());
  }
  return row;
}

std::optional<OracleLabel> DatasetReader::oracle(std::uint64_t i) const {
  if (!has_oracle()) return std::nullopt;
  const RowProblem row = this->row(i);
  const int instructions = pipeline::instructions_of_row(row), devices = pipeline::devices_of_row(row);
  const Shard& shard = state_->shard_of(i);
  const std::uint64_t at = i % state_->manifest.shard_rows;
  const std::size_t first = dataset_columns(false, state_->manifest.version).size();
  std::int16_t cuts[kOracleBoundaries], device_cuts[kOracleBoundaries];
  float length = 0;
  std::memcpy(cuts, shard.columns[first] + at * sizeof cuts, sizeof cuts);
  std::memcpy(device_cuts, shard.columns[first + 1] + at * sizeof device_cuts, sizeof device_cuts);
  std::uint8_t variants[kOracleBoundaries + 1] = {};
  const bool has_variants = state_->manifest.version >= 2;
  if (has_variants) std::memcpy(variants, shard.columns[first + 2] + at * sizeof variants, sizeof variants);
  std::memcpy(&length, shard.columns[first + (has_variants ? 3 : 2)] + at * sizeof length, sizeof length);
  if (std::isnan(length)) return std::nullopt;
  OracleLabel label;
  label.length_ms = static_cast<double>(length) * static_cast<double>(row.scale_ms);
  if (std::isinf(length) && length > 0) return label;
  if (!(length > 0)) state_->bad_row(i, "oracle/length is " + std::to_string(length) + ", expected a length above 0");
  if (row.stages > kOracleBoundaries + 1) {
    state_->bad_row(i, "labelled, but has " + std::to_string(row.stages) + " stages: there is no room for its cuts");
  }
  for (std::size_t s = 0; s + 1 < row.stages; ++s) {
    const int cut = cuts[s] < 1 || cuts[s] > kGranularity ? 0 : cut_of_grid_point(cuts[s], row.num_instructions);
    const int cut_before = s == 0 ? 0 : label.cuts.back(), device_before = s == 0 ? 0 : label.device_cuts.back();
    if (cut <= cut_before || cut >= instructions || device_cuts[s] <= device_before || device_cuts[s] >= devices) {
      state_->bad_row(i, "the label's cuts are no plan of " + std::to_string(row.stages) + " stages");
    }
    label.cuts.push_back(cut);
    label.device_cuts.push_back(device_cuts[s]);
  }
  const int most_variants = pipeline::variants_of_row(row);
  for (std::size_t s = 0; row.samples > 0 && s < row.stages; ++s) {
    if (variants[s] >= most_variants) {
      state_->bad_row(i, "oracle/variants of stage " + std::to_string(s + 1) + " is " + std::to_string(variants[s]) +
                             ", expected less than " + std::to_string(most_variants));
    }
    label.variants.push_back(variants[s]);
  }
  return label;
}

namespace {

// Reads all of a shard; `progress` gets the bytes done. Returns the fault, or nullopt.
std::optional<std::string> compare_hashes(const std::string& path, const ShardEntry& entry, ShardHashes hashes,
                                          const std::function<void(std::uint64_t)>& progress) {
  const Mapping mapping(path, entry.bytes);
  std::uint32_t crc = 0;
  Sha256 sha;
  const bool hashed = hashes == ShardHashes::kCrcAndSha && !entry.sha256.empty();
  constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
  for (std::uint64_t at = 0; at < mapping.size(); at += kBlockBytes) {
    const std::string_view block(mapping.data() + at, std::min(kBlockBytes, mapping.size() - at));
    crc = crc32c(block, crc);
    if (hashed) sha.update(block);
    if (progress) progress(at);
  }
  if (crc != entry.crc32c) return "another CRC-32C than in dataset.json: its bytes were changed";
  if (hashed && sha.hex() != entry.sha256) return "another SHA-256 than in dataset.json: its bytes were changed";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> shard_problem(const std::string& folder, const DatasetManifest& manifest,
                                         const ShardEntry& entry, ShardHashes hashes) {
  try {
    // The cheaper look first.
    open_shards(folder, manifest, {&entry});
    return compare_hashes(folder + "/" + entry.file, entry, hashes, {});
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kData && e.kind() != ErrorKind::kIo) throw;
    return e.what();
  }
}

std::vector<DatasetProblem> verify_dataset(const std::string& folder,
                                           const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const DatasetManifest manifest = read_manifest(folder);
  std::vector<DatasetProblem> problems;
  std::uint64_t done_rows = 0;
  for (std::uint64_t s = 0; s < manifest.num_shards(); ++s) {
    const std::string file = shard_file_name(s);
    const ShardEntry* entry = manifest.find(s);
    const std::size_t problems_before = problems.size();
    const auto report = [&](std::optional<std::uint64_t> row, std::string what) {
      problems.push_back({file, row, std::move(what)});
    };
    if (entry == nullptr) {
      report(std::nullopt, "missing: dataset.json does not list it");
      continue;
    }
    try {
      const auto wrong = compare_hashes(folder + "/" + file, *entry, ShardHashes::kCrcAndSha, [&](std::uint64_t at) {
        if (progress) progress(done_rows + entry->rows * at / entry->bytes / 2, manifest.rows);
      });
      if (wrong) report(std::nullopt, *wrong);
      // A dataset of this one shard.
      DatasetReader reader;
      reader.state_ = std::make_unique<DatasetReader::State>();
      DatasetReader::State& state = *reader.state_;
      state.folder = folder;
      state.manifest = manifest;
      state.shards.resize(s + 1);
      state.shards[s] = std::move(open_shards(folder, manifest, {entry}).front());
      constexpr std::uint64_t kProgressRows = 4096;
      constexpr int kMostRowsNamed = 10;
      int named = 0;
      for (std::uint64_t i = 0; i < entry->rows && named < kMostRowsNamed; ++i) {
        try {
          reader.row(entry->first_row + i);
          reader.oracle(entry->first_row + i);
        } catch (const Error& e) {
          if (e.kind() != ErrorKind::kData) throw;
          // The message starts with the place, which is told apart from it here.
          const std::string place = state.shards[s].path + ", row " + std::to_string(i) + ": ";
          const std::string what = e.what();
          report(i, what.rfind(place, 0) == 0 ? what.substr(place.size()) : what);
          ++named;
        }
        if (progress && i % kProgressRows == 0) progress(done_rows + (entry->rows + i) / 2, manifest.rows);
      }
      if (named == kMostRowsNamed) report(std::nullopt, "further rows not looked at");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kData && e.kind() != ErrorKind::kIo) throw;
      if (problems.size() == problems_before) report(std::nullopt, e.what());
    }
    done_rows += entry->rows;
  }
  return problems;
}

}  // namespace automap::io
