// Locks on files and folders that one process at a time may write. The kernel holds them (flock), so that they end with
// the process, however it ends: there is nothing to clean up after a kill, and nothing to wait for. The file says who
// holds it, for the messages of others; only the lock decides. Readers need none of this and never create a file.
//
// A child process that is forked does not inherit them, one that is executed neither. On a file system without locks a
// warning is given, once, and the lock is taken as had.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/atomic_file.h"

namespace automap {

// The lock file of a folder; empty while nobody holds it. It stays, because removing it would race with others.
constexpr const char* kFolderLockName = ".lock";

class LockFile {
 public:
  enum class AtEnd { kEmpty, kRemove };  // what becomes of the file

  // Creates the file when it is missing. Nothing when somebody else holds the lock. Throws Error(kIo) when it cannot be
  // made or opened, and when it is a link or holds something else than AutoMap's own text, which would be overwritten.
  static std::optional<LockFile> try_take(const std::string& path, AtEnd at_end = AtEnd::kEmpty);
  // Waits until nobody else holds it; says for whom when that takes long.
  static LockFile take(const std::string& path);

  ~LockFile();
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&&) = delete;

  // False when the file was removed or replaced since: then others can hold another lock of that name.
  bool in_place() const;

 private:
  LockFile(std::string path, int fd, AtEnd at_end);
  void release() noexcept;
  std::string path_;
  int fd_ = -1;
  AtEnd at_end_ = AtEnd::kEmpty;
  std::unique_ptr<RemoveOnSignal> remove_on_signal_;
};

// True if some process holds the lock of this file; false when there is no such file.
bool is_locked(const std::string& path);
// True if certainly no process holds it; false also where the file system has no locks, or where the file cannot be
// opened.
bool is_unlocked(const std::string& path);

// The process that wrote that it holds the lock: "automap-train, process 4711 on node7, since 2026-11-22 05:47:17 UTC
// (automap-train --out runs/first)", or "another process" when the file says nothing. Without control characters.
std::string lock_owner(const std::string& path);

// The lock of a whole folder, which must exist.
class FolderLock {
 public:
  // Throws Error(kIo) naming folder and owner when another process holds it, with `hint` as what to do.
  FolderLock(std::string folder, const std::string& hint);
  // Throws Error(kIo) when the folder was removed or replaced since, and is no longer ours to write.
  void check() const;

 private:
  std::string folder_;
  LockFile file_;
};

}  // namespace automap
