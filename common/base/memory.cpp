#include "common/base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap {

// The texts stand once, as macros, so that they can be joined into messages before anything can fail.
#define AUTOMAP_OUT_OF_MEMORY "out of memory"
#define AUTOMAP_OUT_OF_MEMORY_HINT \
  "close other programs, raise the limit (ulimit -v), or use a machine with more memory; nothing half written is left"

const char kOutOfMemoryMessage[] = AUTOMAP_OUT_OF_MEMORY;
const char kOutOfMemoryHint[] = AUTOMAP_OUT_OF_MEMORY_HINT;

namespace {

bool (*json_wanted)() = nullptr;
std::terminate_handler handler_before = nullptr;

void write_static(int fd, const char* text) noexcept {
  std::size_t left = std::strlen(text);
  while (left > 0) {
    const ssize_t written = ::write(fd, text, left);
    if (written <= 0) return;
    text += written;
    left -= static_cast<std::size_t>(written);
  }
}

// As large as the exceptions that are thrown here, with what the runtime needs of each.
constexpr std::size_t kExceptionBytes = 512;

// Where memory runs out as early as while libraries are loaded, the runtime has no store of its own for exceptions
// either: it then ends without one instead of throwing std::bad_alloc, here too when one is to be thrown again.
bool no_exception_can_be_made() {
  void* const room = std::malloc(kExceptionBytes);
  asm volatile("" : : "r"(room) : "memory");  // the compiler may not take it for needless
  std::free(room);
  return room == nullptr;
}

void on_terminate() {
  static thread_local bool entered = false;
  if (entered || no_exception_can_be_made()) end_out_of_memory(json_wanted != nullptr && json_wanted());
  entered = true;
  if (const std::exception_ptr error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      if (is_out_of_memory(e)) end_out_of_memory(json_wanted != nullptr && json_wanted());
    } catch (...) {  // somebody else's exception: a bug, for the handler before
    }
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

// Before the constructors of global objects, which may run out of memory, too.
__attribute__((constructor(101))) void install_terminate_handler() {
  handler_before = std::set_terminate(on_terminate);
}

// Far more than any of the programs' stacks was seen to need; one page of it is really used.
constexpr std::size_t kStackBytes = std::size_t{1} << 20;

__attribute__((noinline)) void grow_stack() {
  char block[kStackBytes];
  // The compiler may not take the far end of the stack for unused.
  asm volatile("" : : "r"(block) : "memory");
  block[0] = 0;
  asm volatile("" : : "r"(block) : "memory");
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && (system->code() == std::errc::not_enough_memory ||
                               system->code() == std::errc::resource_unavailable_try_again);
}

void end_out_of_memory(bool json) noexcept {
  internal::unlink_temporary_files();
  write_static(STDERR_FILENO, "error: " AUTOMAP_OUT_OF_MEMORY "\n  hint: " AUTOMAP_OUT_OF_MEMORY_HINT "\n");
  if (json) {
    write_static(STDOUT_FILENO,
                 "{\n  \"error\": {\n    \"kind\": \"memory\",\n    \"message\": \"" AUTOMAP_OUT_OF_MEMORY
                 "\",\n    \"hint\": \"" AUTOMAP_OUT_OF_MEMORY_HINT "\"\n  }\n}\n");
  }
  ::_exit(exit_code(ErrorKind::kMemory));
}

namespace {

// True if the stack may grow by so much: neither its own limit nor that of the address space forbids it.
bool stack_may_grow() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 4 * kStackBytes) {
    return false;
  }
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  void* const room = ::mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, 2 * kStackBytes);
  return true;
}

}  // namespace

void prepare_for_out_of_memory(bool (*json)()) {
  json_wanted = json;
  if (stack_may_grow()) grow_stack();
}

}  // namespace automap
