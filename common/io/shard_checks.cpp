#include "common/io/shard_checks.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap::io {
namespace {

constexpr std::size_t kNone = SIZE_MAX;
constexpr int kLowestPriority = 19;

}  // namespace

struct ShardChecks::State {
  struct Shard {
    std::mutex mutex;  // of whoever reads it
    std::atomic<bool> wanted{false};
    std::atomic<bool> right{false};
  };

  State(std::vector<Item> items, std::string the_hint)
      : shards(std::move(items)), progress(shards.size()), hint(std::move(the_hint)) {}

  void fail(std::size_t shard) const {
    throw Error(ErrorKind::kData,
                shards[shard].path + ": damaged, or changed after it was written: another CRC-32C than in dataset.json",
                hint);
  }

  // False when the shard is damaged. In the background also when it is left to whoever waits for it, who has a better
  // priority, or when all is over.
  bool check(std::size_t shard, bool background) {
    Shard& one = progress[shard];
    if (one.right.load(std::memory_order_acquire)) return true;
    if (!background) one.wanted.store(true, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> guard(one.mutex);
    if (one.right.load(std::memory_order_acquire)) return true;
    constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
    const std::string_view bytes = shards[shard].bytes;
    std::uint32_t crc = 0;
    for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes) {
      if (background && (over.load(std::memory_order_relaxed) || one.wanted.load(std::memory_order_relaxed))) {
        return false;
      }
      crc = crc32c(bytes.substr(at, kBlockBytes), crc);
    }
    if (crc == shards[shard].crc32c) {
      one.right.store(true, std::memory_order_release);
      return true;
    }
    std::size_t none = kNone;
    damaged.compare_exchange_strong(none, shard);
    return false;
  }

  void look_at_all() {
    // On Linux this changes the priority of this thread alone.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLowestPriority));
    for (std::size_t shard = 0; shard < shards.size() && !over && damaged == kNone; ++shard) check(shard, true);
  }

  const std::vector<Item> shards;
  std::vector<Shard> progress;
  const std::string hint;
  std::atomic<std::size_t> damaged{kNone};  // the first that was found
  std::atomic<bool> over{false};
  std::thread thread;
};

ShardChecks::ShardChecks(std::vector<Item> shards, std::string hint)
    : state_(std::make_unique<State>(std::move(shards), std::move(hint))) {
  try {
    state_->thread = std::thread([state = state_.get()] { state->look_at_all(); });
  } catch (const std::system_error&) {
    // No thread to be had: each shard is read when it is asked for.
  }
}

ShardChecks::~ShardChecks() {
  state_->over = true;
  if (state_->thread.joinable()) state_->thread.join();
}

void ShardChecks::require(std::size_t shard) {
  State& state = *state_;
  if (const std::size_t found = state.damaged.load(std::memory_order_acquire); found != kNone) state.fail(found);
  if (!state.check(shard, false)) state.fail(state.damaged.load(std::memory_order_acquire));
}

}  // namespace automap::io
