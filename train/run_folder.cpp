#include "train/run_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/error.h"

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
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw Error(ErrorKind::kIo, folder_ + ": cannot be created: " + error.message());
  if (!lock_) lock();
  if (!resuming_ && fs::exists(folder_ + "/checkpoint", error)) {
    throw Error(ErrorKind::kUsage, folder_ + " already holds a run",
                "go on with it by --resume, or choose another --out");
  }
  remove_leftovers(folder_);
}

void RunFolder::check() const {
  if (lock_) lock_->check();
}

}  // namespace automap::train
