// Fuzzes descriptions of models: config.json, tables of layers, Megatron's arguments; for a small model the step is
// made.
#include "common/architecture/read.h"
#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  return fuzz::read_or_refuse([&] {
    const std::string_view text = fuzz::text_of(data, size);
    if (!architecture::is_description(text)) return;
    const architecture::Described described = architecture::read_description(text, "fuzz");
    std::int64_t layers = 0;
    for (const architecture::Stack& stack : described.model.stacks) {
      for (const architecture::LayerGroup& group : stack.groups) layers += group.repeat;
    }
    if (layers <= 8) architecture::build_step(described, "fuzz", {});
  });
}
