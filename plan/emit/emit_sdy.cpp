#include "plan/emit/emit_sdy.h"

#include "common/base/error.h"
#include "common/base/jax_script.h"

namespace automap::emit {

namespace {

constexpr const char* kGetJax =
    "name a Python that has jax, as pip installs it: AUTOMAP_JAX_PYTHON=VENV/bin/python (in a checkout "
    "AUTOMAP_JAX_PYTHON=$(scripts/jax_python.sh)); or --emit-hlo FILE here, and automap emit-sdy FILE where there is "
    "one";

const JaxScript kScript = {"automap-emit-sdy", "automap emit-sdy --help"};

}  // namespace

SdyBridge::SdyBridge() {
  try {
    run_jax_script(kScript, {"--probe"}, "");
  } catch (const Error& e) {
    throw Error(ErrorKind::kUsage, std::string("--emit-sdy: ") + e.what(), kGetJax);
  }
}

std::string SdyBridge::translate(const std::string& hlo, const MeshAxes& mesh) const {
  std::string axes;
  for (const auto& [name, size] : mesh) axes += (axes.empty() ? "" : ",") + name + "=" + std::to_string(size);
  return run_jax_script(kScript, {"-", "--mesh", axes, "-o", "-"}, hlo);
}

}  // namespace automap::emit
