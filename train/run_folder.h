// The folder of a run, which one trainer at a time may write.
#pragma once

#include <optional>
#include <string>

#include "common/base/folder_lock.h"

namespace automap::train {

class RunFolder {
 public:
  // Takes the lock when the folder exists, so that its files do not change while they are read. Creates nothing besides
  // the lock's file. Throws Error(kIo) naming the owner when another process has the lock.
  RunFolder(std::string folder, bool resume);

  // True if there is a checkpoint to go on from.
  bool resuming() const { return resuming_; }
  // Makes the folder where it was missing, takes its lock, and removes the half-written files of killed runs. Throws
  // Error(kUsage) when the folder holds a run and `resume` was false, Error(kIo).
  void prepare();
  // To be called before anything is written: throws Error(kIo) when the folder was removed or replaced.
  void check() const;

 private:
  void lock();
  std::string folder_;
  bool resume_ = false, resuming_ = false;
  std::optional<FolderLock> lock_;
};

}  // namespace automap::train
