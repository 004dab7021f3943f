// Writes datasets of rows (docs/formats/dataset.md): the folder with its manifest, and one shard at a time.
//
//   DatasetFolder folder("data", wanted);             // new, or continued when it holds the same thing
//   ShardWriter shard("data", folder.manifest(), 0);
//   shard.set_row(i, row) ... (any thread, any order);  shard.append(caw, rows) ... (in order, one at a time)
//   folder.add(shard.commit());
//
// A shard appears whole or not at all, and is listed in dataset.json only once it is on disk. Several processes may
// write different shards of one folder at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/io/dataset.h"
#include "common/io/dataset_format.h"
#include "common/io/dataset_lock.h"

namespace automap::io {

class DatasetFolder {
 public:
  // Creates the folder (not its parents) and dataset.json, or reads those that exist. With more rows wanted than there
  // are the manifest grows, and a last shard that was not full has to be written again. A damaged dataset.json is made
  // again from `wanted` and from those of its lines that agree with their shards, once these or the rest of the file
  // show that it is the same dataset. Removes temporary files that killed runs left. For as long as this object lives
  // nobody else makes the shards first_shard .. last_shard - 1, nor changes the number of rows. Throws Error(kConfig)
  // when the folder holds something else, naming every difference; Error(kIo) when another process is at these shards,
  // naming it; Error(kIo), Error(kData).
  DatasetFolder(std::string folder, const DatasetManifest& wanted, std::uint64_t first_shard = 0,
                std::uint64_t last_shard = UINT64_MAX);
  ~DatasetFolder();
  DatasetFolder(const DatasetFolder&) = delete;
  DatasetFolder& operator=(const DatasetFolder&) = delete;

  const DatasetManifest& manifest() const { return manifest_; }
  // True when the shard is listed and its file agrees with the list (shard_problem, without SHA-256: the list has a
  // checksum of its own, and its entries were compared with the files before it got one).
  bool is_complete(std::uint64_t shard) const;
  // Lists a finished shard: reads dataset.json again (others may have written), rewrites it atomically.
  void add(const ShardEntry& entry);

 private:
  std::string folder_;
  DatasetManifest manifest_;
  std::optional<ShardClaim> claim_;
};

// Compresses rows into the bytes of a chunk of a compressed shard: shuffle and deflate as the HDF5 filters of these
// names do. `rows` <= chunk_rows; missing rows are zeros. Safe from any thread.
std::string compress_chunk(const float* caw, std::uint64_t rows, std::uint64_t chunk_rows);

class ShardWriter {
 public:
  // Rows of a chunk of a compressed shard (fewer when the shard has fewer).
  static constexpr std::uint64_t kChunkRows = 1024;

  // Creates the temporary file and reserves its space. Throws Error(kIo) naming the shard: disk full, not writable.
  ShardWriter(const std::string& folder, const DatasetManifest& manifest, std::uint64_t shard);
  ~ShardWriter();  // removes the temporary file unless committed
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  std::uint64_t first_row() const { return first_row_; }
  std::uint64_t rows() const { return rows_; }
  std::uint64_t chunk_rows() const { return chunk_rows_; }

  // Everything of row `i` (of the shard) but its arrays. Different rows may be set at the same time.
  void set_row(std::uint64_t i, const pipeline::RowProblem& row);
  // Without a call a row of a dataset with labels counts as not labelled.
  void set_label(std::uint64_t i, const OracleLabel& label, const pipeline::RowProblem& row);

  // The next `rows` rows of /caw (uncompressed), or the next chunk as compress_chunk gave it. Rows in memory aligned to
  // kDirectAlignment, as many as fill whole multiples of it (8, 16, ...), pass by the page cache, which costs more than
  // making them.
  static constexpr std::size_t kDirectAlignment = 4096;
  void append(const float* caw, std::uint64_t rows);
  void append_chunk(std::string_view bytes);

  // All rows must be there. Writes the columns, syncs, renames; the entry for the manifest.
  ShardEntry commit();

 private:
  struct File;
  void write_at(std::uint64_t offset, std::string_view bytes);
  bool write_direct(std::uint64_t offset, std::string_view bytes);
  void hash(std::string_view bytes);
  void hash_file(std::uint64_t begin, std::uint64_t end, bool rest);

  std::string folder_, name_, path_;
  bool oracle_ = false, compressed_ = false, hash_at_end_ = false;
  std::uint64_t first_row_ = 0, rows_ = 0, chunk_rows_ = 0;
  std::uint64_t appended_ = 0, write_back_from_ = 0, caw_offset_ = 0;
  std::vector<std::vector<char>> columns_;
  std::vector<std::uint64_t> column_offsets_;
  std::uint32_t crc_ = 0, rest_crc_ = 0;
  std::unique_ptr<File> file_;
};

}  // namespace automap::io
