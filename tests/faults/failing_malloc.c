// Preloaded into a program (LD_PRELOAD), makes allocations fail. From the environment:
//   FAILING_MALLOC=once:N   the N-th allocation since main began fails      after:N   it and all behind it
//   FAILING_MALLOC_COUNT=F  writes how many there were to the file F at the end
// Children share the count of the moment they were made in. Allocations before main (of the libraries' own start) work.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_long count;
static long fail_at;       // 0: never
static int all_behind;     // "after"
static int armed;          // main has begun
static int (*real_main)(int, char**, char**);

static int fails(void) {
  if (!armed) return 0;
  const long n = atomic_fetch_add(&count, 1) + 1;
  if (fail_at == 0 || n < fail_at || (n > fail_at && !all_behind)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t size) {
  return fails() ? NULL : __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  return fails() ? NULL : __libc_calloc(n, size);
}
void* realloc(void* old, size_t size) {
  return fails() ? NULL : __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  return fails() ? NULL : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  if (fails()) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out != NULL ? 0 : ENOMEM;
}

static void write_count(void) {
  const char* path = getenv("FAILING_MALLOC_COUNT");
  if (path == NULL) return;
  char text[32];
  const int size = snprintf(text, sizeof text, "%ld\n", (long)atomic_load(&count));
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd >= 0 && write(fd, text, (size_t)size) != size) _exit(99);
  if (fd >= 0) close(fd);
}

static int counted_main(int argc, char** argv, char** environment) {
  const char* mode = getenv("FAILING_MALLOC");
  if (mode != NULL) {
    all_behind = strncmp(mode, "after:", 6) == 0;
    const char* colon = strchr(mode, ':');
    fail_at = colon != NULL ? atol(colon + 1) : 0;
  }
  if (getenv("FAILING_MALLOC_COUNT") != NULL) atexit(write_count);
  armed = 1;
  return real_main(argc, argv, environment);
}

int __libc_start_main(int (*program_main)(int, char**, char**), int argc, char** argv, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void* stack_end) {
  int (*start)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*) = NULL;
  *(void**)&start = dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = program_main;
  return start(counted_main, argc, argv, init, fini, loader_fini, stack_end);
}
