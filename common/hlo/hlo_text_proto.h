// Reads HloProto and HloModuleProto in protobuf's text format (.pbtxt) into the structs of hlo_proto.h.
//
// Accepted: `field: value`, `field { ... }` and `field < ... >`, lists in brackets, `,` or `;` between fields, #
// comments, strings in either quotes with C escapes and in adjacent pieces, decimal, hexadecimal and octal integers,
// enums by name or number. Unknown fields are skipped.
#pragma once

#include <string>
#include <string_view>

#include "common/hlo/hlo_proto.h"

namespace automap::hlo::proto {

// The module in `text`: an HloModuleProto itself or a message that wraps one (hlo_module { ... }, also deeper).
// `text` and `strings` must outlive the result.
// Throws Error(kData): source:line:column, what was found, what was expected.
HloModuleProto decode_text_proto(std::string_view text, const std::string& source, Strings* strings);

}  // namespace automap::hlo::proto
