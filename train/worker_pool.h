// A pool of threads works through numbered tasks while the caller does something else; actors and evaluation run on it.
// Threads take tasks in no fixed order; results are stored by task number, so that nothing depends on it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace automap::train {

class WorkerPool {
 public:
  // Starts `background` threads; with 0 the caller does everything itself in wait().
  explicit WorkerPool(int background);
  // Drops tasks that have not begun and waits for those that run.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Begins task(0) .. task(count - 1), each once. The job before must have been waited for.
  void start(std::size_t count, std::function<void(std::size_t)> task);
  // The number of tasks that have ended.
  std::size_t done() const { return ended_.load(std::memory_order_acquire); }
  // Works along until every task has ended. Throws what the failed task with the smallest number threw; after a failure
  // no further task begins.
  void wait();
  int threads() const { return static_cast<int>(threads_.size()) + 1; }

 private:
  void work();
  void run_tasks(std::size_t count, const std::function<void(std::size_t)>& task);

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::function<void(std::size_t)> task_;
  std::size_t count_ = 0;
  std::uint64_t job_ = 0;
  int busy_ = 0;
  bool quit_ = false;
  std::atomic<std::size_t> next_{0}, ended_{0}, limit_{0};
  std::exception_ptr failure_;
  std::size_t failed_task_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace automap::train
