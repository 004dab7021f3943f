// Runs work that may crash, hang or take all memory in a process of its own: a fork of this one, with limits.
//
// It is for libraries that do not withstand hostile input or a lack of memory. The child sees this process's memory as
// it was; its changes there are lost, and all it returns is one string, the answer (or memory mapped MAP_SHARED).
//
//   ChildProcess child([&](ChildInput&) { return parse(bytes); }, limits);
//   const ChildResult result = child.finish();
//
// May be used from several threads at once. The work must not use streams, threads or locks that another thread may
// hold; allocating is fine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace automap {

struct ChildLimits {
  // Processor time. Wall time is limited, too, while finish() waits for a sign of life: ten times as much and 20 s
  // more. 0: no limit.
  unsigned seconds = 0;
  // Address space, on top of this process's own. 0, or when built with a sanitizer: no limit.
  std::uint64_t memory_bytes = 0;
  // May open and write files; else it has no descriptors and can open none (when built with a sanitizer: can).
  bool files = false;
  // Goes on when the thread that started it ends. Else it is killed then, also when the whole process is.
  bool outlives_thread = false;
};

struct ChildResult {
  std::optional<std::string> answer;
  // When there is none: "killed by signal 11 (Segmentation fault)", "out of memory", "not done after 4 s".
  std::string failure;
  bool out_of_memory = false;  // it said so itself, by std::bad_alloc
  bool over_budget = false;    // out of memory because of memory_bytes, not of the machine or of ulimit
};

// The messages that the parent sends.
class ChildInput {
 public:
  // The next message; nothing once the parent has called finish(). Ends the child when the parent is gone.
  std::optional<std::string> next();

 private:
  friend class ChildProcess;
  explicit ChildInput(int socket) : socket_(socket) {}
  int socket_;
};

class ChildProcess {
 public:
  using Work = std::function<std::string(ChildInput&)>;

  // Starts the work. Throws Error(kIo) when the system gives no process or descriptor, std::bad_alloc for lack of
  // memory.
  ChildProcess(const Work& work, const ChildLimits& limits);
  ~ChildProcess();  // kills what still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // A message for ChildInput::next(), waiting while the child is busy. False: the child has ended; finish() says why.
  bool send(std::string_view message);
  // Waits for the end. An Error that the work threw is thrown again here; call once.
  ChildResult finish();

 private:
  void start(const Work& work);
  [[noreturn]] void run_child(const Work& work, pid_t parent);
  std::string end();  // kills what still runs; how the child ended

  ChildLimits limits_;
  bool may_hang_ = false;  // in a lock of a sanitizer's allocator
  bool over_budget_possible_ = false;
  pid_t pid_ = -1;
  int socket_ = -1;        // this side's
  int child_socket_ = -1;  // only while starting
};

}  // namespace automap
