#include "plan/emit/layout.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "plan/partition/partition_plan.h"

namespace automap::emit {

using sharding::NodeId;
using sharding::TensorState;
using sharding::TensorStateKind;

namespace {

std::string list(const std::vector<int>& numbers) {
  std::string out;
  for (const int n : numbers) out += (out.empty() ? "" : ",") + std::to_string(n);
  return out;
}

}  // namespace

std::string sharding_text(const std::vector<TensorState>& states, const std::vector<int>& devices, std::size_t rank) {
  AM_CHECK(states.size() == devices.size());
  std::vector<int> tiles(rank, 1), sizes, order, place(states.size(), 0);
  int all = 1, copies = 1;
  for (std::size_t axis = 0; axis < states.size(); ++axis) {
    all *= devices[axis];
    if (devices[axis] == 1) continue;
    place[axis] = static_cast<int>(sizes.size());
    sizes.push_back(devices[axis]);
  }
  // Axes in the order of the tensor's dimensions, then those that split nothing.
  const auto splits = [&](std::size_t axis) {
    return devices[axis] > 1 && states[axis].kind == TensorStateKind::kSplit;
  };
  for (std::size_t dim = 0; dim < rank; ++dim) {
    for (std::size_t axis = states.size(); axis-- > 0;) {
      if (!splits(axis) || static_cast<std::size_t>(states[axis].dim) != dim) continue;
      tiles[dim] *= devices[axis];
      order.push_back(place[axis]);
    }
  }
  if (order.empty()) return "{replicated}";
  for (std::size_t axis = 0; axis < states.size(); ++axis) {
    if (devices[axis] == 1 || splits(axis)) continue;
    copies *= devices[axis];
    order.push_back(place[axis]);
  }
  if (copies > 1) tiles.push_back(copies);
  std::string out = "{devices=[" + list(tiles) + "]<=[";
  out +=
      std::is_sorted(order.begin(), order.end()) ? std::to_string(all) + "]" : list(sizes) + "]T(" + list(order) + ")";
  return out + (copies > 1 ? " last_tile_dim_replicate}" : "}");
}

Layout::Layout(std::vector<DecidedAxis> axes) : axes_(std::move(axes)), made_whole_(axes_.size()) {
  AM_CHECK(!axes_.empty());
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    for (const sharding::TensorDim dim : sharding::kept_in_parts(*axes_[axis].model, *axes_[axis].decided))
      made_whole_[axis].insert(dim.node);
  }
}

int Layout::devices() const {
  int out = 1;
  for (const DecidedAxis& axis : axes_) out *= axis.model->linkage().shards();
  return out;
}

bool Layout::splits_anything() const {
  return std::any_of(axes_.begin(), axes_.end(),
                     [](const DecidedAxis& axis) { return !axis.decided->split_groups().empty(); });
}

std::string Layout::text_of(NodeId node, const std::vector<TensorState>& states) const {
  std::vector<int> devices;
  for (const DecidedAxis& axis : axes_) devices.push_back(axis.model->linkage().shards());
  const graph::Shape& shape = axes_[0].model->flow().shape(node);
  return sharding_text(states, devices, shape.is_array() ? shape.dims.size() : 0);
}

std::string Layout::text(NodeId node) const {
  std::vector<TensorState> states;
  for (const DecidedAxis& axis : axes_) states.push_back(axis.decided->state(node));
  return text_of(node, states);
}

std::string Layout::text_where_made(NodeId node) const {
  std::vector<TensorState> states;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    states.push_back(made_whole(node, axis) ? TensorState() : axes_[axis].decided->state(node));
  }
  return text_of(node, states);
}

std::vector<std::string> Layout::texts_read(NodeId node, const std::vector<sharding::Read>& reads) const {
  std::vector<TensorState> lies, gathered;
  bool from_parts = false;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    lies.push_back(axes_[axis].decided->state(node));
    gathered.push_back(reads[axis].gathered ? TensorState() : lies.back());
    from_parts = from_parts || reads[axis].exchanged();
  }
  std::vector<TensorState> found = gathered;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (reads[axis].in_parts == sharding::kNone) continue;
    found[axis].kind = TensorStateKind::kSplit;
    found[axis].dim = reads[axis].in_parts;
  }
  const bool any = std::any_of(reads.begin(), reads.end(), [](const sharding::Read& read) { return read.gathered; });
  std::vector<std::string> out;
  if (from_parts) out.push_back(text_of(node, lies));
  // `lies` where nothing is gathered.
  const std::string before = text_of(node, gathered), last = text_of(node, found);
  if (any) out.push_back(before);
  if (last != before) out.push_back(last);
  return out;
}

std::vector<std::string> Layout::result_texts() const {
  std::vector<std::vector<TensorState>> of_axis;
  for (const DecidedAxis& axis : axes_) of_axis.push_back(partition::result_states(*axis.model, *axis.decided));
  const std::vector<NodeId>& results = axes_[0].model->flow().results();
  std::vector<std::string> out;
  for (std::size_t r = 0; r < results.size(); ++r) {
    std::vector<TensorState> states;
    for (const std::vector<TensorState>& axis : of_axis) states.push_back(axis[r]);
    out.push_back(text_of(results[r], states));
  }
  return out;
}

}  // namespace automap::emit
