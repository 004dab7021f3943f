#include "common/base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"

namespace automap {
namespace {

constexpr double kFirstShownS = 0.5, kTerminalPeriodS = 0.1, kPlainPeriodS = 30;

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
    : Progress(std::move(label), total, std::move(unit), steady_seconds, write_stderr, ::isatty(STDERR_FILENO) == 1) {
  enabled_ = log_level() != LogLevel::kQuiet;
}

Progress::Progress(std::string label, std::uint64_t total, std::string unit, Clock clock,
                   std::function<void(const std::string&)> write, bool terminal)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      clock_(std::move(clock)),
      write_(std::move(write)),
      terminal_(terminal),
      start_(clock_()),
      last_(start_) {}

Progress::~Progress() {
  finish();
}

std::string Progress::line(std::uint64_t done, const std::string& note, double now) const {
  std::string out = label_;
  const double elapsed = now - start_, rate = elapsed > 0 ? static_cast<double>(done) / elapsed : 0;
  if (total_ > 0) {
    out += "  " + std::to_string(std::min<std::uint64_t>(100, done * 100 / total_)) + " %";
  }
  if (!unit_.empty()) {
    out += "  " + scaled(static_cast<double>(done)) + (total_ > 0 ? "/" + scaled(static_cast<double>(total_)) : "") +
           " " + unit_ + "  " + scaled(rate) + "/s";
  }
  constexpr double kLongest = 100 * 3600.0;  // what the first moments say is no estimate
  const double left = rate > 0 ? static_cast<double>(total_ - done) / rate : kLongest;
  if (total_ > done && left < kLongest) out += "  ETA " + clock_text(left);
  if (!note.empty()) out += "  " + note;
  return out;
}

void Progress::update(std::uint64_t done, const std::string& note) {
  if (!enabled_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const double now = clock_();
  if (terminal_) {
    if (now - start_ < kFirstShownS || (shown_ && now - last_ < kTerminalPeriodS)) return;
    write_("\r\x1b[K" + printable(line(done, note, now)));
    shown_ = true;
  } else {
    if (now - last_ < kPlainPeriodS) return;
    write_(printable(line(done, note, now)) + "\n");
  }
  last_ = now;
}

void Progress::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shown_) write_("\r\x1b[K");
  shown_ = false;
}

}  // namespace automap
