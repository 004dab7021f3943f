#include "common/base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/clock.h"
#include "common/base/fitted_table.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"

namespace automap {
namespace {

constexpr double kFirstShownS = 0.5, kTerminalPeriodS = 0.1, kPlainPeriodS = 30;

constexpr int kUsualColumns = 80;  // of a terminal that does not say

// 0: standard error is no terminal.
int columns_of_stderr() {
  if (::isatty(STDERR_FILENO) != 1) return 0;
  const int columns = columns_of_terminal(STDERR_FILENO);
  return columns > 1 ? columns : kUsualColumns;
}

void write_stderr(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string scaled(double value) {
  static const char* const kUnits[] = {"", "k", "M", "G"};
  std::size_t unit = 0;
  while (value >= (unit == 0 ? 9999.5 : 999.5) && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return (unit == 0 && value == std::floor(value) ? std::to_string(static_cast<long long>(value))
                                                  : format_number(value)) +
         kUnits[unit];
}

std::string clock_text(double seconds) {
  char text[64];
  const long long s = std::llround(seconds);
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%02lld:%02lld", s / 60, s % 60);
  }
  return text;
}

}  // namespace

Progress::Progress(std::string label, std::uint64_t total, std::string unit)
    : Progress(std::move(label), total, std::move(unit), steady_seconds, write_stderr, columns_of_stderr()) {
  enabled_ = log_level() != LogLevel::kQuiet;
}

Progress::Progress(std::string label, std::uint64_t total, std::string unit, Clock clock,
                   std::function<void(const std::string&)> write, int columns)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      clock_(std::move(clock)),
      write_(std::move(write)),
      columns_(columns),
      start_(clock_()),
      last_(start_) {}

Progress::~Progress() {
  finish();
}

std::string Progress::line(const std::string& note, double now) const {
  std::string out = label_;
  const double elapsed = now - start_, rate = elapsed > 0 ? static_cast<double>(done_) / elapsed : 0;
  if (total_ > 0) {
    out += "  " + std::to_string(std::min<std::uint64_t>(100, done_ * 100 / total_)) + " %";
  } else if (unit_.empty()) {
    out += "  " + clock_text(elapsed);
  }
  if (!unit_.empty()) {
    out += "  " + scaled(static_cast<double>(done_)) + (total_ > 0 ? "/" + scaled(static_cast<double>(total_)) : "") +
           " " + unit_ + "  " + scaled(rate) + "/s";
  }
  constexpr double kLongest = 100 * 3600.0;  // what the first moments say is no estimate
  const double left = rate > 0 ? static_cast<double>(total_ - done_) / rate : kLongest;
  if (total_ > done_ && left < kLongest) out += "  ETA " + clock_text(left);
  const std::string& end = note.empty() ? said_ : note;
  if (!end.empty()) out += "  " + end;
  return printable(out);
}

void Progress::write_on_terminal(const std::string& note, double now) {
  // A line that wraps would not be cleared. A cursor behind the last column would be on the next line.
  write_("\r\x1b[K" + excerpt(line(note, now), columns_ - 1));
  shown_ = true;
  last_ = now;
}

void Progress::update(std::uint64_t done, const std::string& note) {
  if (!enabled_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = done;
  const double now = clock_();
  if (columns_ > 0) {
    if (now - start_ < kFirstShownS || (shown_ && now - last_ < kTerminalPeriodS)) return;
    write_on_terminal(note, now);
  } else if (now - last_ >= kPlainPeriodS) {
    write_(line(note, now) + "\n");
    last_ = now;
  }
}

void Progress::say(const std::string& note) {
  if (!enabled_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  said_ = note;
  if (columns_ > 0) write_on_terminal(note, clock_());
}

void Progress::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shown_) write_("\r\x1b[K");
  shown_ = false;
}

}  // namespace automap
