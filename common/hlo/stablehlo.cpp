#include "common/hlo/stablehlo.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <vector>

#include "common/base/error.h"
#include "common/base/jax_script.h"
#include "common/graph/scan.h"

namespace automap::hlo {

namespace {

constexpr std::string_view kBytecodeMark = "ML\xefR";

// Of a model of many thousand instructions it takes some seconds, most of them to import jax.
constexpr unsigned kMostSeconds = 300;

bool begins(std::string_view s, std::string_view with) {
  return s.substr(0, with.size()) == with;
}

// `bytes` of a little-endian number at `place`; false where the input has no such place.
bool number_at(std::string_view input, std::uint64_t place, unsigned bytes, std::uint64_t* number) {
  if (place > input.size() || input.size() - place < bytes) return false;
  *number = 0;
  for (unsigned i = 0; i < bytes; ++i) {
    *number |= std::uint64_t{static_cast<unsigned char>(input[place + i])} << (8 * i);
  }
  return true;
}

}  // namespace

bool is_mlir_text(std::string_view code) {
  if (begins(code, "#loc") || begins(code, "func.func") || begins(code, "\"builtin.module\"")) return true;
  if (begins(code, "builtin.module")) return true;
  if (begins(code, "module")) {
    std::string_view rest = code.substr(6);
    while (!rest.empty() && graph::scan::is(graph::scan::kSpace, rest[0])) rest.remove_prefix(1);
    return begins(rest, "@") || begins(rest, "{") || begins(rest, "attributes");
  }
  return begins(code, "#");  // an alias
}

bool is_mlir_bytecode(std::string_view bytes) {
  return begins(bytes, kBytecodeMark);
}

// A FlatBuffer: the place of the table, which begins with its distance from the list of its fields' places; that list
// begins with its own size. The module is the field at 30 of that list, an array of bytes behind their number.
bool is_jax_export(std::string_view bytes) {
  constexpr std::uint64_t kModuleField = 30;
  std::uint64_t table = 0, back = 0, size = 0, field = 0, array = 0;
  if (!number_at(bytes, 0, 4, &table) || !number_at(bytes, table, 4, &back)) return false;
  const std::uint64_t fields = table - static_cast<std::uint64_t>(static_cast<std::int32_t>(back));
  if (!number_at(bytes, fields, 2, &size) || size <= kModuleField) return false;
  if (!number_at(bytes, fields + kModuleField, 2, &field) || field == 0) return false;
  if (!number_at(bytes, table + field, 4, &array)) return false;
  const std::uint64_t begin = table + field + array + 4;
  return begin < bytes.size() && begins(bytes.substr(begin), kBytecodeMark);
}

std::string hlo_of_stablehlo(std::string_view bytes, const std::string& source) {
  const JaxScript script = {"automap-from-stablehlo", "automap from-stablehlo FILE -o step.pb", kMostSeconds};
  try {
    return run_jax_script(script, {"-", "-o", "-"}, bytes);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kData) throw Error(ErrorKind::kData, source + ": " + e.what(), e.hint());
    // The message, and below it the last lines that the script wrote.
    std::istringstream why(e.what());
    std::string message, line;
    std::vector<std::string> lines;
    std::getline(why, message);
    while (std::getline(why, line)) lines.push_back(line.substr(std::min<std::size_t>(2, line.size())));
    throw Error(ErrorKind::kData, source + ": this is StableHLO, of which jaxlib would make HLO; " + message,
                "where a Python has jax: VENV/bin/python $(which automap-from-stablehlo) step.mlir -o step.pb; or name "
                "it: AUTOMAP_JAX_PYTHON=VENV/bin/python (in a checkout AUTOMAP_JAX_PYTHON=$(scripts/jax_python.sh))",
                lines);
  }
}

}  // namespace automap::hlo
