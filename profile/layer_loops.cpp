#include "profile/layer_loops.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/pipeline/turn.h"

namespace automap::profile {

namespace {

using pipeline::DeviceTimes;
using pipeline::Profile;
using pipeline::SharedWeight;

}  // namespace

Turns::Turns(std::int32_t positions, std::vector<LayerLoop> loops) : loops_(std::move(loops)) {
  loop_.assign(at(positions), nullptr);
  for (const LayerLoop& loop : loops_) {
    AM_CHECK(loop.turns >= 2 && loop.position >= 0 && loop.position < positions);
    loop_[at(loop.position)] = &loop;
  }
  first_.push_back(0);
  for (const LayerLoop* loop : loop_) {
    first_.push_back(first_.back() + (loop == nullptr ? 1 : static_cast<std::int32_t>(loop->turns)));
  }
  size_ = first_.back();
}

Profile Turns::cut(const Profile& profile) const {
  AM_CHECK(static_cast<std::size_t>(profile.size()) == loop_.size());
  const auto n = profile.size();
  // Each turn its share, after `whole` of it, which is the first one's.
  const auto shared_out = [&](const std::vector<double>& column, const auto& whole_of) {
    std::vector<double> out;
    if (column.empty()) return out;
    for (std::int32_t p = 0; p < n; ++p) {
      const LayerLoop* loop = loop_[at(p)];
      if (loop == nullptr) {
        out.push_back(column[at(p)]);
        continue;
      }
      const double whole = std::min(column[at(p)], whole_of(*loop, p));
      const double share = (column[at(p)] - whole) / static_cast<double>(loop->turns);
      out.push_back(whole + share);
      for (std::int64_t k = 1; k < loop->turns; ++k) out.push_back(share);
    }
    return out;
  };
  const auto even = [&](const std::vector<double>& column) {
    return shared_out(column, [](const LayerLoop&, std::int32_t) { return 0.0; });
  };
  const auto repeated = [&](const auto& column) {
    auto out = column;
    out.clear();
    for (std::int32_t p = 0; p < n && !column.empty(); ++p) {
      out.insert(out.end(), loop_[at(p)] == nullptr ? 1 : at(static_cast<std::int32_t>(loop_[at(p)]->turns)),
                 column[at(p)]);
    }
    return out;
  };
  // At other widths as much of a column is stacked as at width 1.
  const auto like = [](const std::vector<double>& own, const std::vector<double>& column, double LayerLoop::*whole) {
    return [&own, &column, whole](const LayerLoop& loop, std::int32_t p) {
      return own[at(p)] > 0 ? loop.*whole * (column[at(p)] / own[at(p)]) : 0.0;
    };
  };
  const auto bytes = [&](const std::vector<double>& own, const std::vector<double>& column, double LayerLoop::*whole) {
    return shared_out(column, like(own, column, whole));
  };
  const auto times = [&](const std::vector<DeviceTimes>& of_devices) {
    std::vector<DeviceTimes> out = of_devices;
    for (DeviceTimes& device : out) {
      for (auto* table : {&device.forward_ms, &device.backward_ms}) {
        for (std::vector<double>& row : *table) row = even(row);
      }
      device.optimizer_ms = even(device.optimizer_ms);
    }
    return out;
  };
  const auto uses = [&](std::vector<SharedWeight> shared) {
    for (SharedWeight& weight : shared) {
      weight.first = first(weight.first - 1) + 1;
      weight.position = last(weight.position - 1) + 1;
    }
    return shared;
  };
  const std::vector<double>& gradients = profile.gradient_bytes.empty() ? profile.w_bytes : profile.gradient_bytes;
  Profile out = profile;
  out.c_ms = even(profile.c_ms);
  out.a_bytes = repeated(profile.a_bytes);
  for (std::int32_t p = 0; p < n; ++p) {
    const LayerLoop* loop = loop_[at(p)];
    if (loop == nullptr) continue;
    const double enters = std::max(p == 0 ? 0 : profile.a_bytes[at(p - 1)], loop->carried_bytes);
    for (std::int32_t turn = first(p); turn < last(p); ++turn) out.a_bytes[at(turn)] = enters;
  }
  out.w_bytes = bytes(profile.w_bytes, profile.w_bytes, &LayerLoop::whole_weights);
  out.gradient_bytes = bytes(gradients, profile.gradient_bytes, &LayerLoop::whole_gradients);
  out.slot_bytes = bytes(profile.slot_bytes, profile.slot_bytes, &LayerLoop::whole_slots);
  out.frozen_bytes = bytes(profile.frozen_bytes, profile.frozen_bytes, &LayerLoop::whole_frozen);
  // A value that enters the first turn from in front of the loop enters all turns, but each has an activation of its
  // own.
  const auto entries = [&](const auto& from, auto* to, const auto& carried_of) {
    to->layer_entry_bytes = repeated(from.layer_entry_bytes);
    to->stage_entry_bytes = repeated(from.stage_entry_bytes);
    for (std::int32_t p = 0; p < n && !from.layer_entry_bytes.empty(); ++p) {
      const LayerLoop* loop = loop_[at(p)];
      if (loop == nullptr) continue;
      const double enters = from.layer_entry_bytes[at(p)] + from.stage_entry_bytes[at(p)];
      const double carried = loop->carried_bytes > 0 ? carried_of(*loop) : enters;
      for (std::int32_t turn = first(p) + 1; turn <= last(p); ++turn) {
        to->layer_entry_bytes[at(turn)] = carried;
        to->stage_entry_bytes[at(turn)] = std::max(0.0, enters - carried);
      }
    }
  };
  entries(profile, &out, [](const LayerLoop& loop) { return loop.carried_bytes; });
  for (std::size_t w = 0; w < out.widths.size(); ++w) {
    entries(profile.widths[w], &out.widths[w], [w](const LayerLoop& loop) { return loop.carried_at_widths[w]; });
  }
  out.stash_bytes = even(profile.stash_bytes);
  out.workspace_bytes = repeated(profile.workspace_bytes);
  out.weight_share = repeated(profile.weight_share);
  out.times = times(profile.times);
  out.shared = uses(profile.shared);
  for (pipeline::WidthColumns& width : out.widths) {
    width.w_bytes = bytes(profile.w_bytes, width.w_bytes, &LayerLoop::whole_weights);
    width.gradient_bytes = bytes(gradients, width.gradient_bytes, &LayerLoop::whole_gradients);
    width.slot_bytes = bytes(profile.slot_bytes, width.slot_bytes, &LayerLoop::whole_slots);
    width.frozen_bytes = bytes(profile.frozen_bytes, width.frozen_bytes, &LayerLoop::whole_frozen);
    width.stash_bytes = even(width.stash_bytes);
    width.workspace_bytes = repeated(width.workspace_bytes);
    width.weight_share = repeated(width.weight_share);
    width.times = times(width.times);
    for (std::vector<double>& row : width.collective_ms) row = even(row);
    width.shared = uses(width.shared);
  }
  out.name = repeated(profile.name);
  out.op_name = repeated(profile.op_name);
  out.layer = repeated(profile.layer);
  for (const LayerLoop& loop : loops_) {
    for (std::int64_t k = 0; k < loop.turns; ++k) {
      const std::size_t turn = at(first(loop.position)) + static_cast<std::size_t>(k);
      if (!out.name.empty()) out.name[turn] = pipeline::turn_name(profile.name[at(loop.position)], k + 1, loop.turns);
      if (!out.layer.empty()) out.layer[turn] = loop.layer + "/" + std::to_string(k);
    }
  }
  return out;
}

}  // namespace automap::profile
