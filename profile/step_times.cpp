#include "profile/step_times.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"
#include "common/graph/resized_graph.h"
#include "profile/host_time.h"
#include "profile/loop_weight_gradients.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::FlowNode;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Part;

StepTimes::StepTimes(const StepPositions& at, const InstructionTimes& times, const std::vector<std::int32_t>& backward,
                     const std::vector<std::int32_t>& update, const std::vector<double>& weights)
    : size_(static_cast<std::size_t>(at.size())) {
  find_running(at, times);
  for (NodeId id = 0; id < at.flow().size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (!runs_[i]) continue;
    const InstructionId instruction = at.flow().node(id).instruction;
    switch (at.part(id)) {
      case Part::kForward:
        if (at.position(id) == kNone) break;
        forward_.push_back({instruction, at.position(id)});
        both_.push_back(forward_.back());
        break;
      case Part::kBackward:
        backward_.push_back({instruction, backward[i]});
        both_.push_back(backward_.back());
        break;
      case Part::kOptimizer:
        if (update[i] == kNone) {
          spread_.push_back(instruction);
        } else {
          optimizer_.push_back({instruction, update[i]});
        }
        break;
      case Part::kGlue: other_.push_back(instruction); break;
      case Part::kFree:
      case Part::kInput: break;
    }
  }
  double all = 0;
  for (const double w : weights) all += w;
  spread_share_.assign(size_, 0.0);
  for (std::size_t p = 0; p < size_ && all > 0; ++p) spread_share_[p] = weights[p] / all;
  if (all == 0) spread_share_.back() = 1;
}

void StepTimes::tell_weight_gradients_apart(const StepPositions& at, const std::vector<std::int32_t>& backward,
                                            const graph::Graph& graph, const InstructionTimes& times) {
  const std::vector<bool> alone = makes_weight_gradients(at, backward);
  weights_.clear();
  for (NodeId id = 0; id < at.flow().size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (!runs_[i] || at.part(id) != Part::kBackward) continue;
    const InstructionId instruction = at.flow().node(id).instruction;
    const bool loop = !alone[i] && at.flow().node(id).opcode == Opcode::kWhile;
    const double share = alone[i] ? 1 : loop ? loop_weight_share(graph, instruction, times.ms) : 0;
    if (share > 0) weights_.push_back({instruction, backward[i], share});
  }
}

// Finds the nodes that run: of one turn of an expanded loop, and of one branch of a conditional.
void StepTimes::find_running(const StepPositions& at, const InstructionTimes& times) {
  const FlowGraph& flow = at.flow();
  const auto& sites = flow.sites();
  const auto counts = [&](NodeId id) {
    const FlowNode& node = flow.node(id);
    return node.opcode != Opcode::kGetTupleElement && node.opcode != Opcode::kParameter &&
           !(node.opcode == Opcode::kConditional && node.leaf != kNone) &&
           !(node.opcode == Opcode::kOptBarrier && node.leaf > 0);
  };
  std::vector<double> total(sites.size(), 0);
  for (NodeId id = 0; id < flow.size(); ++id) {
    const std::int32_t site = flow.node(id).site;
    if (site != kNone && counts(id))
      total[static_cast<std::size_t>(site)] += times.ms[static_cast<std::size_t>(flow.node(id).instruction)];
  }
  // Inside out (a site is numbered after its caller's), then outside in. The branches of one conditional are children
  // of one site and follow each other's subtrees.
  std::map<std::pair<std::int32_t, InstructionId>, std::vector<std::size_t>> conditionals;
  for (std::size_t i = sites.size(); i-- > 0;) {
    double up = total[i];
    if (sites[i].branch != kNone) {
      auto& branches = conditionals[{sites[i].parent, sites[i].caller}];
      branches.push_back(i);
      if (sites[i].branch != 0) continue;
      // Branch 0 comes last in this direction: all are known.
      for (const std::size_t b : branches) up = std::max(up, total[b]);
    }
    if (sites[i].parent != kNone) total[static_cast<std::size_t>(sites[i].parent)] += up;
  }
  std::vector<bool> hidden(sites.size(), false);
  for (const auto& [key, branches] : conditionals) {
    // Highest site number first; the first of equals wins so that ties do not depend on anything else.
    std::size_t best = branches.back();
    for (const std::size_t b : branches) {
      if (total[b] > total[best] || (total[b] == total[best] && b < best)) best = b;
    }
    for (const std::size_t b : branches) hidden[b] = b != best;
  }
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].parent != kNone && hidden[static_cast<std::size_t>(sites[i].parent)]) hidden[i] = true;
  }
  runs_.assign(static_cast<std::size_t>(flow.size()), false);
  for (NodeId id = 0; id < flow.size(); ++id) {
    const std::int32_t site = flow.node(id).site;
    runs_[static_cast<std::size_t>(id)] = counts(id) && (site == kNone || !hidden[static_cast<std::size_t>(site)]);
  }
}

StepTimes::Sum StepTimes::sum(const std::vector<double>& ms) const {
  Sum out;
  for (const Charge& charge : forward_) out.forward += ms[static_cast<std::size_t>(charge.instruction)];
  for (const Charge& charge : backward_) out.backward += ms[static_cast<std::size_t>(charge.instruction)];
  for (const Charge& charge : optimizer_) out.optimizer += ms[static_cast<std::size_t>(charge.instruction)];
  for (const InstructionId id : spread_) out.optimizer += ms[static_cast<std::size_t>(id)];
  for (const InstructionId id : other_) out.other += ms[static_cast<std::size_t>(id)];
  return out;
}

