#include "plan/partition/widths.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "plan/partition/flow_units.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/planner.h"

namespace automap::partition {

namespace {

using graph::InstructionId;
using graph::kNone;
using graph::NodeId;

// The share of every instruction's divisible time that remains after splitting; an instruction that stands for others
// (a loop) has their common share.
std::vector<double> op_shares(const sharding::ShardingModel& model, const PartitionCost& cost,
                              const sharding::Propagation& decided, const PartitionCost::StepParts& parts,
                              const std::vector<NodeId>& units) {
  const auto instructions = static_cast<std::size_t>(model.graph().num_instructions());
  const std::vector<double> share = cost.as_other(decided).op_share;
  const std::vector<double>& left = parts.compute_ms;
  const std::vector<double> all = cost.parts(sharding::Propagation(model.linkage())).compute_ms;
  const double saved_by_splitting = 1 - 1.0 / model.linkage().shards();
  std::vector<double> own(instructions, 0), count(instructions, 0), inside(instructions, 0), saved(instructions, 0);
  for (NodeId id = 0; id < model.flow().size(); ++id) {
    const InstructionId instruction = model.flow().node(id).instruction;
    own[at(instruction)] += share[at(id)];
    ++count[at(instruction)];
    if (units[at(id)] == kNone) continue;
    const InstructionId unit = model.step().flow.node(units[at(id)]).instruction;
    if (unit == instruction) continue;
    inside[at(unit)] += cost.saved_ms(id) / saved_by_splitting;
    saved[at(unit)] += all[at(id)] - left[at(id)];
  }
  std::vector<double> out(instructions, 1);
  for (std::size_t i = 0; i < instructions; ++i) {
    if (inside[i] > 0) {
      out[i] = 1 - std::min(1.0, saved[i] / inside[i]);
    } else if (count[i] > 0) {
      out[i] = own[i] / count[i];
    }
  }
  return out;
}

// Shares by node of the step's flow from those by node of the model's flow; `none` for nodes without one there.
std::vector<double> by_step_node(const sharding::ShardingModel& model, const std::vector<double>& shares, double none) {
  std::vector<double> out;
  for (const NodeId expanded : expanded_of(model)) out.push_back(expanded == kNone ? none : shares[at(expanded)]);
  return out;
}

// By instruction, the mean of its nodes; `none` for an instruction without nodes.
std::vector<double> by_instruction(const sharding::ShardingModel& model, const std::vector<double>& shares,
                                   double none) {
  std::vector<double> out(static_cast<std::size_t>(model.graph().num_instructions()), 0), count(out.size(), 0);
  for (NodeId id = 0; id < model.flow().size(); ++id) {
    const auto i = at(model.flow().node(id).instruction);
    out[i] += shares[at(id)];
    ++count[i];
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = count[i] > 0 ? out[i] / count[i] : none;
  return out;
}

// Bytes of gathered copies that are kept, as a share of every tensor's bytes.
std::vector<double> copy_shares(const sharding::ShardingModel& model, const PartitionCost& cost,
                                const PartitionCost::StepParts& parts) {
  std::vector<double> out(static_cast<std::size_t>(model.flow().size()), 0);
  for (const PartitionCost::CollectivePart& part : parts.collectives) {
    const NodeId node = part.collective.node;
    if (const double bytes = cost.copy_bytes_of(part.collective); bytes > 0) {
      out[at(node)] += bytes / static_cast<double>(model.flow().shape(node).bytes);
    }
  }
  return out;
}

std::vector<profile::WidthParts::Collective> collectives_of(const PartitionCost& cost,
                                                            const PartitionCost::StepParts& parts,
                                                            const std::vector<NodeId>& units) {
  std::vector<profile::WidthParts::Collective> out;
  for (const PartitionCost::CollectivePart& part : parts.collectives) {
    const NodeId unit = units[at(part.collective.node)];
    if (unit == kNone) continue;
    out.push_back({unit, part.ms, part.collective.bytes, cost.time_of(part.collective)});
  }
  return out;
}

// The device whose partition all take: the one of which the cluster has most in servers that hold a replica, then the
// one with the slower links, which lose more by a partition for faster ones; in whatever order the servers are named.
std::size_t deciding_device(const std::vector<machine::DeviceModel>& devices, const machine::Cluster& cluster,
                            int width) {
  std::size_t best = 0;
  std::tuple<int, double, std::string> most;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::tuple<int, double, std::string> has(0, 0, devices[d].name);
    for (const machine::ServerGroup& servers : cluster.servers) {
      if (servers.device != devices[d].name || machine::servers_of_replica(cluster, servers, width) == 0) continue;
      std::get<0>(has) += servers.count * servers.devices;
      std::get<1>(has) = -servers.intra_gbytes_per_s;
    }
    if (d == 0 || has > most) {
      most = std::move(has);
      best = d;
    }
  }
  return best;
}

// The cluster with links that take almost no time: tensors are then split for their compute alone.
machine::Cluster with_endless_links(machine::Cluster cluster) {
  for (machine::ServerGroup& servers : cluster.servers) {
    servers.intra_gbytes_per_s = servers.inter_gbytes_per_s = 1e6;
    servers.links = {};
  }
  cluster.intra_latency_us = cluster.inter_latency_us = 0;
  return cluster;
}

}  // namespace

machine::Cluster servers_of(const machine::Cluster& cluster, const std::string& device, int width) {
  const auto only = [&](const auto& is_wanted) {
    machine::Cluster out = cluster;
    const auto is_other = [&](const machine::ServerGroup& servers) { return !is_wanted(servers); };
    out.servers.erase(std::remove_if(out.servers.begin(), out.servers.end(), is_other), out.servers.end());
    return out;
  };
  const auto has_replica = [&](const machine::ServerGroup& servers) {
    return machine::servers_of_replica(cluster, servers, width) > 0;
  };
  machine::Cluster out = only([&](const auto& servers) { return has_replica(servers) && servers.device == device; });
  if (out.servers.empty()) out = only(has_replica);
  return out.servers.empty() ? cluster : out;
}

PlanningRequest as_width_request(PlanningRequest asked) {
  asked.fit_device = false;
  asked.memory_limit_bytes = 0;
  asked.other = nullptr;
  asked.outer = nullptr;
  asked.rows_whole = true;
  return asked;
}

PlanningRequest width_request(const WidthChoices& choices) {
  PlanningRequest request;
  request.reshard = true;
  request.sequence_parallel = choices.sequence_parallel;
  request.keep_shardings = choices.keep_shardings;
  request.compare = false;
  return as_width_request(std::move(request));
}

profile::WidthParts width_parts(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                                const std::vector<machine::DeviceModel>& devices, const machine::Cluster& cluster) {
  const std::vector<NodeId> units = units_of(model);
  profile::WidthParts out;
  out.width = model.linkage().shards();
  const std::size_t decides = deciding_device(devices, cluster, out.width);
  for (const machine::DeviceModel& device : devices) {
    const PartitionCost cost(model, device, servers_of(cluster, device.name, out.width));
    const PartitionCost::StepParts parts = cost.parts(decided);
    if (&device == &devices[decides]) {
      out.op_share = op_shares(model, cost, decided, parts, units);
      const std::vector<double> held = cost.as_other(decided).shares.held;
      out.tensor_share = by_step_node(model, held, 1);
      out.inner_share = by_instruction(model, held, 1);
      const std::vector<double> copies = copy_shares(model, cost, parts);
      out.copy_share = by_step_node(model, copies, 0);
      out.inner_copy_share = by_instruction(model, copies, 0);
    }
    out.collectives.push_back(collectives_of(cost, parts, units));
  }
  return out;
}

std::vector<WidthPlan> plan_widths(const graph::Graph& graph, const std::vector<graph::VariableRequest>* variables,
                                   const std::vector<machine::DeviceModel>& devices, const machine::Cluster& cluster,
                                   const std::vector<int>& widths, const WidthChoices& choices, std::string* why_none) {
  std::vector<WidthPlan> out;
  if (widths.empty()) return out;
  sharding::ModelOptions options;
  options.shards = widths.front();
  options.variables = variables;
  const sharding::ShardingModel whole = sharding::ShardingModel::build(graph, options);
  if (graph.num_instructions() > 0) graph.users(0);  // built here, before several threads ask
  struct Found {
    std::optional<WidthPlan> plan;
    std::string why_none;
  };
  std::vector<Found> found(widths.size());
  InOrder loop;
  loop.work = [&](std::size_t i, const Dropped&) {
    sharding::ShardingModel model = whole.another_axis(widths[i]);
    try {
      PlanningRequest request = width_request(choices);
      const std::string not_kept = request.keep_shardings ? why_not_kept(model) : "";
      request.keep_shardings = request.keep_shardings && not_kept.empty();
      const machine::DeviceModel& device = devices[deciding_device(devices, cluster, widths[i])];
      const machine::Cluster servers = servers_of(cluster, device.name, widths[i]);
      Planned planned = make_plan(&model, device, servers, request);
      const bool given = std::find(choices.given.begin(), choices.given.end(), widths[i]) != choices.given.end();
      if (planned.plan.partitioned == 0 && given && !request.keep_shardings) {
        model = whole.another_axis(widths[i]);
        planned = make_plan(&model, device, with_endless_links(servers), request);
      }
      if (planned.plan.partitioned == 0) {
        found[i].why_none = planned.nothing_split.empty() ? "the shardings that are kept split no variable over " +
                                                                std::to_string(widths[i]) + " devices"
                                                          : planned.nothing_split;
        return;
      }
      found[i].plan = WidthPlan{planned.plan, width_parts(model, planned.decided, devices, cluster), not_kept};
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kData && e.kind() != ErrorKind::kInfeasible) throw;
      found[i].why_none = e.what();
    }
  };
  loop.take = [&](std::size_t i) {
    if (found[i].plan) {
      out.push_back(*std::move(found[i].plan));
    } else if (why_none != nullptr) {
      *why_none = std::move(found[i].why_none);
    }
  };
  run_in_order(widths.size(), loop);
  return out;
}

}  // namespace automap::partition
