// Writes files that appear whole or not at all, alone or together.
#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace automap {

// No signal ends the process while it lives: between the making of a temporary file and its RemoveOnSignal.
class SignalsWait {
 public:
  SignalsWait();
  ~SignalsWait();
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_;
};

// While it lives, a signal that ends the process removes the file first. Any number may live.
class RemoveOnSignal {
 public:
  explicit RemoveOnSignal(const std::string& path);
  ~RemoveOnSignal();
  RemoveOnSignal(const RemoveOnSignal&) = delete;
  RemoveOnSignal& operator=(const RemoveOnSignal&) = delete;
  struct Slot;

 private:
  Slot* slot_;
};

// A file that appears complete or not at all: bytes go to a temporary file in the same folder, commit() syncs it and
// renames it over the path, then syncs the folder. Without commit(), and when a signal ends the process, the temporary
// file is removed and the file at the path stays as it was. A symbolic link is followed, also to a target that does not
// exist yet; the mode of a replaced file is kept. After a kill -9 the temporary file stays; the next AtomicFile for the
// same path removes it, because nobody holds its lock.
//
// Where renaming makes no sense ("-" = standard output, /dev/fd/N, pipes, devices) the bytes are kept in memory and
// written at the end.
//
// Every failure throws Error(kIo) that names the path and the reason (no such folder, not writable, a directory, disk
// full, a loop of links), except Error(kUsage) when the path is a file that this program has read
// (common/base/inputs.h).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  // For writers that want a path (HDF5): an existing empty file; close it before commit().
  const std::string& temporary_path();
  // Everything that can fail, so that a program can print its report before commit(): syncs the bytes; streams get them
  // here. Nothing can be written any more.
  void prepare();
  // Calls prepare(), flushes the text printed so far, then renames the file.
  void commit();

 private:
  friend class OutputSet;
  bool is_stream() const { return target_path_.empty(); }
  void open_temporary();
  void write_stream();
  // Several files become one step: `undoable` keeps the old file until finish().
  static void prepare_all(const std::vector<AtomicFile*>& files);
  static void commit_all(const std::vector<AtomicFile*>& files);
  void publish(bool undoable);
  void withdraw();
  void finish();
  void discard();

  std::string path_;         // as the user gave it
  std::string target_path_;  // with links followed; empty for a stream
  std::string temporary_path_;
  std::string bytes_;  // of a stream
  int fd_ = -1;
  std::unique_ptr<RemoveOnSignal> cleanup_;
  bool replaces_ = false, prepared_ = false, published_ = false, exchanged_ = false;
};

// The files that one run writes: all of them appear, or none. Streams among them, and standard output, are written
// before any file appears; where a file cannot be renamed into its place, those that were are taken back.
class OutputSet {
 public:
  // Throws as AtomicFile. The file lives as long as the set.
  AtomicFile& add(const std::string& path);
  bool empty() const { return files_.empty(); }
  void prepare();
  void commit();

 private:
  std::vector<AtomicFile*> all() const;
  std::vector<std::unique_ptr<AtomicFile>> files_;
};

// AtomicFile(path).write(bytes).commit().
void write_file_atomic(const std::string& path, std::string_view bytes);

namespace internal {
// For the end of the process only; async-signal-safe. Removes the files of every RemoveOnSignal; no other thread makes
// one after it.
void unlink_temporary_files() noexcept;
// True while files are being renamed into their places: the signal is raised again when they are.
bool signal_must_wait(int signal_number) noexcept;
}  // namespace internal

}  // namespace automap
