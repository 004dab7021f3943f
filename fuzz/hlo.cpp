// libFuzzer target over every HLO form: any bytes give a graph or an Error(kData); the graph is written as text and
// read back to as many instructions, operands and computations.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_writer.h"

using automap::Error;
using automap::ErrorKind;
namespace graph = automap::graph;
namespace hlo = automap::hlo;

namespace {

std::size_t walk(const graph::Graph& g) {
  std::size_t operands = 0;
  for (graph::InstructionId id = 0; id < g.num_instructions(); ++id) {
    operands += g.operands(id).size();
    if (g.op_name(id).size() + g.metadata(id, "source_file").size() > (std::size_t{1} << 30)) std::abort();
    for (const graph::InstructionId user : g.users(id)) {
      if (user <= id || g.instruction(user).computation != g.instruction(id).computation) std::abort();
    }
    for (const graph::ComputationId callee : g.called(id)) {
      if (callee < 0 || callee >= g.num_computations()) std::abort();
    }
    if (g.shape_of(id).text.empty()) std::abort();
  }
  return operands;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    // StableHLO goes to another program; that it is told from the bytes is all that is ours.
    const std::string expanded = automap::gunzip_if_gzip(bytes, "fuzz");
    if (hlo::detect_hlo_form(expanded, "fuzz") == hlo::HloForm::kStableHlo) return 0;
    const hlo::HloModule module = hlo::read_hlo(std::move(bytes), "fuzz");
    const std::size_t operands = walk(module.graph);
    const std::string text = hlo::write_hlo_text(module.graph);
    try {
      const graph::Graph again = hlo::read_hlo_text(text, "written");
      if (walk(again) != operands || again.num_instructions() != module.graph.num_instructions() ||
          again.num_computations() != module.graph.num_computations()) {
        std::abort();
      }
    } catch (const Error&) {
      std::abort();  // what the writer prints must be readable
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kData) std::abort();
  }
  return 0;
}
