// Writes the module of emit_hlo as StableHLO with Shardy's attributes, and programs as StableHLO without.
//
// StableHLO is printed by jaxlib alone, so a program in Python does it: automap-emit-sdy (scripts/emit_sdy.py), which
// is beside this program (common/base/jax_script.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace automap::emit {

// Axes of the mesh, the one that device numbers run along fastest last: {{"data", 4}, {"model", 2}}.
using MeshAxes = std::vector<std::pair<std::string, int>>;

class SdyBridge {
 public:
  // Starts the Python once, so that a missing one is reported before the work: Error(kUsage), with a hint, when there
  // is none or it has no jaxlib.
  // `option`: what asks for it; `instead`: what can be done without Python, for the hint.
  explicit SdyBridge(const std::string& option = "--emit-sdy",
                     const std::string& instead = "--emit-hlo FILE here, and automap emit-sdy FILE where there is one");
  // HLO text with shardings -> MLIR text. Throws Error(kData) when jaxlib cannot read the module or Shardy's verifier
  // refuses the result, Error(kUsage) when the mesh does not have as many devices as the module.
  std::string translate(const std::string& hlo, const MeshAxes& mesh) const;
  // HLO texts without shardings, (name, text) each -> MLIR texts. Throws Error(kData) naming one that jaxlib refuses.
  std::vector<std::string> translate(const std::vector<std::pair<std::string, std::string>>& programs) const;
};

}  // namespace automap::emit
