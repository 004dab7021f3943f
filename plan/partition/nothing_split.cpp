#include "plan/partition/nothing_split.h"

#include <algorithm>

#include "common/base/text_table.h"
#include "plan/partition/names.h"

namespace automap::partition {
namespace {

constexpr int kMostNumbersNamed = 6;

// The number of inputs with a dimension that so many devices divide.
std::int64_t divided_by(const sharding::ShardingModel& model, const std::vector<std::int32_t>& inputs, int devices) {
  return std::count_if(inputs.begin(), inputs.end(), [&](std::int32_t input) {
    const auto& dims = model.flow().shape(model.inputs()[static_cast<std::size_t>(input)].node).dims;
    return std::any_of(dims.begin(), dims.end(), [&](std::int64_t d) { return d >= devices && d % devices == 0; });
  });
}

bool any_is_possible(const sharding::ShardingModel& model, const std::vector<std::int32_t>& inputs) {
  const sharding::Linkage& linkage = model.linkage();
  for (const std::int32_t input : inputs) {
    const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(input)].node;
    for (std::size_t d = 0; d < model.flow().shape(node).dims.size(); ++d) {
      const sharding::GroupId group = linkage.group_of({node, static_cast<std::int32_t>(d)});
      if (group != graph::kNone && linkage.possible(group)) return true;
    }
  }
  return false;
}

}  // namespace

std::string why_nothing_is_split(const sharding::ShardingModel& model, const std::vector<std::int32_t>& inputs,
                                 const std::string& what, bool by_time) {
  const int devices = model.linkage().shards();
  if (any_is_possible(model, inputs)) {
    return by_time ? kNothingFaster : "what can be split does not go together, or does not fit";
  }
  const std::string number = std::to_string(devices) + " devices ";
  if (divided_by(model, inputs, devices) > 0) {
    return "no dimension that " + number + "divide can be split; automap-search explain says why";
  }
  const auto count = static_cast<long long>(inputs.size());
  std::string out =
      number + "divide no dimension of " + (count == 1 ? "the one " + what : "any of the " + plural(count, what));
  // The numbers of devices that divide most, near the one asked for.
  std::int64_t most = 1;
  std::vector<int> others;
  for (int other = 2; other <= std::min(kMostDevicesNamed, 2 * devices); ++other) {
    const std::int64_t divided = divided_by(model, inputs, other);
    if (divided > most || (divided == most && others.empty())) {
      most = divided;
      others.clear();
    }
    if (divided == most) others.push_back(other);
  }
  if (others.empty()) return out;
  if (others.size() > kMostNumbersNamed) others.erase(others.begin(), others.end() - kMostNumbersNamed);
  out += "; ";
  for (std::size_t i = 0; i < others.size(); ++i) {
    out += (i == 0 ? "" : i + 1 == others.size() ? " or " : ", ") + std::to_string(others[i]);
  }
  return out + " divide one of " + (most == count ? (count == 1 ? "it" : "each") : format_count(most) + " of them");
}

}  // namespace automap::partition
