#include "datagen/generate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/io/dataset_writer.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/problem.h"

namespace automap::datagen {
namespace {

using io::DatasetFolder;
using io::DatasetManifest;
using io::OracleLabel;
using io::ShardWriter;
using pipeline::RowProblem;

// Large enough to be written directly with one call, small enough to be hashed and written while still in a processor's
// cache. With many threads smaller, for the sake of memory.
constexpr std::uint64_t kBlockRows = 512, kSmallBlockRows = 128;
constexpr int kManyThreads = 64;
// Labels take milliseconds each: smaller blocks spread better.
constexpr std::uint64_t kLabelledBlockRows = 8;
// Shards being made, written or synced at the same time; their columns are in memory.
constexpr int kShardsInFlight = 3;
constexpr auto kPoll = std::chrono::milliseconds(50);

std::optional<OracleLabel> label_row_until(const RowProblem& row, const std::function<bool()>& stop) {
  if (pipeline::devices_of_row(row) > kMostLabelledDevices) return std::nullopt;
  const pipeline::Problem problem = pipeline::problem_of_row(row).problem();
  pipeline::ExactOptions options;
  options.min_stages = options.max_stages = row.stages;
  options.schedule = row.schedule;
  long long effort = 0;
  Work work(WorkLimits::until([&] { return ++effort > kMostLabelEffort || stop(); }));
  options.work = &work;
  const pipeline::ExactResult result = pipeline::solve_exact(problem, options);
  const pipeline::ExactStageResult& answer = result.by_stages.front();
  if (!answer.proven) return std::nullopt;
  OracleLabel label;
  if (answer.plans.empty()) {
    label.length_ms = std::numeric_limits<double>::infinity();
    return label;
  }
  label.cuts = answer.plans.front().cuts;
  label.device_cuts = answer.plans.front().device_cuts;
  label.variants = answer.plans.front().variants;
  label.length_ms = answer.value_ms.front();
  return label;
}

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};

struct RowBlock {
  std::unique_ptr<float[], Free> caw;  // aligned for writing directly
  std::string packed;                  // compressed
  std::uint64_t rows = 0;
};

// The most rows of a block, for any shard of the dataset.
std::uint64_t most_block_rows(const GenerateOptions& options) {
  if (options.compress) return ShardWriter::kChunkRows;
  if (options.oracle) return kLabelledBlockRows;
  return options.threads > kManyThreads ? kSmallBlockRows : kBlockRows;
}

// A shard that workers are filling.
struct ActiveShard {
  ActiveShard(const GenerateOptions& options, const DatasetManifest& manifest, std::uint64_t shard)
      : writer(options.folder, manifest, shard) {
    block_rows = options.compress ? writer.chunk_rows() : most_block_rows(options);
    blocks = (writer.rows() + block_rows - 1) / block_rows;
  }

  ShardWriter writer;
  std::uint64_t block_rows = 0, blocks = 0;
  std::uint64_t next_block = 0;  // to be made; guarded by the pipeline

