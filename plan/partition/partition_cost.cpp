#include "plan/partition/partition_cost.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/machine/collectives.h"
#include "common/sharding/reads.h"
#include "plan/partition/flow_units.h"
#include "profile/host_time.h"
#include "profile/time_estimator.h"

namespace automap::partition {

namespace {

using graph::FlowGraph;
using graph::FlowNode;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Part;
using sharding::GroupId;

// True for nodes with a time of their own: not the elements of an instruction with several results, nor the joined
// results of a conditional.
bool has_time(const FlowNode& node) {
  return node.opcode != Opcode::kGetTupleElement && node.opcode != Opcode::kParameter &&
         !(node.opcode == Opcode::kConditional && node.leaf != kNone) &&
         !(node.opcode == Opcode::kOptBarrier && node.leaf > 0);
}

// By flow node: 1 for nodes that run, 0 in branches of a conditional that take less time than another one.
std::vector<double> nodes_that_run(const FlowGraph& flow, const std::vector<double>& node_ms) {
  const auto& sites = flow.sites();
  std::vector<double> total(sites.size(), 0), runs(sites.size(), 1);
  for (NodeId id = 0; id < flow.size(); ++id) {
    if (flow.node(id).site != kNone) total[at(flow.node(id).site)] += node_ms[at(id)];
  }
  // Inside out: a site is numbered after its caller's. All branches but the longest are taken out of their callers; the
  // branches of one conditional are children of one site.
  std::map<std::pair<std::int32_t, InstructionId>, std::vector<std::size_t>> conditionals;
  for (std::size_t s = sites.size(); s-- > 0;) {
    if (sites[s].branch == kNone) {
      if (sites[s].parent != kNone) total[at(sites[s].parent)] += total[s];
      continue;
    }
    auto& branches = conditionals[{sites[s].parent, sites[s].caller}];
    branches.push_back(s);
    if (sites[s].branch != 0) continue;
    std::size_t longest = branches.back();
    for (const std::size_t b : branches) {
      if (total[b] > total[longest]) longest = b;
    }
    for (const std::size_t b : branches) runs[b] = b == longest ? 1 : 0;
    if (sites[s].parent != kNone) total[at(sites[s].parent)] += total[longest];
  }
  for (std::size_t s = 0; s < sites.size(); ++s) {
    if (sites[s].parent != kNone) runs[s] *= runs[at(sites[s].parent)];
  }
  std::vector<double> out(at(flow.size()), 1);
  for (NodeId id = 0; id < flow.size(); ++id) {
    if (flow.node(id).site != kNone) out[at(id)] = runs[at(flow.node(id).site)];
  }
  return out;
}

// Times of nodes that run so often, ms per step.
std::vector<double> node_times(const FlowGraph& flow, const std::vector<double>& runs,
                               const std::vector<double>& instruction_ms) {
  std::vector<double> ms(at(flow.size()), 0);
  for (NodeId id = 0; id < flow.size(); ++id) {
    const FlowNode& node = flow.node(id);
    if (has_time(node)) ms[at(id)] = runs[at(id)] * instruction_ms[at(node.instruction)];
  }
  return ms;
}

// Bytes of the tensors that the forward and the backward pass read.
std::vector<double> read_by_both(const sharding::ShardingModel& model, const std::vector<Part>& parts) {
  const FlowGraph& flow = model.flow();
  std::vector<double> bytes(at(flow.size()), 0);
  for (NodeId id = 0; id < flow.size(); ++id) {
    bool forward = false, backward = false;
    for (const NodeId user : flow.users(id)) {
      forward = forward || parts[at(user)] == Part::kForward;
      backward = backward || parts[at(user)] == Part::kBackward;
    }
    if (forward && backward) bytes[at(id)] = static_cast<double>(flow.shape(id).bytes);
  }
  return bytes;
}

// Bytes kept from the forward to the backward pass, at the tensor that all forms of a value come from.
std::vector<double> stash_of(const sharding::ShardingModel& model, const std::vector<Part>& parts) {
  const FlowGraph& flow = model.flow();
  std::vector<double> stash(at(flow.size()), 0);
  struct Kept {
    double forms = 0;
    bool whole = false;
  };
  std::map<NodeId, Kept> kept;
  std::vector<char> seen(at(flow.size()), 0);
  for (NodeId id = 0; id < flow.size(); ++id) {
    if (parts[at(id)] != Part::kBackward) continue;
    for (const NodeId operand : flow.operands(id)) {
      if (seen[at(operand)] != 0 || parts[at(operand)] != Part::kForward || !model.linkage().is_tensor(operand))
        continue;
      seen[at(operand)] = 1;
      NodeId base = operand;
      while (graph::is_movement(flow, base) && flow.operands(base).size() > 0 &&
             parts[at(flow.operands(base)[0])] == Part::kForward && model.linkage().is_tensor(flow.operands(base)[0]))
        base = flow.operands(base)[0];
      // Another form of a parameter, or of a free tensor.
      if (graph::is_movement(flow, base)) continue;
      Kept& entry = kept[base];
      entry.forms += static_cast<double>(flow.shape(operand).bytes);
      entry.whole = entry.whole || operand == base;
    }
  }
  for (const auto& [base, entry] : kept) {
    const auto bytes = static_cast<double>(flow.shape(base).bytes);
    stash[at(base)] = entry.whole ? bytes : std::min(bytes, entry.forms);
  }
  return stash;
}

// Servers of one kind, and how many of them stand in use.
struct ServersInUse {
  const machine::ServerGroup* kind = nullptr;
  int count = 0;
};

// Where the devices of a mesh stand, all axes together: in the first server that holds them all, else in the first
// servers of the cluster.
std::vector<ServersInUse> servers_in_use(const machine::Cluster& cluster, std::int64_t devices) {
  for (const machine::ServerGroup& group : cluster.servers) {
    if (group.devices >= devices && group.count > 0) return {{&group, 1}};
  }
  std::vector<ServersInUse> used;
  for (const machine::ServerGroup& group : cluster.servers) {
    if (devices <= 0) break;
    const std::int64_t count = std::min<std::int64_t>(group.count, (devices + group.devices - 1) / group.devices);
    used.push_back({&group, static_cast<int>(count)});
    devices -= count * group.devices;
  }
  return used;
}

// The time of a message beyond its latency; 0 for 0 bytes.
double beyond_wait(const machine::CollectiveTime& time, double bytes) {
  return std::max(0.0, time.ms(bytes) - time.latency_ms());
}

const machine::CollectiveTime& time_over(const ShardLinks& links, const sharding::Collective& c) {
  switch (c.kind) {
    case CollectiveKind::kAllReduce: return links.all_reduce;
    case CollectiveKind::kReduceScatter: return links.reduce_scatter;
    case CollectiveKind::kAllGather: return links.all_gather;
    case CollectiveKind::kAllToAll: return links.all_to_all;
    case CollectiveKind::kPermute: break;
  }
  return links.send;
}

// Equal parts of a model have equal sums whatever the order of their instructions.
double sum_in_order(std::vector<double>* values) {
  std::sort(values->begin(), values->end());
  double sum = 0;
  for (const double v : *values) sum += v;
  return sum;
}

}  // namespace

ShardLinks shard_links(const machine::Cluster& cluster, int shards, int stride, int replicas) {
  if (shards < 1) throw Error(ErrorKind::kUsage, "shards must be at least 1, not " + std::to_string(shards));
  const std::int64_t span = std::int64_t{shards} * stride, devices = span * replicas;
  if (cluster.num_devices() < devices) {
    throw Error(ErrorKind::kUsage,
                (devices == shards ? std::to_string(shards) + " shards need as many devices"
                                   : "a mesh of " + std::to_string(replicas > 1 ? replicas : shards) + " x " +
                                         std::to_string(replicas > 1 ? span : stride) + " needs " +
                                         std::to_string(devices) + " devices") +
                    "; cluster '" + cluster.name + "' has " + std::to_string(cluster.num_devices()),
                "give fewer shards or a larger cluster");
  }
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  const auto measured = [](const machine::ServerGroup& server) {
    return server.links.empty() ? nullptr : &server.links;
  };
  const std::vector<ServersInUse> used = servers_in_use(cluster, devices);
  machine::CollectiveGroup group;
  group.devices = shards;
  group.intra_latency_ms = cluster.intra_latency_us * 1e-3;
  group.inter_latency_ms = cluster.inter_latency_us * 1e-3;
  group.intra_bytes_per_ms = group.inter_bytes_per_ms = kEndless;
  group.measured = measured(*used.front().kind);
  ShardLinks out;
  for (const ServersInUse& servers : used) out.inside_server = out.inside_server && span <= servers.kind->devices;
  // An axis that is nested in another one, or that another is nested in, is not torn apart.
  const int together = replicas > 1 ? static_cast<int>(span) : stride;
  group.servers = 0;
  for (const auto& [kind, count] : used) {
    if (devices > kind->devices && kind->devices % together != 0) {
      throw Error(ErrorKind::kUsage,
                  "the model axis has " + std::to_string(together) + " devices, but a server of cluster '" +
                      cluster.name + "' has " + std::to_string(kind->devices),
                  "its parts must stand in one server: give a number that divides " + std::to_string(kind->devices));
    }
    group.servers += count;
    group.devices_per_server = std::max(group.devices_per_server, kind->devices / stride);
    group.inter_bytes_per_ms =
        std::min(group.inter_bytes_per_ms, kind->inter_gbytes_per_s * machine::kBytesPerMsPerGByteS / stride);
    if (out.inside_server || kind->devices > stride) {
      group.intra_bytes_per_ms =
          std::min(group.intra_bytes_per_ms, kind->intra_gbytes_per_s * machine::kBytesPerMsPerGByteS);
    }
    group.measured = machine::slower(group.measured, measured(*kind));
  }
  if (out.inside_server) {
    group.servers = 1;
    group.devices_per_server = shards;
    group.inter_bytes_per_ms = kEndless;
  }
  out.gbytes_per_s = std::min(group.intra_bytes_per_ms, group.inter_bytes_per_ms) / machine::kBytesPerMsPerGByteS;
  out.all_reduce = machine::all_reduce(group, machine::Ring::kNccl);
  out.all_gather = machine::all_gather(group, machine::Ring::kNccl);
  out.reduce_scatter = machine::reduce_scatter(group, machine::Ring::kNccl);
  // Every device sends its part of the tensor.
  out.all_to_all = machine::all_to_all(group, machine::Ring::kNccl).times(1, 1.0 / shards);
  out.send = machine::collective(CollectiveKind::kPermute, group, machine::Ring::kNccl);
  return out;
}

PartitionCost::PartitionCost(const sharding::ShardingModel& model, const machine::DeviceModel& device,
                             const machine::Cluster& cluster, const OtherAxis* other, int stride,
                             const std::vector<bool>* in_stage)
    : model_(model),
      links_(shard_links(cluster, model.linkage().shards(), stride, other == nullptr ? 1 : other->devices)) {
  // The slowest and the smallest of all devices of the mesh.
  const std::int64_t devices =
      std::int64_t{model.linkage().shards()} * stride * (other == nullptr ? 1 : other->devices);
  capacity_bytes_ = std::numeric_limits<double>::infinity();
  double slowest = std::numeric_limits<double>::infinity();
  for (const ServersInUse& servers : servers_in_use(cluster, devices)) {
    const auto found = cluster.devices.find(servers.kind->device);
    AM_CHECK(found != cluster.devices.end());
    capacity_bytes_ = std::min(capacity_bytes_, found->second.memory_gib * kBytesPerGiB);
    slowest = std::min(slowest, found->second.relative_speed);
  }
  profile::InstructionTimes times = profile::estimate_times(model.graph(), device);
  profile::wait_at_every_kernel(&times);
  machine::DeviceModel without_launch = device;
  without_launch.launch_us = without_launch.host_us = 0;
  const profile::InstructionTimes divisible = profile::estimate_times(model.graph(), without_launch);
  runs_.assign(at(model.flow().size()), 1);
  for (NodeId id = 0; id < model.flow().size(); ++id) runs_[at(id)] = model.times(id);
  const std::vector<double> counts = nodes_that_run(model.flow(), node_times(model.flow(), runs_, times.ms));
  for (std::size_t i = 0; i < runs_.size(); ++i) runs_[i] *= counts[i];
  node_ms_ = node_times(model.flow(), runs_, times.ms);
  divisible_ms_ = node_times(model.flow(), runs_, divisible.ms);
  for (std::size_t i = 0; i < node_ms_.size(); ++i) {
    node_ms_[i] /= slowest;
    divisible_ms_[i] = std::min(node_ms_[i], divisible_ms_[i] / slowest);
  }
  parameter_bytes_.assign(node_ms_.size(), 0);
  for (const sharding::ModelInput& input : model.inputs())
    parameter_bytes_[at(input.node)] = static_cast<double>(model.flow().shape(input.node).bytes);
  stash_bytes_.assign(node_ms_.size(), 0);
  copy_bytes_.assign(node_ms_.size(), 0);
  if (model.step().training) {
    const std::vector<Part> parts = parts_of(model);
    stash_bytes_ = stash_of(model, parts);
    copy_bytes_ = read_by_both(model, parts);
  }
  for (std::size_t i = 0; in_stage != nullptr && i < runs_.size(); ++i) {
    if ((*in_stage)[i]) continue;
    runs_[i] = node_ms_[i] = divisible_ms_[i] = parameter_bytes_[i] = stash_bytes_[i] = copy_bytes_[i] = 0;
  }
  if (other != nullptr) add_other(*other);
}

void PartitionCost::add_other(const OtherAxis& other) {
  shares_ = other.shares;
  for (std::size_t i = 0; i < node_ms_.size(); ++i) {
    node_ms_[i] -= divisible_ms_[i] * (1 - other.op_share[i]);
    divisible_ms_[i] *= other.op_share[i];
    parameter_bytes_[i] *= shares_.held[i];
    stash_bytes_[i] *= shares_.held[i];
    copy_bytes_[i] *= shares_.held[i];
  }
  other_saved_ms_.assign(node_ms_.size(), 0);
  other_reduction_saved_ms_ = other_saved_ms_;
  other_links_ = other.links;
  other_collectives_ = other.collectives;
  other_ms_ = other_waits_ms_ = other.waits_ms;
  for (const sharding::Collective& c : other_collectives_) {
    const double whole = other_moved_ms(c, false);
    other_ms_ += whole;
    const bool reduces = c.reduces();
    (reduces ? other_reduction_saved_ms_ : other_saved_ms_)[at(c.node)] += whole - other_moved_ms(c, true);
  }
}

double PartitionCost::other_moved_ms(const sharding::Collective& c, bool divided) const {
  return c.times * beyond_wait(time_over(other_links_, c), divided ? c.bytes / model_.linkage().shards() : c.bytes);
}

std::vector<sharding::Collective> PartitionCost::counted(std::vector<sharding::Collective> collectives) const {
  for (sharding::Collective& c : collectives) c.times = runs(c.node);
  return collectives;
}

OtherAxis PartitionCost::as_other(const sharding::Propagation& decided) const {
  const sharding::Linkage& linkage = model_.linkage();
  OtherAxis out;
  out.links = links_;
  out.devices = linkage.shards();
  out.collectives = counted(find_collectives(model_, decided, sharding::Placement::kAtOnce));
  out.op_share.assign(node_ms_.size(), 1);
  out.shares.held.assign(node_ms_.size(), 1);
  const double share = 1.0 / linkage.shards();
  for (NodeId id = 0; id < model_.flow().size(); ++id) {
    for (const sharding::OpFactor& factor : linkage.factors(id)) {
      if (decided.group_state(factor.group) == sharding::GroupState::kSplit) out.op_share[at(id)] = share;
    }
    if (is_split(decided, id)) out.shares.held[at(id)] = share;
  }
  out.shares.made = out.shares.held;
  const std::vector<bool> whole = made_whole();
  for (NodeId id = 0; id < model_.flow().size(); ++id) {
    if (whole[at(id)]) out.shares.made[at(id)] = 1;
  }
  for (const sharding::Read& read : sharding::reads_of(model_, decided)) {
    if (read.gathered) out.shares.gathered_first.emplace(read.reader, read.tensor);
  }
  for (const double ms : own_ms(out.collectives)) out.waits_ms += ms;
  for (const sharding::Collective& c : out.collectives) out.waits_ms -= moved_ms(c);
  return out;
}

double PartitionCost::moved_bytes(NodeId tensor, CollectiveKind kind) const {
  sharding::Collective c;
  c.kind = kind;
  c.node = tensor;
  return static_cast<double>(model_.flow().shape(tensor).bytes) * (shares_.held.empty() ? 1 : shares_.of(c));
}

const machine::CollectiveTime& PartitionCost::time_of(const sharding::Collective& c) const {
  return time_over(links_, c);
}

double PartitionCost::moved_ms(const sharding::Collective& c) const {
  return c.times * beyond_wait(time_of(c), c.bytes * (shares_.held.empty() ? 1 : shares_.of(c)));
}

double PartitionCost::shared_saving(double whole) const {
  return whole - whole / model_.linkage().shards();
}

double PartitionCost::least_step_ms(int devices) const {
  double ms = 0;
  for (std::size_t i = 0; i < node_ms_.size(); ++i) ms += node_ms_[i] - divisible_ms_[i] + divisible_ms_[i] / devices;
  return ms;
}

double PartitionCost::capacity_bytes() const {
  return capacity_bytes_;
}

bool PartitionCost::is_split(const sharding::Propagation& decided, NodeId tensor) const {
  for (const GroupId group : model_.linkage().groups_of(tensor)) {
    if (group != kNone && decided.group_state(group) == sharding::GroupState::kSplit) return true;
  }
  return false;
}

// Counts how often a group's collectives pay their latency. The level of a collective is the length of the longest
// chain of its group's collectives, each waiting for the one before, that ends with it; those of one level go out
// together. A turn of a loop does not wait for itself. Levels of all groups are found in passes over the nodes, each
// for kLanes groups at once: one pass per group would be quadratic in a model's depth.
class PartitionCost::Waits {
 public:
  struct Together {
    double reduce = 0, gather = 0, exchange = 0, permute = 0;  // how often
  };

