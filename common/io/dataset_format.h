// The format of a dataset on disk, shared by its writer and its reader: the columns of a shard and dataset.json
// (docs/formats/dataset.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/pipeline/row_problem.h"

namespace automap::io {

constexpr std::string_view kDatasetSchemaName = "automap.caw";
// Version 1 has no rows of whole samples; 2 has a SHA-256 of every shard, which took longer than all else that is done
// with a row's bytes, instead of one of the list. Both are read, and not written any more.
constexpr int kDatasetVersion = 3;
constexpr const char* kManifestName = "dataset.json";
// The hint for shards that are missing or damaged.
constexpr const char* kAgainHint = "run the automap-datagen command again: it writes the missing and damaged shards";
std::string dataset_schema(int version = kDatasetVersion);  // "automap.caw/3"

// Data starts at multiples of this in a shard, so that a reader can map it.
constexpr std::uint64_t kAlignment = 65536;
constexpr int kDeflateLevel = 1;  // of compressed shards

// Bytes of one row of /caw, f32[3][128].
constexpr std::size_t kCawRowBytes = 3 * pipeline::kGranularity * sizeof(float);
// Boundaries that the columns of labels have room for: 16 stages.
constexpr int kOracleBoundaries = 15;
constexpr std::uint8_t kNoVariant = 255;  // behind the last stage of a label

enum class ColumnType : std::uint8_t { kF32, kU8, kU16, kU32, kI16 };
std::size_t bytes_of(ColumnType type);

// A column besides /caw: N values, or N x width.
struct DatasetColumn {
  const char* name;   // without a leading slash
  const char* units;  // "ms", "W units", ...; "1" for plain numbers
  ColumnType type;
  int width;
  bool oracle;                // only with labels
  int since;                  // version of the format
  std::size_t member_offset;  // where in RowProblem; not used by columns of labels
  std::size_t row_bytes() const { return bytes_of(type) * static_cast<std::size_t>(width); }
};
// Columns of a version, with or without labels, in the order they stand in a shard; those of labels are the last: cuts,
// device_cuts, variants (from version 2 on), length.
const std::vector<DatasetColumn>& dataset_columns(bool oracle, int version = kDatasetVersion);

// One finished shard.
struct ShardEntry {
  std::string file;  // "shard-000000.h5"
  std::uint64_t first_row = 0, rows = 0, bytes = 0;
  std::uint64_t caw_offset = 0;  // where /caw starts; 0 in compressed shards
  std::uint32_t crc32c = 0;      // of the whole file
  // The checksum of the file without /caw: HDF5's structures and the small columns, few enough to be checked whenever a
  // dataset is opened (and before the HDF5 library, which damaged structures can crash, sees them). Compressed: of the
  // whole file.
  std::uint32_t rest_crc32c = 0;
  std::string sha256;  // of the whole file; empty from version 3 on
};

struct DatasetManifest {
  int version = kDatasetVersion;
  std::string generator;  // "AutoMap 0.1.0": what made the rows
  std::uint64_t rows = 0, shard_rows = 0, seed = 0;
  bool oracle = false, compressed = false;
  std::vector<std::string> distributions;
  std::string config_json;         // canonical: compact, keys as given
  std::vector<ShardEntry> shards;  // finished ones, by first_row
  bool checksum = true;            // as read: false when dataset.json has none of its own, as older versions wrote it

  std::uint64_t num_shards() const { return (rows + shard_rows - 1) / shard_rows; }
  std::uint64_t rows_of_shard(std::uint64_t shard) const;
  const ShardEntry* find(std::uint64_t shard) const;  // nullptr: not finished
  // SHA-256 of everything that determines the rows: generator, seed, rows, config, labels. Not of how they are stored.
  std::string fingerprint() const;
};

std::string shard_file_name(std::uint64_t shard);

// Instruction cut p of problem_of_row (1 .. min(n, 128)) <-> the first grid point k = 1..128 that stands for it. The
// same number from n = 128 on; n = 64: cut 3 <-> point 6.
int grid_point(int cut, std::uint32_t num_instructions);
int cut_of_grid_point(int point, std::uint32_t num_instructions);

// JSON text parsed and written again without blanks, the order of keys kept. Throws Error(kConfig) naming `source`.
std::string canonical_json(std::string_view text, const std::string& source);

// Ends with a checksum of all before it, so that every change of the file is found.
std::string to_json_text(const DatasetManifest& manifest);
// Throws Error(kData) naming `source` and the key: not JSON, another schema, a newer version, another checksum,
// missing, unknown, out of range, shards that overlap.
DatasetManifest parse_manifest(std::string_view text, const std::string& source);
// The list of shards as far as a damaged dataset.json still has it: its lines that fit `manifest`. Their entries are
// still to be compared with the files.
std::vector<ShardEntry> salvage_entries(std::string_view text, const DatasetManifest& manifest);

}  // namespace automap::io
