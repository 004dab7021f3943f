// Texts of single messages and fields, as XLA prints them in HLO; proto_attributes.cpp puts them together. The texts of
// shapes, layouts, shardings, constants and stack frames, which others need as well, are declared in
// proto_attributes.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/hlo/hlo_proto.h"

namespace automap::hlo::proto {

std::string lower(std::string_view s);
// "{1,0}"
std::string braced(const Ints& values);
// "{true,false}"
std::string bools(const Ints& values);
// "\"...\"" with C escapes.
std::string quoted(std::string_view s);
// The text as a bare word of HLO; in quotes when it is none.
std::string bare(std::string_view s);
// The shortest of %.6g and %.17g (number32: %.9g of a float) that reads back the same.
std::string number(double v);
std::string number32(double v);
// True if a backend config or frontend attribute reads as one JSON object, so that XLA prints it without quotes:
// balanced braces with respect to strings, and nothing behind the last.
bool is_json_object(std::string_view s);
// The value of an enum in lower case, without a prefix: ("RNG_UNIFORM") -> "rng_uniform".
std::string enum_text(const EnumValues& values, std::int64_t value);
// "{'x', 'y'}"
std::string axis_list(const std::vector<AxisRefProto>& axes, const MeshProto* mesh);
// "mesh['x'=2,'y'=4]"
std::string mesh_text(const MeshProto* mesh);
// "{{0,1},{2,3}}"
std::string replica_groups_text(const std::vector<ReplicaGroup>& groups);
// "[2,4]<=[8]"
std::string iota_groups_text(const IotaReplicaGroupListProto& list);
// "{size=3x3 pad=1_1x1_1}"
std::string window_text(const Window& window);
// "b01f_01io->b01f"
std::string dim_labels_text(const ConvolutionDimensionNumbers& dnums);
// "{op_name=\"...\"}"; "" when it says nothing.
std::string metadata_text(const OpMetadata& m);
// "{a=\"b\"}", keys sorted.
std::string frontend_attributes_text(const FrontendAttributes& attributes);

}  // namespace automap::hlo::proto
