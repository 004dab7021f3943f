// Writes rows as a dataset on disk: worker threads make blocks of rows, blocks of a shard are written in order, and
// finished shards are synced by a thread of their own while the next ones are made. The files depend on the rows alone,
// not on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/io/dataset.h"
#include "common/pipeline/row_problem.h"

namespace automap::datagen {

// Rows and their description; Generator::row behind a function, or rows made by hand in tests.
struct RowSource {
  std::function<pipeline::RowProblem(std::uint64_t index)> row;  // called from several threads
  std::string config_json;
  std::vector<std::string> distributions;
  std::string generator;  // "AutoMap 0.1.0"
};

struct GenerateOptions {
  std::string folder;
  std::uint64_t rows = 0;
  std::uint64_t seed = 0;
  std::uint64_t shard_rows = 65536;  // 1 .. kMostShardRows
  // Shards first_shard .. last_shard - 1 only (a job of an array); clipped to the shards there are.
  std::uint64_t first_shard = 0;
  std::uint64_t last_shard = UINT64_MAX;
  bool oracle = false;
  bool compress = false;
  int threads = 1;
};
// Keeps a shard's columns, which stay in memory until it is written, below 15 MB (35 MB with labels).
constexpr std::uint64_t kMostShardRows = 262144;

struct GenerateResult {
  std::uint64_t shards_written = 0, rows_written = 0;
  std::uint64_t shards_kept = 0;  // were complete
  std::uint64_t rows_labelled = 0, rows_infeasible = 0, rows_unlabelled = 0;
  bool stopped = false;  // before all was done
};

struct GenerateHooks {
  // Rows done and rows to do, those of kept shards included; from one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  std::function<bool()> stop;  // polled for every block; true ends cleanly
};

// Writes the missing shards of the dataset. Throws Error(kConfig) when the folder holds another dataset, Error(kUsage)
// on wrong options, Error(kIo) when writing fails: finished shards stay, nothing half written does.
GenerateResult generate_dataset(const RowSource& source, const GenerateOptions& options,
                                const GenerateHooks& hooks = {});

// The exact optimum of a row under its stages and schedule, or nothing where that would take too long: above
// kMostLabelledDevices devices, or after kMostLabelEffort looks of the exact solver at its stop flag. Both are counts,
// so that a row is labelled on every machine or on none.
constexpr int kMostLabelledDevices = 64;
constexpr long long kMostLabelEffort = 200'000;
std::optional<io::OracleLabel> label_row(const pipeline::RowProblem& row);

}  // namespace automap::datagen
