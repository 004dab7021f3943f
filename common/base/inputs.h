// Guards inputs against being replaced by outputs, by whatever name. There are two guards, both for every program:
//
// - check_files: before any work, from the table of options, in which every option says whether it names a file that is
//   read or one that is written (common/base/options.h).
// - the memory of all files read: read_file notes each file on the user's behalf, and AtomicFile refuses to replace a
//   noted one. It sees files that no option names: those that a configuration lists, the shards of a dataset. Only
//   programs remember (run_main); code that uses the library may rewrite a file that it has read.
#pragma once

#include <string>
#include <vector>

#include "common/base/paths.h"

namespace automap {

enum class FileRole {
  kNoFile,        // a text, a name
  kReadsFile,     // a file, when there is one of that name: presets and "-" are none
  kReadsFolder,   // a folder of files, or a file
  kWritesFile,    // "-" is standard output
  kWritesFolder,  // its files are checked when it is opened: check_folder
};

struct NamedFile {
  std::string option;  // as in errors: "-o", "--policy", "MODEL"
  std::string path;
  FileRole role;
};

// Throws Error(kUsage) naming both options and the file when an output is an input, is inside a folder that is read, or
// is another output as well; also when standard output goes to a file that is read.
void check_files(const std::vector<NamedFile>& files);

// Notes the file behind the descriptor, called `name` in errors. Pipes and devices are not noted.
void remember_input(int descriptor, const std::string& name);
// The program's own after all: a run folder's options are read from it when the run goes on, and written again.
void forget_input(const std::string& path);
void forget_input(const FileId& id);
// Throws Error(kUsage) when the file at `path` was read; `shown` is what the user calls it.
void check_output(const std::string& path, const std::string& shown);
// The same for files of a folder that the program is going to write: those whose names match one of the patterns
// ("shard-*.h5"). A folder that is not there holds none.
void check_folder(const std::string& folder, const std::vector<std::string>& patterns);

namespace internal {
// Called by run_main: from now on inputs are remembered. Off forgets them.
void remember_inputs(bool on);
}  // namespace internal

}  // namespace automap
