// StableHLO as a form of a model: told from the bytes here, made HLO by jaxlib in a program of its own
// (automap-from-stablehlo, python/automap/stablehlo.py).
#pragma once

#include <string>
#include <string_view>

namespace automap::hlo {

// `code`: text without what stands before its first code. True for a module or a function of any dialect of MLIR.
bool is_mlir_text(std::string_view code);
// Of StableHLO and of VHLO, its form that other versions read.
bool is_mlir_bytecode(std::string_view bytes);
// What jax.export's Exported.serialize() gives: a table that has MLIR bytecode in it.
bool is_jax_export(std::string_view bytes);

// The module as a binary HloModuleProto; names of layers are where they were in locations. Throws Error(kData) naming
// `source` when the bytes are no module that HLO can say, or where no Python has jaxlib, with the line to convert them.
std::string hlo_of_stablehlo(std::string_view bytes, const std::string& source);

}  // namespace automap::hlo
