// The folder of a run, which one trainer at a time may write.
#pragma once

#include <optional>
#include <string>

#include "common/base/folder_lock.h"

namespace automap::train {

class RunFolder {
 public:
  // Takes the lock when the folder is there, so that nothing in it changes while it is read. Nothing is created besides
  // the lock's file. Throws Error(kIo) naming the owner when another process has it.
  RunFolder(std::string folder, bool resume);

  // There is a checkpoint to go on from.
  bool resuming() const { return resuming_; }
  // Makes the folder where it was missing, takes its lock, and removes what killed runs left half written. Throws
  // Error(kUsage) when it holds a run that was not to be resumed, Error(kIo).
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