  std::mutex mutex;  // of what follows
  std::map<std::uint64_t, std::unique_ptr<RowBlock>> ready;
  std::uint64_t next_write = 0;
  bool writing = false;  // a worker is at it
};

class Pipeline {
 public:
  Pipeline(const RowSource& source, const GenerateOptions& options, const GenerateHooks& hooks, DatasetFolder& folder,
           std::deque<std::uint64_t> shards)
      : source_(source),
        options_(options),
        hooks_(hooks),
        folder_(folder),
        manifest_(folder.manifest()),
        shards_(std::move(shards)) {
    for (const std::uint64_t shard : shards_) rows_to_make_ += manifest_.rows_of_shard(shard);
    const std::uint64_t most_useful = (rows_to_make_ + kLabelledBlockRows - 1) / kLabelledBlockRows;
    threads_ = static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(options_.threads), most_useful));
    free_blocks_ = 2 * threads_ + 2;
  }

  void run(std::uint64_t rows_kept, GenerateResult* result) {
    std::vector<std::thread> workers;
    std::thread finisher;
    const auto start = [&](std::thread* thread, void (Pipeline::*body)()) {
      *thread = std::thread([this, body] { captured(body); });
    };
    try {
      start(&finisher, &Pipeline::finish_shards);
      for (int i = 0; i < threads_; ++i) {
        workers.emplace_back();
        start(&workers.back(), &Pipeline::work);
      }
    } catch (...) {
      // No more threads to be had, or no memory for them: those there are do the work.
      if (!workers.empty() && !workers.back().joinable()) workers.pop_back();
      if (workers.empty()) fail(std::current_exception());
    }
    {
      std::unique_lock<std::mutex> lock(mutex_);
      while (!(failed_ || workers_over_ == workers.size())) {
        changed_main_.wait_for(lock, kPoll);
        lock.unlock();
        try {
          if (hooks_.progress) hooks_.progress(rows_kept + rows_done_, rows_kept + rows_to_make_);
          if (hooks_.stop && hooks_.stop()) stopped_ = true;
        } catch (...) {
          fail(std::current_exception());  // only after the threads have ended
        }
        lock.lock();
        if (stopped_) changed_.notify_all();
      }
    }
    for (std::thread& worker : workers) worker.join();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      no_more_ = true;
    }
    changed_.notify_all();
    if (finisher.joinable()) finisher.join();
    // Unfinished files are removed before the failure is reported.
    current_.reset();
    finished_.clear();
    if (failed_) std::rethrow_exception(failed_);
    if (hooks_.progress) hooks_.progress(rows_kept + rows_done_, rows_kept + rows_to_make_);
    result->shards_written = shards_written_;
    result->rows_written = rows_written_;
    result->rows_labelled = labelled_;
    result->rows_infeasible = infeasible_;
    result->rows_unlabelled = unlabelled_;
    result->stopped = stopped_ && rows_written_ < rows_to_make_;
  }

 private:
  struct Task {
    std::shared_ptr<ActiveShard> shard;
    std::uint64_t block = 0;
    std::unique_ptr<RowBlock> buffer;
  };

  void captured(void (Pipeline::*body)()) {
    try {
      (this->*body)();
    } catch (...) {
      fail(std::current_exception());
    }
    if (body == &Pipeline::work) {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++workers_over_;
    }
    changed_.notify_all();
    changed_main_.notify_all();
  }

  void fail(std::exception_ptr why) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_) failed_ = std::move(why);
    stopped_ = true;
  }

  bool halted() const { return stopped_.load(std::memory_order_relaxed); }

  // The next block in the order of rows; nothing when there is no more. The buffer is taken first, so the block that
  // all others may have to wait for always has one.
  std::optional<Task> take() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] {
      return halted() || (!current_ && shards_.empty()) ||
             (free_blocks_ > 0 && (current_ || in_flight_ < kShardsInFlight));
    });
    if (halted() || (!current_ && shards_.empty())) return std::nullopt;
    if (!current_) {
      current_ = std::make_shared<ActiveShard>(options_, manifest_, shards_.front());
      shards_.pop_front();
      ++in_flight_;
    }
    Task task;
    task.shard = current_;
    task.block = current_->next_block++;
    if (current_->next_block == current_->blocks) current_.reset();
    --free_blocks_;
    if (spare_.empty()) {
      task.buffer = std::make_unique<RowBlock>();
    } else {
      task.buffer = std::move(spare_.back());
      spare_.pop_back();
    }
    return task;
  }

  void give_back(std::unique_ptr<RowBlock> block) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      spare_.push_back(std::move(block));
      ++free_blocks_;
    }
    changed_.notify_one();
  }

  void work() {
    while (std::optional<Task> task = take()) {
      if (!make(*task)) return;
      write(std::move(*task));
    }
  }

  // False when stopped half way.
  bool make(Task& task) {
    ShardWriter& writer = task.shard->writer;
    RowBlock& block = *task.buffer;
    const std::uint64_t begin = task.block * task.shard->block_rows;
    block.rows = std::min(task.shard->block_rows, writer.rows() - begin);
    constexpr std::size_t kRowValues = io::kCawRowBytes / sizeof(float);
    if (!block.caw) {
      const std::size_t bytes = most_block_rows(options_) * io::kCawRowBytes;
      block.caw.reset(static_cast<float*>(std::aligned_alloc(
          ShardWriter::kDirectAlignment, (bytes + ShardWriter::kDirectAlignment - 1) / ShardWriter::kDirectAlignment *
                                             ShardWriter::kDirectAlignment)));
      if (!block.caw) throw std::bad_alloc();
    }
    std::uint64_t labelled = 0, infeasible = 0;
    for (std::uint64_t i = 0; i < block.rows; ++i) {
      if (halted()) return false;
      const RowProblem row = source_.row(writer.first_row() + begin + i);
      std::copy(row.caw.begin(), row.caw.end(), block.caw.get() + i * kRowValues);
      writer.set_row(begin + i, row);
      if (!options_.oracle) continue;
      const std::optional<OracleLabel> label = label_row_until(row, [this] { return halted(); });
      if (halted()) return false;
      if (!label) continue;
      writer.set_label(begin + i, *label, row);
      ++(std::isinf(label->length_ms) ? infeasible : labelled);
    }
    labelled_ += labelled;
    infeasible_ += infeasible;
    if (options_.oracle) unlabelled_ += block.rows - labelled - infeasible;
    if (options_.compress) block.packed = io::compress_chunk(block.caw.get(), block.rows, writer.chunk_rows());
    return true;
  }

  // Hands the block in; whoever hands in the one that is due writes it and all that wait behind it.
  void write(Task task) {
    ActiveShard& shard = *task.shard;
    std::unique_lock<std::mutex> lock(shard.mutex);
    shard.ready.emplace(task.block, std::move(task.buffer));
    if (shard.writing) return;
    shard.writing = true;
    while (!shard.ready.empty() && shard.ready.begin()->first == shard.next_write) {
      std::unique_ptr<RowBlock> block = std::move(shard.ready.begin()->second);
      shard.ready.erase(shard.ready.begin());
      lock.unlock();
      if (options_.compress) {
        shard.writer.append_chunk(block->packed);
      } else {
        shard.writer.append(block->caw.get(), block->rows);
      }
      rows_done_ += block->rows;
      give_back(std::move(block));
      lock.lock();
      ++shard.next_write;
    }
    shard.writing = false;
    if (shard.next_write < shard.blocks) return;
    lock.unlock();
    {
      const std::lock_guard<std::mutex> main_lock(mutex_);
      finished_.push_back(std::move(task.shard));
    }
    changed_.notify_all();
  }

  // Syncs and lists finished shards, also those that were finished when a stop came.
  void finish_shards() {
    while (true) {
      std::shared_ptr<ActiveShard> shard;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return failed_ || no_more_ || !finished_.empty(); });
        if (failed_ || finished_.empty()) return;
        shard = std::move(finished_.front());
        finished_.pop_front();
      }
      folder_.add(shard->writer.commit());
      rows_written_ += shard->writer.rows();
      ++shards_written_;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        --in_flight_;
      }
      changed_.notify_all();
    }
  }

  const RowSource& source_;
  const GenerateOptions& options_;
  const GenerateHooks& hooks_;
  DatasetFolder& folder_;  // the finisher's
  const DatasetManifest manifest_;
  int threads_ = 1;
  std::uint64_t rows_to_make_ = 0;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_, changed_main_;
  std::deque<std::uint64_t> shards_;
  std::shared_ptr<ActiveShard> current_;
  std::deque<std::shared_ptr<ActiveShard>> finished_;
  std::vector<std::unique_ptr<RowBlock>> spare_;
  int free_blocks_ = 0, in_flight_ = 0;
  std::size_t workers_over_ = 0;
  bool no_more_ = false;
  std::exception_ptr failed_;

  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> rows_done_{0}, labelled_{0}, infeasible_{0}, unlabelled_{0};
  std::uint64_t rows_written_ = 0, shards_written_ = 0;  // the finisher's
};

}  // namespace

