#include "common/base/inputs.h"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"

namespace automap {
namespace {

struct Memory {
  std::mutex mutex;
  bool on = false;
  std::map<FileId, std::string> inputs;
};

// Never destroyed: files are still written while a program ends.
Memory& memory() {
  static auto* const it = new Memory;
  return *it;
}

constexpr const char* kOtherFile = "write to another file";

// An output's place, whether or not a file is there.
struct Place {
  std::optional<FileId> file;    // when it is there
  std::optional<FileId> folder;  // that it is in
  std::string name;
};

Place place_of(const std::string& path) {
  Place place;
  if (const int descriptor = descriptor_of_output(path); descriptor >= 0) {
    place.file = regular_file_id(descriptor);
    return place;
  }
  place.file = regular_file_id(path);
  const std::string resolved = resolve_output(path);
  // Devices and pipes may be written by several at once.
  if (!place.file && ::access(resolved.c_str(), F_OK) == 0) return place;
  place.folder = folder_id(folder_of(resolved));
  place.name = name_in_folder(resolved);
  return place;
}

bool same_place(const Place& a, const Place& b) {
  if (a.file || b.file) return a.file == b.file;
  return a.folder && b.folder && a.folder == b.folder && a.name == b.name;
}

// True if a folder is the one that holds `path`, or one above it.
bool is_inside(const std::string& path, const FileId& folder) {
  char resolved[PATH_MAX];
  if (descriptor_of_output(path) >= 0 || !::realpath(folder_of(resolve_output(path)).c_str(), resolved)) return false;
  for (std::string at = resolved;; at = folder_of(at)) {
    if (folder_id(at) == folder) return true;
    if (at == "/") return false;
  }
}

bool reads(const NamedFile& file) {
  return file.role == FileRole::kReadsFile || file.role == FileRole::kReadsFolder;
}

std::optional<FileId> input_id(const NamedFile& file) {
  return file.path == "-" ? regular_file_id(STDIN_FILENO) : regular_file_id(file.path);
}

void check_against_inputs(const NamedFile& output, const Place& place, const std::vector<NamedFile>& files) {
  for (const NamedFile& input : files) {
    if (!reads(input)) continue;
    if (const auto id = input_id(input); id && place.file == id) {
      throw Error(ErrorKind::kUsage,
                  output.option + " would replace " + input.option + " " + input_name(input.path) +
                      (output.path == input.path ? "" : ": " + output.path + " is the same file"),
                  kOtherFile);
    }
    if (input.role != FileRole::kReadsFolder) continue;
    if (const auto folder = folder_id(input.path); folder && is_inside(output.path, *folder)) {
      throw Error(
          ErrorKind::kUsage,
          output.option + " " + output.path + " is inside " + input.option + " " + input.path + ", which is only read",
          "write to another folder");
    }
  }
}

}  // namespace

void check_files(const std::vector<NamedFile>& files) {
  std::vector<std::pair<const NamedFile*, Place>> outputs;
  for (const NamedFile& output : files) {
    if (output.role != FileRole::kWritesFile) continue;
    const Place place = place_of(output.path);
    check_against_inputs(output, place, files);
    const bool standard = descriptor_of_output(output.path) == STDOUT_FILENO;
    if (!standard && place.file && place.file == regular_file_id(STDOUT_FILENO)) {
      set_json_errors(false);  // they would go there, too
      throw Error(ErrorKind::kUsage, "standard output goes to " + output.option + " " + output.path + ", too",
                  "give each its own file, or " + output.option + " - for standard output");
    }
    for (const auto& [other, other_place] : outputs) {
      const bool both_standard = standard && descriptor_of_output(other->path) == STDOUT_FILENO;
      if (!both_standard && !same_place(place, other_place)) continue;
      throw Error(
          ErrorKind::kUsage,
          other->option + " and " + output.option + " both want " + (both_standard ? "standard output" : output.path),
          "give each its own file");
    }
    outputs.emplace_back(&output, place);
  }
  // Whatever a program does, it prints.
  const auto standard = regular_file_id(STDOUT_FILENO);
  for (const NamedFile& input : files) {
    if (!standard || !reads(input) || !(input_id(input) == standard)) continue;
    set_json_errors(false);  // they would go there, too
    throw Error(ErrorKind::kUsage,
                "standard output goes to " + input.option + " " + input_name(input.path) + ", which is read",
                "redirect it to another file");
  }
}

void remember_input(int descriptor, const std::string& name) {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  if (!m.on) return;
  if (const auto id = regular_file_id(descriptor)) m.inputs[*id] = name;
}

void forget_input(const std::string& path) {
  if (const auto id = regular_file_id(path)) forget_input(*id);
}

void forget_input(const FileId& id) {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  m.inputs.erase(id);
}

void check_output(const std::string& path, const std::string& shown) {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  if (m.inputs.empty()) return;
  const auto id = regular_file_id(path);
  const auto input = id ? m.inputs.find(*id) : m.inputs.end();
  if (input == m.inputs.end()) return;
  throw Error(ErrorKind::kUsage,
              "writing " + shown + " would replace an input" +
                  (input->second == shown ? "" : ": it is the same file as " + input->second),
              kOtherFile);
}

void check_folder(const std::string& folder, const std::vector<std::string>& patterns) {
  for (const std::string& name : names_in_folder(folder)) {
    const bool ours = std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
      return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
    if (ours) check_output(folder + "/" + name, folder + "/" + name);
  }
}

namespace internal {
void remember_inputs(bool on) {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  m.on = on;
  if (!on) m.inputs.clear();
}
}  // namespace internal

}  // namespace automap
