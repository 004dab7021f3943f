// Opens parts of the programs on demand: the code that needs LibTorch (0.4 s and 160 MB to start) is a library of its
// own, libautomap_learned.so (plan/plugin), beside the programs or where it is installed.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.h"

namespace automap {

constexpr char kLearnedLibrary[] = "libautomap_learned.so";

// Folders where the library is looked for, in this order: beside the program (build folder), and where it is installed.
std::vector<std::string> plugin_folders();
// Its path; empty when it is in none of the folders. Costs a look at the file system.
std::string find_plugin(const std::vector<std::string>& folders);
// What --version prints: version_line(), what it was built with, and whether the library is there.
std::string version_report(const std::string& program);
// A function of it, which is opened and never closed: LibTorch's threads outlive a search. Throws Error(kConfig) with
// `hint` when it cannot be opened (LibTorch is gone), is of another version than this program, or has no such function.
// The library logs as the program does from then on, and memory that runs out in it is reported by the program
// (common/base/memory.h).
void* plugin_function(const std::string& path, const char* name, const std::string& hint);

// The program's StopToken: the library has a copy of its own, which no signal reaches.
using StopRequested = bool() noexcept;

// version_line() of the library: classes cross the border, so both sides must come from the same sources.
using PluginVersion = const char*();
constexpr char kPluginVersion[] = "automap_plugin_version";

// set_log_level() of the library, whose level is a copy of its own, too.
using PluginLogLevel = void(LogLevel);
constexpr char kPluginLogLevel[] = "automap_plugin_log_level";

}  // namespace automap
