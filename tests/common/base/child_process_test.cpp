#include "common/base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"

namespace automap {
namespace {

using testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// More than a thread keeps for itself.
std::vector<std::unique_ptr<char[]>> blocks_of(std::size_t size) {
  std::vector<std::unique_ptr<char[]>> blocks(std::clamp<std::size_t>((std::size_t{1} << 18) / size, 3, 300));
  for (auto& block : blocks) block.reset(new char[size]);
  return blocks;
}

ChildResult result_of(const std::function<std::string()>& work, const ChildLimits& limits = {}) {
  return ChildProcess([&](ChildInput&) { return work(); }, limits).finish();
}

TEST(ChildProcess, TheAnswerComesBackWhole) {
  for (const std::size_t size : {0u, 1u, 100'000u, 20'000'000u}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; i += 97) text[i] = static_cast<char>(i);
    EXPECT_EQ(result_of([&] { return text; }).answer, text);
  }
}

TEST(ChildProcess, SharedMemoryIsSeenAndOtherMemoryIsNot) {
  auto* shared =
      static_cast<int*>(::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  int own = 1;
  EXPECT_EQ(result_of([&] {
              *shared = own = 7;
              return std::string("done");
            }).answer,
            "done");
  EXPECT_EQ(*shared, 7);
  EXPECT_EQ(own, 1);
  ::munmap(shared, sizeof(int));
}

TEST(ChildProcess, MessagesArriveInOrder) {
  ChildProcess child(
      [](ChildInput& input) {
        std::string all;
        while (const auto message = input.next()) all += std::to_string(message->size()) + ",";
        return all;
      },
      {});
  EXPECT_TRUE(child.send(""));
  EXPECT_TRUE(child.send(std::string(3'000'000, 'x')));
  EXPECT_TRUE(child.send("abc"));
  EXPECT_EQ(child.finish().answer, "0,3000000,3,");
}

TEST(ChildProcess, ErrorsAreThrownHere) {
  try {
    result_of([]() -> std::string { throw Error(ErrorKind::kData, "f: wrong", "do this"); });
    ADD_FAILURE() << "not thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    EXPECT_STREQ(e.what(), "f: wrong");
    EXPECT_EQ(e.hint(), "do this");
  }
  const ChildResult no_memory = result_of([]() -> std::string { throw std::bad_alloc(); });
  EXPECT_FALSE(no_memory.answer);
  EXPECT_TRUE(no_memory.out_of_memory);
  EXPECT_FALSE(no_memory.over_budget);
  EXPECT_THAT(result_of([]() -> std::string { throw std::runtime_error("odd"); }).failure, HasSubstr("odd"));
}

TEST(ChildProcess, ACrashIsAResult) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGKILL}) {
    const ChildResult crashed = result_of([&]() -> std::string {
      ::raise(number);
      return "alive";
    });
    EXPECT_FALSE(crashed.answer);
    EXPECT_THAT(crashed.failure, HasSubstr("killed by signal " + std::to_string(number)));
  }
  const ChildResult left = result_of([]() -> std::string { ::_exit(5); });
  EXPECT_FALSE(left.answer);
  EXPECT_THAT(left.failure, HasSubstr("exit code 5"));
}

TEST(ChildProcess, ACrashWhileItIsSentTo) {
  ChildProcess child(
      [](ChildInput& input) -> std::string {
        input.next();
        std::abort();
      },
      {});
  const std::string message(1'000'000, 'x');
  int sent = 0;
  while (child.send(message) && sent < 1000) ++sent;
  EXPECT_LT(sent, 1000);
  EXPECT_THAT(child.finish().failure, HasSubstr("killed by signal 6"));
}

TEST(ChildProcess, ComputingForEverEnds) {
  ChildLimits limits;
  limits.seconds = 1;
  const ChildResult late = result_of(
      []() -> std::string {
        for (volatile unsigned i = 0;; i = i + 1) {
        }
      },
      limits);
  EXPECT_FALSE(late.answer);
  EXPECT_EQ(late.failure, "not done after 1 s");
}

TEST(ChildProcess, MemoryAboveTheBudgetIsRefused) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve terabytes: no limit of address space was tried";
  ChildLimits limits;
  limits.memory_bytes = std::uint64_t{64} << 20;
  const auto take = [](std::size_t bytes) {
    return [bytes] { return std::to_string(std::vector<char>(bytes, 'x').size()); };
  };
  EXPECT_EQ(result_of(take(std::size_t{16} << 20), limits).answer, std::to_string(16 << 20));
  const ChildResult refused = result_of(take(std::size_t{256} << 20), limits);
  EXPECT_FALSE(refused.answer);
  EXPECT_TRUE(refused.out_of_memory);
  EXPECT_TRUE(refused.over_budget);
}

