// Lines for people on standard error, made printable (common/base/printable.h). Results never go here (see print in
// cli.h).
#pragma once

#include <string>

namespace automap {

enum class LogLevel { kQuiet, kNormal, kVerbose };

void set_log_level(LogLevel level);
LogLevel log_level();

void log_verbose(const std::string& line);  // only with --verbose
void log_info(const std::string& line);     // not with --quiet
void log_warning(const std::string& line);  // "warning: ..."; not with --quiet

}  // namespace automap
