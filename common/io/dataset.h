// Datasets of rows: `automap.caw/3`, a folder of HDF5 shards and dataset.json (docs/formats/dataset.md).
// The reader maps uncompressed shards into memory and never calls the HDF5 library after opening, so row() is safe and
// fast from any thread; compressed shards are expanded once into memory when opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/plan.h"
#include "common/pipeline/row_problem.h"

namespace automap::io {

struct DatasetManifest;  // common/io/dataset_format.h
struct ShardEntry;

// The exact optimum of a row over its own pivots, under its schedule, stages and memory limit.
struct OracleLabel {
  std::vector<int> cuts;         // instruction cuts of problem_of_row(row); empty with length_ms = infinity: infeasible
  std::vector<int> device_cuts;  // 1 .. D-1
  double length_ms = 0;          // V, in the units of problem_of_row; stored as f32: right to 1e-7
  std::vector<std::uint8_t> variants = {};  // [S], of those that problem_of_row(row) has; empty: the first
};

// A fault that verify_dataset found in a shard, or in one of its rows (counted in the shard, from 0).
struct DatasetProblem {
  std::string shard;
  std::optional<std::uint64_t> row;
  std::string what;
};
// Compares every shard's size and checksums with dataset.json and checks every row; goes on behind problems, at
// most ten rows of a shard are named. `progress` gets rows done and rows in all. Throws as DatasetReader does when
// there is no dataset, or one of another version. Flipped bits in the data are found here and not by DatasetReader.
std::vector<DatasetProblem> verify_dataset(const std::string& folder,
                                           const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

// SHA-256, which lists of versions 1 and 2 have, takes ten times as long as everything else on processors without
// instructions for it. Version 3 has one of the list, which is looked at with it.
enum class ShardHashes { kCrc, kCrcAndSha };
// The fault of a shard that dataset.json lists: compares all entries of the manifest, its attributes and its structure,
// but not its rows. nullopt when all is as listed.
std::optional<std::string> shard_problem(const std::string& folder, const DatasetManifest& manifest,
                                         const ShardEntry& entry, ShardHashes hashes);

// dataset.json of a folder, whether or not all shards are there. Throws Error(kIo) / Error(kData).
DatasetManifest read_manifest(const std::string& folder);

// When the bytes of /caw are compared with their checksums.
enum class RowChecks {
  kNone,       // never: verify_dataset does
  kBeforeUse,  // those of a shard before its first row is given out, all others meanwhile, by a thread of low priority
};

class DatasetReader {
 public:
  // Throws Error(kIo) / Error(kData) naming the shard or key: missing, cut short, of a newer version, without rows, not
  // complete, being written. Opening costs about a millisecond per shard. The files must not be changed in place while
  // open; automap-datagen replaces them whole, and the reader keeps those that it opened.
  explicit DatasetReader(const std::string& folder, RowChecks checks = RowChecks::kNone);
  ~DatasetReader();
  DatasetReader(DatasetReader&&) noexcept;
  DatasetReader& operator=(DatasetReader&&) noexcept;

  std::uint64_t size() const;
  // Throws Error(kData) naming shard and row when the row holds NaN or nonsense; with kBeforeUse also, naming the
  // shard, once any shard was found to be damaged.
  pipeline::RowProblem row(std::uint64_t i) const;
  bool has_oracle() const;
  // Nothing when the row was not labelled (docs/formats/dataset.md says which are not).
  std::optional<OracleLabel> oracle(std::uint64_t i) const;
  const std::vector<std::string>& distributions() const;
  const std::string& fingerprint() const;  // of the manifest: changes with seed, config and rows
  const DatasetManifest& manifest() const;

 private:
  friend std::vector<DatasetProblem> verify_dataset(const std::string& folder,
                                                    const std::function<void(std::uint64_t, std::uint64_t)>& progress);
  DatasetReader() = default;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace automap::io
