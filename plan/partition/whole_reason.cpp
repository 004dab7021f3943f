#include "plan/partition/whole_reason.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "common/base/text_table.h"
#include "common/sharding/explain.h"
#include "plan/partition/names.h"

namespace automap::partition {

using models::PartitionObjective;
using sharding::GroupId;
using sharding::GroupState;
using sharding::Linkage;
using sharding::Obstacle;
using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorDim;

namespace {

constexpr std::int64_t kLargeExtent = 4096, kTile = 128;

bool only_indivisible(const Linkage& linkage, GroupId group) {
  const auto obstacles = linkage.obstacles(group);
  return std::all_of(obstacles.begin(), obstacles.end(),
                     [](const Obstacle& o) { return o.kind == Obstacle::Kind::kIndivisible; });
}

std::string ms_text(double ms) {
  return ms > 0 ? format_ms(ms) : "nothing";
}

// Why a group cannot be split, without the name of who asks: it is the same for all of its tensors.
std::string why_impossible(const ShardingModel& model, GroupId group) {
  if (only_indivisible(model.linkage(), group)) return indivisible_text(model, group);
  const std::string summary = sharding::explain_obstacle(model, group).summary;
  static constexpr std::string_view kVerdict = "cannot be split: ";
  const std::size_t at = summary.find(kVerdict);
  return at == std::string::npos ? summary : summary.substr(at + kVerdict.size());
}

}  // namespace

std::int64_t indivisible_extent(const Linkage& linkage, GroupId group) {
  std::int64_t extent = 0;
  for (const Obstacle& obstacle : linkage.obstacles(group)) {
    if (obstacle.kind == Obstacle::Kind::kIndivisible) extent = std::gcd(extent, obstacle.extent);
  }
  return extent;
}

std::string indivisible_text(const ShardingModel& model, GroupId group) {
  const Linkage& linkage = model.linkage();
  const std::int64_t extent = indivisible_extent(linkage, group);
  const std::string others = divisors_text(extent, kMostDevicesNamed);
  std::string parts;
  std::int64_t whole = 0;
  for (const TensorDim at : linkage.members(group)) {
    whole = std::max(whole, model.flow().shape(at.node).dims[static_cast<std::size_t>(at.dim)]);
  }
  if (whole > extent && whole % extent == 0) {
    const Obstacle& first = linkage.obstacles(group)[0];
    const std::string where = scope_of(model, first.op == graph::kNone ? first.a.node : first.op);
    parts = ", the parts that " + std::to_string(whole) + " become" + (where.empty() ? "" : " in " + where) + " (" +
            std::to_string(whole / extent) + " each)";
  }
  // A table of 50257 words is padded to 50304 by hand: to whole tiles of the matrix units, where it is large.
  std::string padded;
  if (parts.empty() && extent > linkage.shards()) {
    const std::int64_t tile =
        extent >= kLargeExtent ? std::lcm<std::int64_t>(linkage.shards(), kTile) : linkage.shards();
    padded = "; padded to " + std::to_string((extent + tile - 1) / tile * tile) + " they would";
  }
  return std::to_string(linkage.shards()) + " devices do not divide " + std::to_string(extent) + parts +
         (others.empty() ? "" : "; " + others + " would") + padded;
}

std::string why_whole(const ShardingModel& model, const Propagation& decided,
                      const std::map<GroupId, PartitionCost::GroupEffect>& effects, std::int32_t input,
                      PartitionObjective objective, std::map<GroupId, std::string>* impossible) {
  const Linkage& linkage = model.linkage();
  const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(input)].node;
  const std::size_t rank = model.flow().shape(node).dims.size();
  if (rank == 0) return "it is a scalar";
  // The most telling reason of all dimensions, with its rank.
  std::pair<int, std::string> best{-1, "its dimensions have extent 1"};
  const auto offer = [&](int telling, const std::string& text) {
    if (telling > best.first) best = {telling, text};
  };
  for (std::size_t d = 0; d < rank; ++d) {
    const TensorDim at{node, static_cast<std::int32_t>(d)};
    const GroupId group = linkage.group_of(at);
    if (group == graph::kNone) continue;
    const std::string dimension = rank > 1 ? "dimension " + std::to_string(d) + ": " : "";
    switch (decided.group_state(group)) {
      case GroupState::kWhole: {
        const auto found = effects.find(group);
        if (found == effects.end()) {  // PlanningRequest::rows_whole
          offer(3, "its group holds rows of what weights multiply, which are for replicas to share out");
          break;
        }
        const PartitionCost::GroupEffect& effect = found->second;
        offer(3, objective == PartitionObjective::kTime
                     ? "splitting its group costs " + ms_text(effect.collective_ms) + " of collectives and saves " +
                           ms_text(effect.saved_ms) + " of compute"
                     : "nothing chose it");
        break;
      }
      case GroupState::kExcluded: {
        for (const GroupId other : linkage.neighbours(group)) {
          if (decided.group_state(other) != GroupState::kSplit) continue;
          const TensorDim by = decided.decided_by(other);
          const Obstacle meeting = linkage.meeting(group, other);
          const std::string where = scope_of(model, meeting.op != graph::kNone ? meeting.op : meeting.a.node);
          offer(1, dimension + "excluded by " + sharding::describe(model, by) +
                       (where.empty() ? "" : ", which it meets in " + where));
          break;
        }
        break;
      }
      default: {
        if (linkage.possible(group)) break;
        auto known = impossible->find(group);
        if (known == impossible->end()) known = impossible->emplace(group, why_impossible(model, group)).first;
        // Ranks above reasons that exclude another dimension: with other devices this one could be split.
        offer(only_indivisible(linkage, group) ? 2 : 0, dimension + known->second);
      }
    }
  }
  return best.second;
}

std::string own_dimension(const std::string& reason) {
  const std::size_t colon = reason.find(": ");
  return reason.rfind("dimension ", 0) == 0 && colon != std::string::npos ? reason.substr(0, colon + 2) : "";
}

}  // namespace automap::partition
