#include "profile/loop_stash.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "profile/kept_values.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::FlowLoop;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;

void LoopStash::open() {
  if (flow_) return;
  graph::FlowOptions options;
  options.loops = true;
  flow_ = FlowGraph::build(at_.flow().graph(), options);
  loop_site_.assign(flow_->sites().size(), kNone);
  for (const FlowLoop& loop : flow_->loops()) loop_site_[at(loop.site)] = loop.site;
  for (std::size_t s = 0; s < loop_site_.size(); ++s) {
    const std::int32_t parent = flow_->sites()[s].parent;
    if (loop_site_[s] == kNone && parent != kNone) loop_site_[s] = loop_site_[at(parent)];
  }
  in_loops_.assign(at(flow_->size()), 0);
  for (NodeId id = flow_->size(); id-- > 0;) {
    const bool moves = graph::is_movement(*flow_, id);
    in_loops_[at(id)] = static_cast<char>(is_made_again(*flow_, id) || flow_->node(id).opcode == Opcode::kReduce);
    for (const NodeId user : flow_->users(id)) {
      if (moves && in_loops_[at(user)] == 0) in_loops_[at(id)] = 0;
    }
  }
}

const FlowLoop* LoopStash::loop_of(graph::InstructionId instruction) const {
  const FlowLoop* found = nullptr;
  for (const FlowLoop& loop : flow_->loops()) {
    if (loop.instruction != instruction) continue;
    if (found != nullptr) return nullptr;  // run from several places
    found = &loop;
  }
  return found;
}

std::int32_t LoopStash::site_of(NodeId id) const {
  const std::int32_t site = flow_->node(id).site;
  return site == kNone ? kNone : loop_site_[at(site)];
}

NodeId LoopStash::written_by_turn(const FlowLoop& loop, std::int32_t leaf) const {
  for (std::size_t i = 0; i < loop.parameter.size(); ++i) {
    if (flow_->node(loop.parameter[i]).leaf != leaf) continue;
    const NodeId next = loop.next[i];
    const bool writes =
        flow_->node(next).opcode == Opcode::kDynamicUpdateSlice && flow_->operands(next)[0] == loop.parameter[i];
    return writes && flow_->users(loop.parameter[i]).size() == 1 ? next : kNone;
  }
  return kNone;
}

bool LoopStash::read_slice_by_slice(NodeId stack, std::vector<NodeId>* slices) const {
  bool any = false;
  for (const NodeId user : flow_->users(stack)) {
    if (flow_->node(user).opcode != Opcode::kDynamicSlice || site_of(user) == kNone || site_of(user) == site_of(stack))
      return false;
    slices->push_back(user);
    any = true;
  }
  return any;
}

bool LoopStash::is_stack(NodeId projection) {
  const NodeId unit = at_.flow().producer(projection);
  if (unit == projection || at_.flow().node(unit).opcode != Opcode::kWhile) return false;
  open();
  const FlowLoop* loop = loop_of(at_.flow().node(unit).instruction);
  if (loop == nullptr) return false;
  const NodeId stack = written_by_turn(*loop, at_.flow().node(projection).leaf);
  if (stack == kNone) return false;
  const NodeId value = flow_->operands(stack)[1];
  std::vector<NodeId> slices;
  return flow_->shape(value).bytes > 0 && site_of(value) == loop->site && read_slice_by_slice(stack, &slices);
}

double LoopStash::kept_bytes(NodeId unit, const std::vector<std::int32_t>& stacks) {
  const FlowLoop* loop = loop_of(at_.flow().node(unit).instruction);
  AM_CHECK(loop != nullptr);
  // Values that depend on a turn's inputs cost something to recompute, and so do random numbers.
  std::vector<bool> keepable(at(flow_->size()), false);
  for (const NodeId parameter : loop->parameter) {
    keepable[at(parameter)] =
        !flow_->shape(parameter).dims.empty() && written_by_turn(*loop, flow_->node(parameter).leaf) == kNone;
  }
  for (NodeId id = 0; id < flow_->size(); ++id) {
    if (site_of(id) != loop->site || flow_->node(id).opcode == Opcode::kParameter) continue;
    const Opcode opcode = flow_->node(id).opcode;
    bool counts = opcode == Opcode::kRng || opcode == Opcode::kRngBitGenerator;
    for (const NodeId operand : flow_->operands(id)) {
      if (keepable[at(operand)]) counts = true;
      // The operand is made by a loop inside of this one.
      if (site_of(operand) != loop->site && site_of(operand) != kNone) counts = true;
    }
    keepable[at(id)] = counts && flow_->shape(id).is_array();
  }
  std::vector<NodeId> whole, in_loops;
  double turns = 0;
  for (const std::int32_t leaf : stacks) {
    const NodeId stack = written_by_turn(*loop, leaf);
    std::vector<NodeId> slices;
    AM_CHECK(stack != kNone && read_slice_by_slice(stack, &slices));
    // A slice of a stack has a dimension more than what it is made of.
    NodeId value = flow_->operands(stack)[1];
    while (flow_->node(value).opcode != Opcode::kParameter && graph::is_movement(*flow_, value) &&
           flow_->shape(flow_->operands(value)[0]).bytes == flow_->shape(value).bytes)
      value = flow_->operands(value)[0];
    turns = std::max(turns,
                     static_cast<double>(flow_->shape(stack).bytes) / static_cast<double>(flow_->shape(value).bytes));
    bool fused = true;
    for (const NodeId slice : slices) {
      for (const NodeId user : flow_->users(slice)) fused = fused && in_loops_[at(user)] != 0;
    }
    if (keepable[at(value)]) (fused ? in_loops : whole).push_back(value);
  }
  const auto bytes_of = [&](NodeId id) {
    return static_cast<double>(flow_->shape(id).bytes) * at_.inner_share(flow_->node(id).instruction);
  };
  const auto is_forward = [&](NodeId id) { return site_of(id) == loop->site; };
  double bytes = 0;
  for (const NodeId id : cheapest_kept({*flow_, bytes_of, is_forward}, keepable, whole, in_loops))
    bytes += bytes_of(id);
  return bytes * turns;
}

}  // namespace automap::profile
