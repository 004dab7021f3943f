// Writes the module of emit_hlo as StableHLO with Shardy's attributes.
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
  SdyBridge();
  // HLO text with shardings -> MLIR text. Throws Error(kData) when jaxlib cannot read the module or Shardy's verifier
  // refuses the result, Error(kUsage) when the mesh does not have as many devices as the module.
  std::string translate(const std::string& hlo, const MeshAxes& mesh) const;
};

}  // namespace automap::emit
