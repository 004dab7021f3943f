// Datasets of rows: `automap.caw/1`, a folder of HDF5 shards and dataset.json (docs/formats/dataset.md).
// The reader maps uncompressed shards into memory and never calls the HDF5 library after opening, so row() is safe and
// fast from any thread; compressed shards are expanded once into memory when opened.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/plan.h"
#include "common/pipeline/row_problem.h"

namespace automap::io {

// The exact optimum of a row over its own pivots, under its schedule, stages and memory limit.
struct OracleLabel {
  std::vector<int> cuts;         // instruction cuts of problem_of_row(row); empty with length_ms = infinity: infeasible
  std::vector<int> device_cuts;  // 1 .. D-1
  double length_ms = 0;          // V, in the units of problem_of_row
};

class DatasetReader {
 public:
  // Throws Error(kIo) / Error(kData) naming the shard or key: missing, cut short, of a newer version, without rows.
  explicit DatasetReader(const std::string& folder);
  ~DatasetReader();
  DatasetReader(DatasetReader&&) noexcept;
  DatasetReader& operator=(DatasetReader&&) noexcept;

  std::uint64_t size() const;
  // Throws Error(kData) naming shard and row when the row holds NaN or nonsense.
  pipeline::RowProblem row(std::uint64_t i) const;
  bool has_oracle() const;
  std::optional<OracleLabel> oracle(std::uint64_t i) const;
  const std::vector<std::string>& distributions() const;
  const std::string& fingerprint() const;  // of the manifest: changes with seed, config and rows

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace automap::io