StepTimes::HostOfPasses StepTimes::host_of_passes(const InstructionTimes::Host& host) const {
  if (host.by_kernels.empty()) return {};
  return {host_of_pass(forward(host.by_kernels), forward(host.by_products)),
          host_of_pass(backward(host.by_kernels), backward(host.by_products))};
}

std::vector<double> StepTimes::add_up(const std::vector<Charge>& charges, const std::vector<double>& ms) const {
  std::vector<double> out(size_, 0.0);
  for (const Charge& charge : charges)
    out[static_cast<std::size_t>(charge.position)] += charge.share * ms[static_cast<std::size_t>(charge.instruction)];
  return out;
}

std::vector<double> StepTimes::compute(const std::vector<double>& ms) const {
  return add_up(both_, ms);
}

std::vector<double> StepTimes::optimizer(const std::vector<double>& ms) const {
  std::vector<double> out = add_up(optimizer_, ms);
  double spread = 0;
  for (const InstructionId id : spread_) spread += ms[static_cast<std::size_t>(id)];
  for (std::size_t p = 0; p < size_; ++p) out[p] += spread * spread_share_[p];
  return out;
}

TimesAt times_at(const StepTimes& step, const TimeEstimator& estimator, const graph::Graph& graph,
                 const InstructionTimes& times, const BatchDims& batch,
                 const std::vector<machine::DeviceModel>& devices, const std::vector<std::int64_t>& samples,
                 const std::vector<CollectiveCharges>& widths) {
  using Charge = CollectiveCharges::Charge;
  TimesAt out;
  out.own.resize(devices.size());
  out.by_width.assign(widths.size(), std::vector<pipeline::DeviceTimes>(devices.size()));
  std::vector<machine::DeviceModel> without_launch = devices;
  for (machine::DeviceModel& device : without_launch) device.launch_us = device.host_us = 0;
  // The host times are those of the module's own samples: the number of kernels hardly depends on them.
  std::vector<StepTimes::HostOfPasses> host;
  for (std::size_t d = 0; d < devices.size(); ++d)
    host.push_back(step.host_of_passes(d == 0 ? times.host_ms : estimator.estimate_host_ms(devices[d])));
  // The times of each device of a replica: splitting divides the divisible part.
  const auto parted = [](const WidthParts& parts, std::vector<double> ms, const std::vector<double>& divisible) {
    for (std::size_t i = 0; i < ms.size(); ++i) ms[i] -= std::min(ms[i], divisible[i]) * (1 - parts.op_share[i]);
    return ms;
  };
  const auto add_row = [&](std::vector<std::vector<double>>* table, std::vector<double> row,
                           const std::vector<double>& launches, const std::vector<Charge>& charges, Charge::When when,
                           double growth) {
    for (const Charge& charge : charges) {
      if (charge.when == when) row[static_cast<std::size_t>(charge.position)] += charge.ms_at(growth);
    }
    wait_for_host(&row, launches);
    table->push_back(std::move(row));
  };
  const auto add = [&](std::size_t d, const std::vector<double>& ms, const TimeEstimator& at, std::int64_t b) {
    add_row(&out.own[d].forward_ms, step.forward(ms), host[d].forward, {}, Charge::When::kForward, 1);
    add_row(&out.own[d].backward_ms, step.backward(ms), host[d].backward, {}, Charge::When::kBackward, 1);
    if (widths.empty()) return;
    const std::vector<double> divisible = at.estimate_ms(without_launch[d]);
    const double growth = static_cast<double>(b) / static_cast<double>(batch.batch);
    for (std::size_t w = 0; w < widths.size(); ++w) {
      const std::vector<double> left = parted(*widths[w].parts, ms, divisible);
      const auto& charges = widths[w].by_device[d];
      add_row(&out.by_width[w][d].forward_ms, step.forward(left), host[d].forward, charges, Charge::When::kForward,
              growth);
      add_row(&out.by_width[w][d].backward_ms, step.backward(left), host[d].backward, charges, Charge::When::kBackward,
              growth);
    }
  };
  graph::ResizedGraph resized(graph, batch.marks, batch.batch);
  TimeEstimator other(resized.graph(), estimator.structure());
  for (const std::int64_t b : samples) {
    const bool own = b == batch.batch;
    if (!own) {
      resized.resize(b);
      other.measure();
    }
    const TimeEstimator& at = own ? estimator : other;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      add(d, own && d == 0 ? times.ms : at.estimate_ms(devices[d]), at, b);
    }
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const std::vector<double> ms = d == 0 ? times.ms : estimator.estimate_ms(devices[d]);
    const auto describe = [&](pipeline::DeviceTimes* of, std::vector<double> optimizer_ms) {
      of->device = devices[d].name;
      of->samples.assign(samples.begin(), samples.end());
      of->optimizer_ms = std::move(optimizer_ms);
    };
    describe(&out.own[d], step.optimizer(ms));
    if (widths.empty()) continue;
    const std::vector<double> divisible = estimator.estimate_ms(without_launch[d]);
    for (std::size_t w = 0; w < widths.size(); ++w) {
      const std::vector<double> left = parted(*widths[w].parts, ms, divisible);
      if (d == 0) out.weight_gradients_ms.push_back(step.weight_gradients(left));
      std::vector<double> update = step.optimizer(left);
      for (const Charge& charge : widths[w].by_device[d]) {
        if (charge.when == Charge::When::kUpdate) update[static_cast<std::size_t>(charge.position)] += charge.ms;
      }
      describe(&out.by_width[w][d], std::move(update));
    }
  }
  return out;
}

}  // namespace automap::profile
