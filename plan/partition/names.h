// Shortens the names of many tensors: repeated layers become one line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/sharding/model.h"

namespace automap::partition {

// Replaces numbers by stars, so that names that differ in numbers only become equal: "layer_3/conv1" ->
// "layer_*/conv*".
std::string pattern_of(const std::string& path);
// Replaces only the first number, which tells layers apart: "layer_3/conv1" -> "layer_*/conv1".
std::string layer_pattern_of(const std::string& path);

// "encoder/layer_*/ffn: wi 1, wo 0" for (path, dimension) pairs, collated over layers, and over other numbers that take
// many values; a dimension below 0 is not shown. How many share a pattern is said, unless it is `usual`, the number of
// groups that one line speaks for: "layer_*/attn: q 1, k 1 (6 of each)", "a 1 (2x), b 0".
std::string members_text(const std::vector<std::pair<std::string, int>>& members, int usual = 1);

// The HLO name of the instruction behind a node.
std::string instruction_name(const sharding::ShardingModel& model, sharding::NodeId node);

// The scopes that the instruction behind a node was traced in, as a path ("encoder/layer_3/ffn"); empty when the
// module has no names.
std::string scope_of(const sharding::ShardingModel& model, sharding::NodeId node);

// "f32[512,2048]", without layout.
std::string shape_of(const sharding::ShardingModel& model, sharding::NodeId node);

// Numbers of devices that are named, at most.
constexpr int kMostDevicesNamed = 64;
// The numbers of devices, up to `most`, that divide an extent: "2, 3, 4, 6 or 12"; empty when only 1 does.
std::string divisors_text(std::int64_t extent, int most);

}  // namespace automap::partition
