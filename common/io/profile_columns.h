// The columns and attributes of profile files, one list for all forms.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/pipeline/profile.h"

namespace automap::io {

constexpr std::string_view kProfileSchema = "automap.profile/";
constexpr std::int64_t kProfileVersion = 2, kOldestProfileVersion = 1;
constexpr std::uint64_t kMaxInstructions = 10'000'000;
constexpr const char* kProfileHint = "docs/formats/profile.md describes profile files";

struct NumberColumn {
  const char* name;
  std::vector<double> pipeline::Profile::*values;
};
// Every profile has these.
constexpr std::array<NumberColumn, 4> kNumbers = {{{"c_ms", &pipeline::Profile::c_ms},
                                                   {"a_bytes", &pipeline::Profile::a_bytes},
                                                   {"w_bytes", &pipeline::Profile::w_bytes},
                                                   {"stash_bytes", &pipeline::Profile::stash_bytes}}};
// Those that come from a module have these too.
constexpr std::array<NumberColumn, 7> kMoreNumbers = {{{"gradient_bytes", &pipeline::Profile::gradient_bytes},
                                                       {"slot_bytes", &pipeline::Profile::slot_bytes},
                                                       {"frozen_bytes", &pipeline::Profile::frozen_bytes},
                                                       {"workspace_bytes", &pipeline::Profile::workspace_bytes},
                                                       {"layer_entry_bytes", &pipeline::Profile::layer_entry_bytes},
                                                       {"stage_entry_bytes", &pipeline::Profile::stage_entry_bytes},
                                                       {"weight_share", &pipeline::Profile::weight_share}}};
struct TextColumn {
  const char* name;
  std::vector<std::string> pipeline::Profile::*values;
};
constexpr std::array<TextColumn, 3> kTexts = {{{"name", &pipeline::Profile::name},
                                               {"op_name", &pipeline::Profile::op_name},
                                               {"layer", &pipeline::Profile::layer}}};

struct TextAttribute {
  const char* name;
  std::string pipeline::Profile::*value;
};
constexpr std::array<TextAttribute, 4> kTextAttributes = {{{"model", &pipeline::Profile::model},
                                                           {"device", &pipeline::Profile::device},
                                                           {"work", &pipeline::Profile::work},
                                                           {"source_sha256", &pipeline::Profile::source_sha256}}};
struct NumberAttribute {
  const char* name;
  double pipeline::Profile::*value;
};
constexpr std::array<NumberAttribute, 2> kNumberAttributes = {
    {{"micro_batch_size", &pipeline::Profile::micro_batch_size},
     {"forward_fraction", &pipeline::Profile::forward_fraction}}};

// "automap.profile/2".
std::string profile_schema(std::int64_t version = kProfileVersion);
// The version that a schema names. Throws Error(kData) naming `where` when this program cannot read it.
std::int64_t check_profile_schema(std::string_view schema, const std::string& where);

}  // namespace automap::io
