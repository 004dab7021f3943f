#include "common/base/plugin.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <exception>
#include <new>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/log.h"

#ifndef AUTOMAP_PLUGIN_FOLDER
// From the programs' folder to the library's in an installed copy.
#define AUTOMAP_PLUGIN_FOLDER "../lib/automap"
#endif

namespace automap {

namespace {

// Address space that opening LibTorch and its least use take. OpenBLAS, which it computes with, asks for its buffers
// without end where it gets none, from when it is opened on: nothing that a program can catch ends that.
constexpr std::size_t kRoom = std::size_t{960} << 20;

void check_room() {
  void* const room = ::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  ::munmap(room, kRoom);
}

}  // namespace

std::vector<std::string> plugin_folders() {
  const std::string here = executable_folder();
  return {here, here + "/" + AUTOMAP_PLUGIN_FOLDER};
}

std::string find_plugin(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::string path = folder + "/" + kLearnedLibrary;
    struct stat status;
    if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) return path;
  }
  return "";
}

std::string version_report(const std::string& program) {
  const std::string library = find_plugin(plugin_folders());
  return program + ": " + version_line() + "\nbuilt with " + built_with() + "\n" +
         (library.empty()
              ? std::string("nothing that learns: no ") + kLearnedLibrary + " (LibTorch) beside the programs"
              : "what learns (LibTorch): " + library) +
         "\n";
}

void* plugin_function(const std::string& path, const char* name, const std::string& hint) {
  const auto cannot_use = [&](const std::string& why) {
    throw Error(ErrorKind::kConfig, path + ": cannot be used: " + why, hint);
  };
  const auto text = [] {
    const char* error = ::dlerror();
    return std::string(error ? error : "unknown error");
  };
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) == nullptr) check_room();  // not open yet
  ::dlerror();
  // The library installs the handler of its own copy of common/base, which knows neither --json nor temporary files.
  const std::terminate_handler handler = std::get_terminate();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::set_terminate(handler);
  if (!library) cannot_use(text());
  const auto version = reinterpret_cast<PluginVersion*>(::dlsym(library, kPluginVersion));
  if (!version) cannot_use(text());
  if (version() != version_line()) {
    cannot_use("it is of " + std::string(version()) + ", this program is " + version_line());
  }
  const auto set_level = reinterpret_cast<PluginLogLevel*>(::dlsym(library, kPluginLogLevel));
  if (!set_level) cannot_use(text());
  set_level(log_level());
  void* function = ::dlsym(library, name);
  if (!function) cannot_use(text());
  return function;
}

}  // namespace automap
