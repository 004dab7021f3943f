// Placement plans of a workload of three nodes.
#include "fuzz/reader.h"
#include "plan/systems/placement/plan_json.h"
#include "plan/systems/placement/workload_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  static const placement::Workload workload = [] {
    placement::Workload made;
    made.accelerators = 2;
    made.cpus = 1;
    for (int id = 0; id < 3; ++id) {
      placement::Node node;
      node.id = id;
      node.accelerator_ms = 1;
      node.cpu_ms = 2;
      made.nodes.push_back(node);
    }
    made.edges = {{0, 1}, {1, 2}};
    return made;
  }();
  return fuzz::read_or_refuse([&] { placement::parse_placement(fuzz::text_of(data, size), "fuzz", workload); });
}