std::optional<OracleLabel> label_row(const RowProblem& row) {
  return label_row_until(row, [] { return false; });
}

GenerateResult generate_dataset(const RowSource& source, const GenerateOptions& options, const GenerateHooks& hooks) {
  if (options.rows == 0) {
    throw Error(ErrorKind::kUsage, "found 0 rows to make, expected at least 1");
  }
  if (options.shard_rows == 0 || options.shard_rows > kMostShardRows) {
    throw Error(ErrorKind::kUsage, "found shards of " + std::to_string(options.shard_rows) + " rows, expected 1 to " +
                                       std::to_string(kMostShardRows));
  }
  if (options.threads < 1) {
    throw Error(ErrorKind::kUsage, "found " + std::to_string(options.threads) + " threads, expected at least 1");
  }
  DatasetManifest wanted;
  wanted.generator = source.generator;
  wanted.rows = options.rows;
  wanted.shard_rows = options.shard_rows;
  wanted.seed = options.seed;
  wanted.oracle = options.oracle;
  wanted.compressed = options.compress;
  wanted.distributions = source.distributions;
  wanted.config_json = io::canonical_json(source.config_json, "the configuration");
  const std::uint64_t last_shard = std::min(options.last_shard, wanted.num_shards());
  if (options.first_shard >= last_shard) {
    throw Error(ErrorKind::kUsage, "no shard in the range " + std::to_string(options.first_shard) + ":" +
                                       std::to_string(options.last_shard) + ": " + std::to_string(options.rows) +
                                       " rows in shards of " + std::to_string(options.shard_rows) + " make " +
                                       std::to_string(wanted.num_shards()));
  }
  DatasetFolder folder(options.folder, wanted, options.first_shard, last_shard);
  const DatasetManifest& manifest = folder.manifest();
  GenerateResult result;
  std::deque<std::uint64_t> shards;
  std::uint64_t rows_kept = 0, rows_in_range = 0;
  for (std::uint64_t s = options.first_shard; s < last_shard; ++s) rows_in_range += manifest.rows_of_shard(s);
  for (std::uint64_t s = options.first_shard; s < last_shard; ++s) {
    if (hooks.stop && hooks.stop()) {
      result.stopped = true;
      return result;
    }
    if (!folder.is_complete(s)) {
      shards.push_back(s);
      continue;
    }
    ++result.shards_kept;
    rows_kept += manifest.rows_of_shard(s);
    if (hooks.progress) hooks.progress(rows_kept, rows_in_range);
  }
  if (!shards.empty()) Pipeline(source, options, hooks, folder, std::move(shards)).run(rows_kept, &result);
  return result;
}

}  // namespace automap::datagen
