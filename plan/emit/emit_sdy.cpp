#include "plan/emit/emit_sdy.h"

#include "common/base/error.h"
#include "common/base/jax_script.h"
#include "common/base/json.h"

namespace automap::emit {

namespace {

constexpr const char* kGetJax =
    "name a Python that has jax, as pip installs it: AUTOMAP_JAX_PYTHON=VENV/bin/python (in a checkout "
    "AUTOMAP_JAX_PYTHON=$(scripts/jax_python.sh)); or ";

const JaxScript kScript = {"automap-emit-sdy", "automap emit-sdy --help"};

}  // namespace

SdyBridge::SdyBridge(const std::string& option, const std::string& instead) {
  try {
    run_jax_script(kScript, {"--probe"}, "");
  } catch (const Error& e) {
    throw Error(ErrorKind::kUsage, option + ": " + e.what(), kGetJax + instead);
  }
}

std::string SdyBridge::translate(const std::string& hlo, const MeshAxes& mesh) const {
  std::string axes;
  for (const auto& [name, size] : mesh) axes += (axes.empty() ? "" : ",") + name + "=" + std::to_string(size);
  return run_jax_script(kScript, {"-", "--mesh", axes, "-o", "-"}, hlo);
}

std::vector<std::string> SdyBridge::translate(const std::vector<std::pair<std::string, std::string>>& programs) const {
  Json given = Json::object();
  for (const auto& [name, text] : programs) given[name] = text;
  const Json made = Json::parse(run_jax_script(kScript, {"--programs"}, given.dump()));
  std::vector<std::string> texts;
  for (const auto& [name, text] : programs) texts.push_back(made.at(name).string());
  return texts;
}

}  // namespace automap::emit
