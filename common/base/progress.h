// Progress of a long job on standard error: on a terminal one line that rewrites itself, shown after half a second;
// elsewhere a plain line every 30 seconds. Silent with --quiet.
//
//   search  41 %  2.1M/5.0M plans  18.3k/s  ETA 02:38  best 812 ms
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace automap {

class Progress {
 public:
  using Clock = std::function<double()>;  // seconds, any origin

  // `total` 0: unknown, no percentage and no ETA. `unit` empty: counts and rate mean nothing to people, not shown.
  Progress(std::string label, std::uint64_t total, std::string unit);
  // For tests: where time comes from, where lines go, and whether that is a terminal.
  Progress(std::string label, std::uint64_t total, std::string unit, Clock clock,
           std::function<void(const std::string&)> write, bool terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap enough to call per item, from any thread: prints at most 10 times a second. `note` ends the line.
  void update(std::uint64_t done, const std::string& note = "");
  // Clears the terminal line. The destructor does it too.
  void finish();

 private:
  std::string line(std::uint64_t done, const std::string& note, double now) const;

  std::mutex mutex_;  // of what follows
  std::string label_, unit_;
  std::uint64_t total_;
  Clock clock_;
  std::function<void(const std::string&)> write_;
  bool terminal_, shown_ = false, enabled_ = true;
  double start_, last_ = 0;
};

}  // namespace automap
