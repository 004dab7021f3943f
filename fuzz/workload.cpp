// Fuzzes workloads of placement: a workload that was read is written and read again.
#include "fuzz/reader.h"
#include "plan/systems/placement/workload_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] {
    const placement::WorkloadFile file = placement::parse_workload(fuzz::text_of(data, size), "fuzz");
    placement::topological_order(file.workload);
    const std::string text = placement::workload_json_text(file.workload);
    if (placement::parse_workload(text, "again").workload.size() != file.workload.size()) std::abort();
  });
}
