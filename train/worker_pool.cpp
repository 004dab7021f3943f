#include "train/worker_pool.h"

#include <utility>

#include "common/base/check.h"

namespace automap::train {

WorkerPool::WorkerPool(int background) {
  threads_.reserve(static_cast<std::size_t>(background));
  try {
    for (int i = 0; i < background; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    // No more threads to be had, or no memory for them: those there are, and the caller, do the work.
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    quit_ = true;
    limit_.store(0);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::start(std::size_t count, std::function<void(std::size_t)> task) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    AM_CHECK(count_ == 0);
    // A thread that woke up late looks at the job before, which is over.
    idle_.wait(lock, [&] { return busy_ == 0; });
    task_ = std::move(task);
    count_ = count;
    next_.store(0);
    ended_.store(0);
    limit_.store(count);
    failure_ = nullptr;
    ++job_;
  }
  wake_.notify_all();
}

void WorkerPool::run_tasks(std::size_t count, const std::function<void(std::size_t)>& task) {
  for (;;) {
    const std::size_t index = next_.fetch_add(1);
    if (index >= count || index >= limit_.load()) return;
    try {
      task(index);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      limit_.store(0);
      if (!failure_ || index < failed_task_) {
        failure_ = std::current_exception();
        failed_task_ = index;
      }
    }
    ended_.fetch_add(1, std::memory_order_release);
  }
}

void WorkerPool::work() {
  std::uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return quit_ || job_ != seen; });
    if (quit_) return;
    seen = job_;
    const std::size_t count = count_;
    ++busy_;
    lock.unlock();
    // task_ stays as it is until wait() has seen this thread idle again.
    run_tasks(count, task_);
    lock.lock();
    if (--busy_ == 0) idle_.notify_all();
  }
}

void WorkerPool::wait() {
  std::size_t count = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    count = count_;
  }
  run_tasks(count, task_);
  std::exception_ptr failure;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [&] { return busy_ == 0; });
    count_ = 0;
    limit_.store(0);
    task_ = nullptr;
    failure = std::exchange(failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace automap::train
