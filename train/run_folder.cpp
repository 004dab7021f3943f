#include "train/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/inputs.h"

namespace automap::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFiles[] = {"checkpoint",   "policy.bin", "config.ini", "run.json",
                                       "heldout.json", "report.md",  "curves.csv", "events.out.tfevents.automap"};

// NAME.PID.tmp of one of a run's files. With the lock in hand nobody writes them.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".tmp") continue;
    const bool ours = std::any_of(std::begin(kFiles), std::end(kFiles), [&](std::string_view file) {
      return name.size() > file.size() && name.compare(0, file.size(), file) == 0 && name[file.size()] == '.';
    });
    if (ours) fs::remove(entry.path(), error);
  }
}

}  // namespace

RunFolder::RunFolder(std::string folder, bool resume) : folder_(std::move(folder)), resume_(resume) {
  std::error_code error;
  if (fs::is_directory(folder_, error)) lock();
  resuming_ = resume_ && fs::exists(folder_ + "/checkpoint", error);
}

void RunFolder::lock() {
  lock_.emplace(folder_, "wait until it has ended, or choose another --out");
}

void RunFolder::prepare() {
  create_folders(folder_);
  if (!lock_) lock();
  std::error_code error;
  if (!resuming_ && fs::exists(folder_ + "/checkpoint", error)) {
    throw Error(ErrorKind::kUsage, folder_ + " already holds a run",
                "go on with it by --resume, or choose another --out");
  }
  // A run goes on with its own options, and writes them again.
  if (resume_) forget_input(folder_ + "/config.ini");
  check_folder(folder_, std::vector<std::string>(std::begin(kFiles), std::end(kFiles)));
  remove_leftovers(folder_);
}

void RunFolder::check() const {
  if (lock_) lock_->check();
}

}  // namespace automap::train
