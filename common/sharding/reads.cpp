#include "common/sharding/reads.h"

#include <algorithm>
#include <map>
#include <utility>

namespace automap::sharding {

namespace {

// The factor of the gather's instruction that goes on without the tensor's dimension is split.
bool takes_part(const Linkage& linkage, const Gather& gather, const std::function<bool(GroupId)>& is_split) {
  const TensorDim member{gather.tensor, gather.dim};
  for (const OpFactor& factor : linkage.factors(gather.op)) {
    if (!is_split(factor.group)) continue;
    if (std::find(factor.in_parts.begin(), factor.in_parts.end(), member) != factor.in_parts.end()) return true;
  }
  return false;
}

std::function<bool(GroupId)> splits_of(const Propagation& decided) {
  return [&decided](GroupId g) { return decided.group_state(g) == GroupState::kSplit; };
}

}  // namespace

std::vector<Read> reads_of(const ShardingModel& model, const std::function<bool(GroupId)>& is_split) {
  const Linkage& linkage = model.linkage();
  std::map<std::pair<NodeId, NodeId>, Read> reads;
  const auto at = [&](const Gather& gather) -> Read& {
    Read& read = reads[{gather.op, gather.tensor}];
    read.reader = gather.op;
    read.tensor = gather.tensor;
    return read;
  };
  for (const Gather& gather : model.gathers()) {
    if (gather.kind == Gather::Kind::kInParts && takes_part(linkage, gather, is_split))
      at(gather).in_parts = gather.dim;
  }
  for (const Gather& gather : model.gathers()) {
    const bool exchanged = gather.kind == Gather::Kind::kExchanged;
    if ((gather.kind != Gather::Kind::kRead && !exchanged) || is_made_whole(model.flow(), gather)) continue;
    const GroupId group = linkage.group_of(gather.tensor, gather.dim);
    if (group == kNone || !is_split(group)) continue;
    Read& read = at(gather);
    read.dim = gather.dim;
    read.group = group;
    read.gathered = !exchanged || read.in_parts == kNone;
  }
  std::vector<Read> out;
  for (auto& [key, read] : reads) out.push_back(read);
  return out;
}

std::vector<TensorDim> kept_in_parts(const ShardingModel& model, const std::function<bool(GroupId)>& is_split) {
  std::vector<TensorDim> out;
  for (const Gather& gather : model.gathers()) {
    const GroupId group = model.linkage().group_of(gather.tensor, gather.dim);
    if (group != kNone && is_split(group) && is_made_whole(model.flow(), gather))
      out.push_back({gather.tensor, gather.dim});
  }
  return out;
}

std::vector<Read> reads_of(const ShardingModel& model, const Propagation& decided) {
  return reads_of(model, splits_of(decided));
}

std::vector<TensorDim> kept_in_parts(const ShardingModel& model, const Propagation& decided) {
  return kept_in_parts(model, splits_of(decided));
}

}  // namespace automap::sharding
