#include "plan/partition/flow_units.h"

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/base/numbers.h"

namespace automap::partition {

namespace {

using graph::FlowGraph;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;

// Call paths of both flows, numbered alike; 0 is the entry.
class Paths {
 public:
  std::vector<std::int32_t> number(const FlowGraph& flow) {
    std::vector<std::int32_t> of_site;
    for (const graph::CallSite& site : flow.sites()) {
      const std::int32_t parent = site.parent == kNone ? 0 : of_site[at(site.parent)];
      const auto [found, added] =
          paths_.try_emplace({parent, site.caller, site.branch}, static_cast<std::int32_t>(up_.size()));
      if (added) up_.push_back({parent, site.caller});
      of_site.push_back(found->second);
    }
    return of_site;
  }
  // The path of a path's caller, and the calling instruction.
  std::pair<std::int32_t, InstructionId> up(std::int32_t path) const { return up_[at(path)]; }

 private:
  std::map<std::tuple<std::int32_t, InstructionId, std::int32_t>, std::int32_t> paths_;
  std::vector<std::pair<std::int32_t, InstructionId>> up_{{kNone, kNone}};
};

std::int32_t path_of(const FlowGraph& flow, const std::vector<std::int32_t>& of_site, NodeId id) {
  return flow.node(id).site == kNone ? 0 : of_site[at(flow.node(id).site)];
}

std::uint64_t key(std::int32_t path, InstructionId instruction) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(path)) << 32 | static_cast<std::uint32_t>(instruction);
}

}  // namespace

std::vector<NodeId> units_of(const sharding::ShardingModel& model) {
  const FlowGraph& coarse = model.step().flow;
  const FlowGraph& fine = model.flow();
  Paths paths;
  const std::vector<std::int32_t> coarse_path = paths.number(coarse), fine_path = paths.number(fine);
  std::unordered_map<std::uint64_t, NodeId> known;
  for (NodeId id = 0; id < coarse.size(); ++id)
    known.try_emplace(key(path_of(coarse, coarse_path, id), coarse.node(id).instruction), id);
  std::vector<NodeId> units(at(fine.size()), kNone);
  for (NodeId id = 0; id < fine.size(); ++id) {
    std::int32_t path = path_of(fine, fine_path, id);
    InstructionId instruction = fine.node(id).instruction;
    while (true) {
      const auto found = known.find(key(path, instruction));
      if (found != known.end()) {
        units[at(id)] = found->second;
        break;
      }
      if (path == 0) break;
      std::tie(path, instruction) = paths.up(path);
    }
  }
  return units;
}

std::vector<NodeId> expanded_of(const sharding::ShardingModel& model) {
  const FlowGraph& coarse = model.step().flow;
  const FlowGraph& fine = model.flow();
  Paths paths;
  const std::vector<std::int32_t> coarse_path = paths.number(coarse), fine_path = paths.number(fine);
  std::map<std::tuple<std::int32_t, InstructionId, std::int32_t>, NodeId> known;
  for (NodeId id = 0; id < fine.size(); ++id)
    known.try_emplace({path_of(fine, fine_path, id), fine.node(id).instruction, fine.node(id).leaf}, id);
  std::map<std::tuple<std::int32_t, InstructionId, std::int32_t>, NodeId> of_loops;
  for (const graph::FlowLoop& loop : fine.loops()) {
    const std::int32_t around = paths.up(fine_path[at(loop.site)]).first;
    for (const NodeId parameter : loop.parameter)
      of_loops.try_emplace({around, loop.instruction, fine.node(parameter).leaf}, parameter);
  }
  std::vector<NodeId> out(at(coarse.size()), kNone);
  for (NodeId id = 0; id < coarse.size(); ++id) {
    const graph::FlowNode& node = coarse.node(id);
    const auto found = known.find({path_of(coarse, coarse_path, id), node.instruction, node.leaf});
    if (found != known.end()) {
      out[at(id)] = found->second;
      continue;
    }
    // A projection has the instruction that takes it out, or the loop's.
    const NodeId unit = coarse.producer(id);
    const auto loop = of_loops.find({path_of(coarse, coarse_path, unit), coarse.node(unit).instruction, node.leaf});
    if (loop != of_loops.end()) out[at(id)] = loop->second;
  }
  // Inputs are in the same order.
  for (std::size_t i = 0; i < model.inputs().size() && i < model.step().inputs.size(); ++i)
    out[at(model.step().inputs[i].node)] = model.inputs()[i].node;
  return out;
}

std::vector<graph::Part> parts_of(const sharding::ShardingModel& model) {
  const graph::FlowGraph& fine = model.flow();
  const std::vector<NodeId> units = units_of(model);
  std::vector<graph::Part> parts(static_cast<std::size_t>(fine.size()), graph::Part::kGlue);
  for (NodeId id = 0; id < fine.size(); ++id) {
    if (units[at(id)] != kNone) parts[at(id)] = model.step().part[at(units[at(id)])];
  }
  for (const graph::FlowInput& input : fine.inputs()) parts[at(input.node)] = graph::Part::kInput;
  return parts;
}

}  // namespace automap::partition