  Waits(const FlowGraph& flow, const std::vector<CollectiveList>& groups) : flow_(flow), levels_(groups.size()) {
    std::vector<std::size_t> several;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].size() == 1) count(*groups[g][0], 0, g);
      if (groups[g].size() > 1) several.push_back(g);
    }
    for (std::size_t begin = 0; begin < several.size(); begin += kLanes) {
      const std::size_t end = std::min(several.size(), begin + kLanes);
      std::vector<Event> events;
      for (std::size_t i = begin; i < end; ++i) {
        for (const sharding::Collective* c : groups[several[i]]) events.push_back({c, i - begin, several[i]});
      }
      pass(std::move(events));
    }
  }

  const std::vector<Together>& of(std::size_t group) const { return levels_[group]; }

 private:
  static constexpr std::size_t kLanes = 32;
  static constexpr std::int16_t kMostLevels = std::numeric_limits<std::int16_t>::max();
  using Row = std::array<std::int16_t, kLanes>;
  struct Event {
    const sharding::Collective* collective = nullptr;
    std::size_t lane = 0, group = 0;
  };

  void count(const sharding::Collective& c, std::size_t level, std::size_t group) {
    std::vector<Together>& levels = levels_[group];
    if (level >= levels.size()) levels.resize(level + 1);
    Together& together = levels[level];
    double& times = c.reduces()                            ? together.reduce
                    : c.kind == CollectiveKind::kAllGather ? together.gather
                    : c.kind == CollectiveKind::kPermute   ? together.permute
                                                           : together.exchange;
    times = std::max(times, c.times);
  }

  // Only the nodes between the first and the last collective matter.
  void pass(std::vector<Event> events) {
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::make_pair(a.collective->node, a.lane) < std::make_pair(b.collective->node, b.lane);
    });
    const NodeId first = events.front().collective->node, last = events.back().collective->node;
    rows_.resize(std::max(rows_.size(), at(last - first) + 1));
    std::size_t next = 0;
    for (NodeId id = first; id <= last; ++id) {
      Row& here = rows_[at(id - first)];
      here.fill(0);
      for (const NodeId operand : flow_.operands(id)) {
        if (operand < first || operand >= id) continue;
        const Row& before = rows_[at(operand - first)];
        for (std::size_t lane = 0; lane < kLanes; ++lane) here[lane] = std::max(here[lane], before[lane]);
      }
      while (next < events.size() && events[next].collective->node == id) {
        const std::size_t lane = events[next].lane;
        for (; next < events.size() && events[next].collective->node == id && events[next].lane == lane; ++next)
          count(*events[next].collective, static_cast<std::size_t>(here[lane]), events[next].group);
        if (here[lane] < kMostLevels) ++here[lane];
      }
    }
  }

  const FlowGraph& flow_;
  std::vector<std::vector<Together>> levels_;
  std::vector<Row> rows_;
};

