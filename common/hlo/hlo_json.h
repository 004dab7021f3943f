// Reads HloProto and HloModuleProto as proto3 JSON into the structs of hlo_proto.h.
//
// Accepted: field names in lowerCamelCase or snake_case, in any order; default values present or left out; 64-bit
// integers as strings or numbers; enums by name or number; bytes in base64 (also URL-safe, padding optional); NaN and
// the infinities as strings; null for "not set". Unknown fields are skipped.
#pragma once

#include <string>
#include <string_view>

#include "common/hlo/hlo_proto.h"
#include "common/hlo/json_cursor.h"

namespace automap::hlo::proto {

// The module in `text`: an HloModuleProto itself or an object that wraps one ({"hloModule": {...}}, also deeper).
// `text` and `strings` must outlive the result. Names of enum values nobody told us about are appended to
// `unknown_types`; ShapeProto::element_type is then kFirstUnknownType + their index.
// Throws Error(kData): source:line:column, what was found, what was expected.
HloModuleProto decode_json(std::string_view text, const std::string& source, Strings* strings,
                           std::vector<std::string>* unknown_types);

constexpr std::int64_t kFirstUnknownType = 1000000;

}  // namespace automap::hlo::proto
