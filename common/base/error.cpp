#include "common/base/error.h"

#include "common/base/printable.h"

namespace automap {
namespace {

std::string message_text(const std::string& message, const std::vector<std::string>& lines) {
  std::string text = printable(message);
  for (const std::string& line : lines) text += "\n  " + printable(line);
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& message, const std::string& hint, const std::vector<std::string>& lines)
    : std::runtime_error(message_text(message, lines)), kind_(kind), hint_(printable(hint)) {}

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage: return "usage";
    case ErrorKind::kConfig: return "config";
    case ErrorKind::kData: return "data";
    case ErrorKind::kIo: return "io";
    case ErrorKind::kMemory: return "memory";
    case ErrorKind::kInfeasible: return "infeasible";
    case ErrorKind::kStopped: return "stopped";
    case ErrorKind::kInternal: return "internal";
  }
  return "internal";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig: return 2;
    case ErrorKind::kData:
    case ErrorKind::kIo:
    case ErrorKind::kMemory: return 3;
    case ErrorKind::kInfeasible: return 4;
    case ErrorKind::kStopped: return 75;
    case ErrorKind::kInternal: return 1;
  }
  return 1;
}

}  // namespace automap