std::vector<double> PartitionCost::collectives_ms(const std::vector<CollectiveList>& groups) const {
  // A first byte's wait is paid once for all that go together, the rest of each message by itself.
  const double reduce_wait = links_.all_reduce.latency_ms(), gather_wait = links_.all_gather.latency_ms(),
               exchange_wait = links_.all_to_all.latency_ms(), permute_wait = links_.send.latency_ms();
  std::optional<Waits> waits;
  if (reduce_wait > 0) waits.emplace(model_.flow(), groups);
  std::vector<double> out;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<double> parts;
    for (const sharding::Collective* c : groups[g]) parts.push_back(moved_ms(*c));
    if (waits) {
      for (const Waits::Together& together : waits->of(g)) {
        parts.push_back(together.reduce * reduce_wait);
        parts.push_back(together.gather * gather_wait);
        parts.push_back(together.exchange * exchange_wait);
        parts.push_back(together.permute * permute_wait);
      }
    }
    out.push_back(sum_in_order(&parts));
  }
  return out;
}

std::vector<double> PartitionCost::own_ms(const std::vector<sharding::Collective>& collectives) const {
  std::map<GroupId, CollectiveList> by_group;
  for (const sharding::Collective& c : collectives) by_group[c.group].push_back(&c);
  std::vector<CollectiveList> lists;
  for (auto& [group, list] : by_group) lists.push_back(std::move(list));
  return collectives_ms(lists);
}

