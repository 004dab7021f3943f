// The reason in a library's exception, for our messages.
#pragma once

#include <exception>
#include <string>

namespace automap {

// Without the "[name of the exception] " that some libraries put before it.
std::string reason_of(const std::exception& error);

}  // namespace automap
