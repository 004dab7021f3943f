// Resolves paths and places outputs.
//
// One rule for links, for files and folders alike: an output is written to where its link points, also when nothing is
// there yet; a loop of links is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automap {

// A file as the system knows it, whatever it is called: by links, as ./x, in letters of another case.
struct FileId {
  std::uint64_t device = 0, inode = 0;
  bool operator==(const FileId& other) const { return device == other.device && inode == other.inode; }
  bool operator<(const FileId& other) const {
    return device != other.device ? device < other.device : inode < other.inode;
  }
};

// The id of a regular file, links followed; nullopt when nothing has that name, or when it is a folder, a device, a
// pipe.
std::optional<FileId> regular_file_id(const std::string& path);
std::optional<FileId> regular_file_id(int descriptor);
// The id of a folder, links followed.
std::optional<FileId> folder_id(const std::string& path);

// "a/b" -> "a", "/b" -> "/", "b" -> ".".
std::string folder_of(const std::string& path);
// The part of a path behind the last slash.
std::string name_in_folder(const std::string& path);
// All names in a folder, in no order; none when it cannot be read.
std::vector<std::string> names_in_folder(const std::string& folder);

// The descriptor that an output path stands for: "-" and /dev/stdout are 1, /dev/stderr 2, /dev/fd/N N; else -1. Opened
// by their paths they would be files of their own, written from the start and over their old content.
int descriptor_of_output(const std::string& path);

// The path where a file written to `path` will be: links followed, the last of which may point at a file that does not
// exist yet. Throws Error(kIo) naming a loop of links, or a part of the path that is no folder.
std::string resolve_output(const std::string& path);

// Makes the folder and those above it that are missing; none of it is an error when it is there. A dangling link is
// followed. Throws Error(kIo): not writable, a file is in the way, a loop of links.
void create_folders(const std::string& path);

// "cannot write PATH: REASON", with what to do about it. `error` is an errno.
[[noreturn]] void throw_write_error(const std::string& path, int error);

}  // namespace automap