std::vector<bool> PartitionCost::made_whole() const {
  std::vector<bool> out(node_ms_.size(), false);
  for (const sharding::Gather& gather : model_.gathers()) {
    if (sharding::is_made_whole(model_.flow(), gather)) out[at(gather.tensor)] = true;
  }
  return out;
}

double PartitionCost::compute_ms(const sharding::Propagation& decided, NodeId op) const {
  bool split = false;
  for (const sharding::OpFactor& factor : model_.linkage().factors(op))
    split = split || decided.group_state(factor.group) == sharding::GroupState::kSplit;
  return node_ms_[at(op)] - (split ? shared_saving(divisible_ms_[at(op)]) : 0);
}

PlanEstimate PartitionCost::estimate(const sharding::Propagation& decided) const {
  const sharding::Linkage& linkage = model_.linkage();
  AM_CHECK(&decided.linkage() == &linkage);
  PlanEstimate out;
  const std::vector<bool> whole = made_whole();
  for (NodeId id = 0; id < model_.flow().size(); ++id) {
    out.compute_ms += compute_ms(decided, id);
    const double parameter = parameter_bytes_[at(id)], stash = stash_bytes_[at(id)];
    const double moved = other_saved_ms(id) + (whole[at(id)] ? 0 : other_reduction_saved_ms(id));
    if (parameter <= 0 && stash <= 0 && moved <= 0) continue;
    const bool divided = is_split(decided, id);
    if (divided) out.other_axis_ms -= moved;
    out.parameter_bytes += parameter - (divided ? shared_saving(parameter) : 0);
    out.stash_bytes += stash - (divided ? shared_saving(stash) : 0);
  }
  const auto written = find_collectives(model_, decided, written_placement(model_));
  const auto delayed = find_collectives(model_, decided, sharding::Placement::kDelayed);
  for (const double ms : own_ms(counted(written))) out.collective_ms += ms;
  out.other_axis_ms += other_ms_;
  out.collective_ms += out.other_axis_ms;
  out.all_reduce = total(written, CollectiveKind::kAllReduce);
  out.all_reduce_delayed = total(delayed, CollectiveKind::kAllReduce);
  out.all_gather = total(written, CollectiveKind::kAllGather);
  out.all_to_all = total(written, CollectiveKind::kAllToAll);
  out.permute = total(written, CollectiveKind::kPermute);
  for (const sharding::Collective& c : written) out.copy_bytes += copy_bytes_of(c);
  out.memory_bytes = out.parameter_bytes + out.stash_bytes + out.copy_bytes;
  out.step_ms = out.compute_ms + out.collective_ms;
  return out;
}

