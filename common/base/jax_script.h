// A script of ours that needs jax, run to its end: bytes in, bytes out.
//
// The Python is the one that AUTOMAP_JAX_PYTHON names, else the newest of the environments that scripts/jax_python.sh
// made, else python3.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automap {

std::string python_with_jax();

struct JaxScript {
  std::string name;      // "automap-emit-sdy": a file beside this program
  std::string by_hand;   // the command to try by hand where the script ends without an answer
  unsigned seconds = 0;  // it is killed after so many; 0: never
};

// What the script writes to standard output. It says errors as programs of ours do ("error: ", "  hint: "). Throws
// Error(kUsage) with them when it ends with the code of wrong usage, Error(kData) for any other code, Error(kIo) when
// it cannot be started, is killed, or says nothing.
std::string run_jax_script(const JaxScript& script, const std::vector<std::string>& arguments, std::string_view input);

}  // namespace automap
