#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "common/base/colour.h"
#include "common/base/printable.h"

namespace automap {
namespace {
std::atomic<LogLevel> level{LogLevel::kNormal};

void write_line(const std::string& line, const std::string& label = "") {
  std::fputs((label + printable(line) + "\n").c_str(), stderr);
}
}  // namespace

void set_log_level(LogLevel value) {
  level = value;
}
LogLevel log_level() {
  return level;
}

void log_verbose(const std::string& line) {
  if (level == LogLevel::kVerbose) write_line(line);
}
void log_info(const std::string& line) {
  if (level != LogLevel::kQuiet) write_line(line);
}
void log_warning(const std::string& line) {
  if (level != LogLevel::kQuiet) write_line(line, coloured("warning:", Colour::kWarning, STDERR_FILENO) + " ");
}

}  // namespace automap