PartitionCost::StepParts PartitionCost::parts(const sharding::Propagation& decided) const {
  StepParts out;
  for (NodeId id = 0; id < model_.flow().size(); ++id) out.compute_ms.push_back(compute_ms(decided, id));
  for (sharding::Collective& c : counted(find_collectives(model_, decided, written_placement(model_)))) {
    const double moved = moved_ms(c);
    out.collectives.push_back({std::move(c), false, moved});
  }
  std::map<GroupId, std::vector<std::size_t>> by_group;
  for (std::size_t i = 0; i < out.collectives.size(); ++i) by_group[out.collectives[i].collective.group].push_back(i);
  std::vector<CollectiveList> lists;
  for (const auto& [group, own] : by_group) {
    lists.emplace_back();
    for (const std::size_t i : own) lists.back().push_back(&out.collectives[i].collective);
  }
  const std::vector<double> together_ms = collectives_ms(lists);
  // Shares out the time that `members` take together beyond the time of each.
  const auto share_out = [&out](const std::vector<std::size_t>& members, double waits_ms) {
    double times = 0;
    for (const std::size_t i : members) times += out.collectives[i].collective.times;
    for (const std::size_t i : members) {
      CollectivePart& part = out.collectives[i];
      if (times > 0) part.ms += waits_ms * part.collective.times / times;
    }
  };
  std::size_t next = 0;
  for (const auto& [group, own] : by_group) {
    double waits_ms = together_ms[next++];
    for (const std::size_t i : own) waits_ms -= out.collectives[i].ms;
    share_out(own, std::max(0.0, waits_ms));
  }
  const std::vector<bool> whole = made_whole();
  std::vector<std::size_t> others;
  for (const sharding::Collective& c : other_collectives_) {
    const bool reduced_whole = c.reduces() && whole[at(c.node)];
    others.push_back(out.collectives.size());
    out.collectives.push_back({c, true, other_moved_ms(c, is_split(decided, c.node) && !reduced_whole)});
  }
  share_out(others, other_waits_ms_);
  return out;
}

