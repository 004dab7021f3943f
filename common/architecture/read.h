// Reads a model that is described instead of exported, and builds its training step. The description is a config.json,
// a table of layers (docs/describing-models.md), the arguments of Megatron, or a published model's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/architecture/model.h"
#include "common/graph/graph.h"

namespace automap::architecture {

// The bytes of the file ("-" = standard input); where there is none of that name, the config.json of the published
// model that is called so. Throws Error(kIo) where there is neither, with the name that is near.
std::string read_model_file(const std::string& path);

// True if the bytes are a description, by their content, and not HLO or a profile.
bool is_description(std::string_view bytes);

struct Described {
  Model model;
  StepOptions said;  // by the description itself
  std::string form;  // "config.json", "table of layers", "arguments of Megatron"
};
// Throws Error(kData) naming `source`, the key, and what was expected.
Described read_description(std::string_view bytes, const std::string& source);

// What frameworks are told of the model that is described. Throws as read_description and build_step.
ModelSizes described_sizes(std::string_view bytes, const std::string& source, const StepOptions& options);

struct BuiltStep {
  graph::Graph graph;
  std::string form;
  std::string taken;  // "llama of 80 layers, 70.6 billion weights, sequence 8192, bf16 over f32 weights, AdamW", ...
};
// `options` take precedence over the description. Throws Error(kUsage) for options that do not fit the model.
BuiltStep build_step(const Described& described, const std::string& source, const StepOptions& options);

}  // namespace automap::architecture
