// HDF5 work for shards of datasets (docs/formats/dataset.md): makes everything but their data, and finds where the data
// lie. It runs in a child process (common/io/hdf5.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/child_process.h"
#include "common/io/dataset_format.h"

namespace automap::io {

// Places of a shard's values in its file, in bytes.
struct ShardPlaces {
  std::uint64_t caw = 0;               // 0 in a compressed shard
  std::vector<std::uint64_t> columns;  // as in dataset_columns()
};

// Properties of a shard that are known before it is made.
struct ShardPlan {
  std::string path;   // of the file, which is overwritten
  std::string shown;  // what people call it
  const DatasetManifest* manifest = nullptr;
  std::uint64_t first_row = 0, rows = 0;
  std::uint64_t chunk_rows = 0;  // of a compressed one
};

// Makes an uncompressed shard without its values. Its bytes depend on the plan only. Throws Error(kIo) naming `shown`.
ShardPlaces make_shard(const ShardPlan& plan);

// Makes a compressed shard while its chunks are made. Failures are thrown by append() or finish() as Error(kIo).
class CompressedShard {
 public:
  // Keeps `reserved_bytes` of disk for the file, where the file system knows that.
  CompressedShard(const ShardPlan& plan, std::uint64_t reserved_bytes);
  // The next chunk of /caw, as compress_chunk() gave it.
  void append(std::string_view chunk);
  // Completes the file.
  ShardPlaces finish();

 private:
  std::string shown_;
  ChildProcess child_;
};

// A shard to read, its file in memory.
struct ShardBytes {
  std::string path;
  std::string_view bytes;
  const ShardEntry* entry = nullptr;
  // For a compressed shard: memory for /caw, shared with the child.
  char* expanded_caw = nullptr;
};

// Looks into shards whose checksum was verified: places of all values, all of them inside of the file, types and shapes
// as the manifest has them; expands /caw where asked to. One child for all. Throws Error(kData) or Error(kIo) naming
// the shard.
std::vector<ShardPlaces> look_into_shards(const std::vector<ShardBytes>& shards, const DatasetManifest& manifest);

}  // namespace automap::io
