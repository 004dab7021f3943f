// Progress of a long job on standard error: on a terminal one line that rewrites itself, shown after half a second;
// elsewhere a plain line every 30 seconds. Silent with --quiet.
//
//   search  41 %  2.1M/5.0M plans  18.3k/s  ETA 02:38  best 812 ms
//   planning  00:03  best so far 349 ms a step
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

  // `total` 0: unknown, no percentage and no ETA. `unit` empty: counts and rate mean nothing to people, not shown. With
  // neither the line says for how long the job has run.
  Progress(std::string label, std::uint64_t total, std::string unit);
  // For tests: where time comes from, where lines go, and how many columns that has; 0: it is no terminal.
  Progress(std::string label, std::uint64_t total, std::string unit, Clock clock,
           std::function<void(const std::string&)> write, int columns);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap enough to call per item, from any thread: prints at most 10 times a second. `note` ends the line.
  void update(std::uint64_t done, const std::string& note = "");
  // From now on the line ends with this, where update() has no note. A terminal shows it at once.
  void say(const std::string& note);
  // Clears the terminal line. The destructor does it too.
  void finish();

 private:
  std::string line(const std::string& note, double now) const;
  void write_on_terminal(const std::string& note, double now);

  std::mutex mutex_;  // of what follows
  std::string label_, unit_;
  std::uint64_t total_;
  Clock clock_;
  std::function<void(const std::string&)> write_;
  int columns_;
  bool shown_ = false, enabled_ = true;
  std::uint64_t done_ = 0;
  std::string said_;
  double start_, last_ = 0;
};

}  // namespace automap
