// The files that automap-search writes for a partitioned module: --emit-hlo, --emit-jax, --emit-sdy.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/base/options.h"
#include "plan/emit/emit_sdy.h"
#include "plan/emit/layout.h"
#include "search/commands.h"

namespace automap::search {

class EmitFiles {
 public:
  void declare(OptionTable* table);
  // Opens the files that are wanted. Throws as OutputFiles and SdyBridge do.
  void open(OutputFiles* files);
  // `axes`: their names and devices, as in `layout`. `jax` makes the Python file, where it is wanted.
  void write(const emit::Layout& layout, const emit::MeshAxes& axes, const std::function<std::string()>& jax);

 private:
  std::string hlo_, jax_, sdy_;
  OutputFiles* files_ = nullptr;
  std::optional<emit::SdyBridge> bridge_;
};

}  // namespace automap::search