PartitionCost::GroupEffect PartitionCost::effect(GroupId group) const {
  return effects({group})[0];
}

std::vector<PartitionCost::GroupEffect> PartitionCost::effects(const std::vector<GroupId>& groups) const {
  const sharding::Linkage& linkage = model_.linkage();
  std::vector<GroupEffect> out;
  std::vector<std::vector<sharding::Collective>> collectives;
  const std::vector<bool> whole = made_whole();
  for (const GroupId group : groups) {
    std::vector<double> ms, bytes, moved;
    NodeId last = kNone;
    for (const std::int32_t f : linkage.factors_of_group(group)) {
      const NodeId op = linkage.factor(f).op;
      if (op != last) ms.push_back(shared_saving(divisible_ms_[at(op)]));
      last = op;
    }
    last = kNone;
    for (const sharding::TensorDim& member : linkage.members(group)) {
      if (member.node != last) {
        ms.push_back(other_saved_ms(member.node));
        if (!whole[at(member.node)]) ms.push_back(other_reduction_saved_ms(member.node));
        bytes.push_back(shared_saving(parameter_bytes_[at(member.node)]));
        bytes.push_back(shared_saving(stash_bytes_[at(member.node)]));
      }
      last = member.node;
    }
    collectives.push_back(counted(collectives_of_group(model_, group, written_placement(model_))));
    for (const sharding::Collective& c : collectives.back()) moved.push_back(c.times * c.bytes);
    GroupEffect effect;
    effect.collectives = static_cast<std::int32_t>(moved.size());
    effect.saved_ms = sum_in_order(&ms);
    effect.saved_bytes = sum_in_order(&bytes);
    effect.collective_bytes = sum_in_order(&moved);
    out.push_back(effect);
  }
  std::vector<CollectiveList> lists(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const sharding::Collective& c : collectives[g]) lists[g].push_back(&c);
  }
  const std::vector<double> ms = collectives_ms(lists);
  for (std::size_t g = 0; g < groups.size(); ++g) out[g].collective_ms = ms[g];
  return out;
}

