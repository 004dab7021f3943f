// SOAP strategies for a chain of two operators on four devices.
#include "fuzz/reader.h"
#include "plan/systems/soap/soap_plan.h"

namespace {

automap::soap::Space chain_of_two() {
  using namespace automap::soap;
  Space space;
  for (const char* name : {"in", "out"}) {
    Operator one;
    one.name = name;
    one.opcode = "dot";
    one.dims = {{DimKind::kSample, 16}, {DimKind::kParameter, 8}};
    space.operators.push_back(one);
  }
  Edge edge;
  edge.consumer = 1;
  edge.tensors.emplace_back();
  edge.tensors.back().dims = {{0, 0, 16}, {1, kNone, 8}};
  space.edges.push_back(edge);
  space.link();
  return space;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  static const soap::Space space = chain_of_two();
  return fuzz::read_or_refuse(
      [&] { soap::same_devices_everywhere(soap::parse_soap_strategy(fuzz::text_of(data, size), "fuzz", space, 4)); });
}