TEST(ChildProcess, DescriptorsAreGoneAndFilesCannotBeOpened) {
  const int file = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(file, 0);
  const auto look = [&] {
    const bool open = ::fcntl(file, F_GETFD) >= 0;
    const bool can_open = ::open("/dev/null", O_RDONLY) >= 0;
    return std::string(open ? "open," : "closed,") + (can_open ? "can" : "cannot");
  };
  EXPECT_EQ(result_of(look).answer, kSanitized ? "closed,can" : "closed,cannot");
  ChildLimits limits;
  limits.files = true;
  EXPECT_EQ(result_of(look, limits).answer, "closed,can");
  ::close(file);
}

std::atomic<int> handled{0};

TEST(ChildProcess, HandlersOfThisProcessDoNotRunThere) {
  handled = 0;
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { ++handled; };
  ASSERT_EQ(::sigaction(SIGTERM, &action, &before), 0);
  const auto work = [] {
    ::raise(SIGTERM);  // what a terminal sends to all is for the parent
    return std::to_string(handled.load());
  };
  EXPECT_EQ(result_of(work).answer, "0");
  // And still run here.
  ::raise(SIGTERM);
  EXPECT_EQ(handled, 1);
  ::sigaction(SIGTERM, &before, nullptr);
}

TEST(ChildProcess, OneThatIsNotWaitedForIsKilled) {
  auto* number = static_cast<std::atomic<pid_t>*>(
      ::mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(number, MAP_FAILED);
  {
    ChildProcess child(
        [&](ChildInput& input) -> std::string {
          *number = ::getpid();
          input.next();
          return "";
        },
        {});
    while (*number == 0) std::this_thread::yield();
    EXPECT_EQ(::kill(*number, 0), 0);
  }
  EXPECT_EQ(::kill(*number, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  ::munmap(number, sizeof *number);
}

// A sanitizer's allocator is locked for ever in a child that is forked while another thread holds its lock, and has a
// lock for every class of sizes: whichever is taken here is wanted there.
TEST(ChildProcess, OtherThreadsAllocateMeanwhile) {
  std::atomic<std::size_t> size{1};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&size] {
      while (const std::size_t each = size) {
        const std::vector<std::unique_ptr<char[]>> blocks = blocks_of(each);
        EXPECT_TRUE(blocks.back());
      }
    });
  }
  ChildLimits limits;
  limits.seconds = 2;
  for (const std::size_t each : {20, 60, 100, 150, 150, 150, 200, 250, 500, 3'000, 20'000, 60'000, 110'000, 200'000}) {
    size = each;
    const auto work = [&] { return blocks_of(each).back() ? std::string("done") : std::string(); };
    const ChildResult result = result_of(work, limits);
    EXPECT_EQ(result.answer, "done") << each << ": " << result.failure;
  }
  size = 0;
  for (std::thread& thread : threads) thread.join();
}

TEST(ChildProcess, FromManyThreads) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string expected(static_cast<std::size_t>(1000 * t + i), 'x');
        if (result_of([&] { return expected; }).answer != expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace automap