models::PartitionProblem make_problem(const sharding::ShardingModel& model, const PartitionCost& cost,
                                      const std::vector<std::int32_t>& inputs, models::PartitionObjective objective,
                                      double memory_limit_bytes, std::vector<sharding::GroupId>* groups_of,
                                      const std::vector<bool>* kept_whole) {
  const sharding::Linkage& linkage = model.linkage();
  models::PartitionProblem problem;
  problem.objective = objective;
  problem.capacity_bytes = memory_limit_bytes;
  groups_of->clear();
  std::unordered_map<GroupId, std::int32_t> number;
  for (std::size_t v = 0; v < inputs.size(); ++v) {
    const sharding::ModelInput& input = model.inputs()[at(inputs[v])];
    const graph::Shape& shape = model.flow().shape(input.node);
    models::PartitionVariable variable;
    variable.name = input.name;
    variable.bytes = static_cast<double>(shape.bytes);
    if (shape.is_array()) variable.dims.assign(shape.dims.begin(), shape.dims.end());
    for (std::size_t d = 0; d < variable.dims.size(); ++d) {
      const auto member = std::make_pair(static_cast<std::int32_t>(v), static_cast<std::int32_t>(d));
      const GroupId group = linkage.group_of(input.node, member.second);
      if (group == kNone || !linkage.decidable(group) || (kept_whole != nullptr && (*kept_whole)[at(group)])) {
        problem.impossible.push_back(member);
        continue;
      }
      const auto [found, added] = number.try_emplace(group, static_cast<std::int32_t>(groups_of->size()));
      if (added) {
        groups_of->push_back(group);
        problem.groups.emplace_back();
      }
      problem.groups[at(found->second)].members.push_back(member);
    }
    problem.variables.push_back(std::move(variable));
  }
  const std::vector<PartitionCost::GroupEffect> effects = cost.effects(*groups_of);
  for (std::size_t g = 0; g < groups_of->size(); ++g) {
    models::PartitionGroup& group = problem.groups[g];
    const PartitionCost::GroupEffect& effect = effects[g];
    group.saved_ms = effect.saved_ms;
    group.collective_ms = effect.collective_ms;
    group.saved_bytes = effect.saved_bytes;
    group.collective_bytes = effect.collective_bytes;
    group.collectives = effect.collectives;
    for (const GroupId other : linkage.neighbours((*groups_of)[g])) {
      const auto found = number.find(other);
      if (found != number.end()) group.excludes.push_back(found->second);
    }
    std::sort(group.excludes.begin(), group.excludes.end());
  }
  const PlanEstimate whole = cost.estimate(sharding::Propagation(linkage));
  problem.compute_ms = whole.compute_ms;
  problem.collective_ms = whole.collective_ms;
  problem.memory_bytes = whole.memory_bytes;
  models::check_partition_problem(problem);
  return problem;
}

}  // namespace automap::partition
