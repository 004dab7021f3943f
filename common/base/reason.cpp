#include "common/base/reason.h"

namespace automap {

std::string reason_of(const std::exception& error) {
  std::string reason = error.what();
  if (!reason.empty() && reason[0] == '[') {
    const std::size_t end = reason.find("] ");
    if (end != std::string::npos) reason.erase(0, end + 2);
  }
  return reason;
}

}  // namespace automap
