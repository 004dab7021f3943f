#include "search/planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/sharding/explain.h"
#include "search/data_parallel.h"
#include "search/names.h"
#include "search/nothing_split.h"

namespace automap::search {
namespace {

using models::PartitionObjective;
using sharding::GroupId;
using sharding::GroupState;
using sharding::Linkage;
using sharding::ModelInput;
using sharding::Obstacle;
using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorDim;

// What other objectives and data parallelism would give is a side remark: it may not take long.
constexpr std::int64_t kComparisonUnits = 2'000'000'000;
constexpr int kMostDevicesNamed = 64;

const std::vector<std::int32_t>& decided_inputs(const ShardingModel& model, bool data) {
  return data ? model.data() : model.variables();
}

// The data inputs that hold the batch: what else the step reads (a random key, weights that nothing updates) is not
// split by data parallelism. All of them when no batch is found.
std::vector<std::int32_t> batched_inputs(const ShardingModel& model) {
  const std::vector<TensorDim> batch = find_batch(model);
  std::vector<std::int32_t> out;
  for (const std::int32_t index : model.data()) {
    const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(index)].node;
    const auto holds = [node](const TensorDim& at) { return at.node == node; };
    if (batch.empty() || std::any_of(batch.begin(), batch.end(), holds)) out.push_back(index);
  }
  return out;
}

// XLA's partitioner gathers what a batch-norm instruction reads when its batch is split.
void warn_of_batch_norms(const ShardingModel& model, const sharding::Propagation& decided,
                         std::vector<std::string>* warnings) {
  const Linkage& linkage = model.linkage();
  std::set<graph::InstructionId> split;
  for (const GroupId group : decided.split_groups()) {
    for (const std::int32_t index : linkage.factors_of_group(group)) {
      const sharding::OpFactor& factor = linkage.factor(index);
      const graph::Opcode opcode = model.flow().node(factor.op).opcode;
      if (opcode == graph::Opcode::kBatchNormTraining || opcode == graph::Opcode::kBatchNormInference ||
          opcode == graph::Opcode::kBatchNormGrad)
        split.insert(model.flow().node(factor.op).instruction);
    }
  }
  if (split.empty()) return;
  warnings->push_back(plural(static_cast<std::int64_t>(split.size()), "batch-norm instruction") +
                      (split.size() == 1 ? " is" : " are") +
                      " split as the sums they come apart into; XLA's partitioner gathers what they read, unless its "
                      "batchnorm_expander pass ran before, or the framework writes batch norms as plain arithmetic");
}

std::size_t rank_of(const ShardingModel& model, std::int32_t input) {
  return model.flow().shape(model.inputs()[static_cast<std::size_t>(input)].node).dims.size();
}

// The decisions behind the chosen groups; everything else is kept whole.
Propagation decide(const ShardingModel& model, const std::vector<std::int32_t>& inputs,
                   const std::vector<GroupId>& chosen) {
  const Linkage& linkage = model.linkage();
  std::map<GroupId, TensorDim> decider;
  for (const std::int32_t index : inputs) {
    const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(index)].node;
    for (std::size_t d = 0; d < rank_of(model, index); ++d) {
      const TensorDim at{node, static_cast<std::int32_t>(d)};
      if (const GroupId group = linkage.group_of(at); group != graph::kNone) decider.emplace(group, at);
    }
  }
  Propagation decided(linkage);
  for (const GroupId group : chosen) {
    const auto at = decider.find(group);
    if (const auto conflict = decided.split_group(group, at == decider.end() ? TensorDim{} : at->second)) {
      throw Error(ErrorKind::kInternal,
                  "a search chose groups that exclude each other: " + explain(model, decided, *conflict).summary);
    }
  }
  for (const GroupId group : decided.undecided()) decided.keep_whole(linkage.inputs(group)[0]);
  return decided;
}

// The splitting of a choice judged: for alternatives, which only need figures.
PartitionAlternative judge(const ShardingModel& model, const PartitionCost& cost,
                           const std::vector<std::int32_t>& inputs, const std::vector<GroupId>& chosen,
                           const std::string& planner) {
  const Propagation decided = decide(model, inputs, chosen);
  const PlanEstimate estimate = cost.estimate(decided);
  PartitionAlternative out;
  out.planner = planner;
  for (const std::int32_t index : inputs) {
    const auto state = decided.state(model.inputs()[static_cast<std::size_t>(index)].node);
    if (state.kind == sharding::TensorStateKind::kSplit) ++out.partitioned;
  }
  out.step_ms = estimate.step_ms;
  out.memory_bytes = estimate.memory_bytes;
  out.collective_bytes = estimate.all_reduce_at_once.bytes + estimate.all_gather.bytes;
  return out;
}

// Extents that the devices have to divide for the group to be split: their greatest common divisor; 0 when all do.
std::int64_t indivisible_extent(const Linkage& linkage, GroupId group) {
  std::int64_t extent = 0;
  for (const Obstacle& obstacle : linkage.obstacles(group)) {
    if (obstacle.kind == Obstacle::Kind::kIndivisible) extent = std::gcd(extent, obstacle.extent);
  }
  return extent;
}

bool only_indivisible(const Linkage& linkage, GroupId group) {
  const auto obstacles = linkage.obstacles(group);
  return std::all_of(obstacles.begin(), obstacles.end(),
                     [](const Obstacle& o) { return o.kind == Obstacle::Kind::kIndivisible; });
}

std::string indivisible_text(const Linkage& linkage, GroupId group) {
  const std::int64_t extent = indivisible_extent(linkage, group);
  const std::string others = divisors_text(extent, kMostDevicesNamed);
  return std::to_string(linkage.shards()) + " devices do not divide " + std::to_string(extent) +
         (others.empty() ? "" : "; " + others + " would");
}

std::string ms_text(double ms) {
  return ms > 0 ? format_ms(ms) : "nothing";
}

// Why a group cannot be split, without the name of who asks: it is the same for all of its tensors.
std::string why_impossible(const ShardingModel& model, GroupId group) {
  if (only_indivisible(model.linkage(), group)) return indivisible_text(model.linkage(), group);
  const std::string summary = sharding::explain_obstacle(model, group).summary;
  static constexpr std::string_view kVerdict = "cannot be split: ";
  const std::size_t at = summary.find(kVerdict);
  return at == std::string::npos ? summary : summary.substr(at + kVerdict.size());
}

// Why a decided tensor is whole, the most telling of its dimensions' reasons.
std::string why_whole(const ShardingModel& model, const Propagation& decided,
                      const std::map<GroupId, PartitionCost::GroupEffect>& effects, std::int32_t input,
                      PartitionObjective objective, std::map<GroupId, std::string>* impossible) {
  const Linkage& linkage = model.linkage();
  const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(input)].node;
  const std::size_t rank = rank_of(model, input);
  if (rank == 0) return "it is a scalar";
  // Per dimension: how telling, and what.
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
        const PartitionCost::GroupEffect& effect = effects.at(group);
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
          offer(2, dimension + "excluded by " + sharding::describe(model, by) +
                       (where.empty() ? "" : ", which it meets in " + where));
          break;
        }
        break;
      }
      default: {
        if (linkage.possible(group)) break;
        auto known = impossible->find(group);
        if (known == impossible->end()) known = impossible->emplace(group, why_impossible(model, group)).first;
        offer(only_indivisible(linkage, group) ? 1 : 0, dimension + known->second);
      }
    }
  }
  return best.second;
}

// The "dimension 1: " that a reason begins with, or nothing. Tensors with one reason share a row also where it is about
// different dimensions of theirs; the row then names none.
std::string own_dimension(const std::string& reason) {
  const std::size_t colon = reason.find(": ");
  return reason.rfind("dimension ", 0) == 0 && colon != std::string::npos ? reason.substr(0, colon + 2) : "";
}

struct Ranked {
  GroupId group = graph::kNone;
  int inputs = 0, leading = 0;  // data tensors it splits; those along dimension 0
  bool batch = false;           // its extent is what the step's data begin with
  double bytes = 0;             // of those tensors
  TensorDim at;
};

// The groups of the data, the one that is most likely the batch first.
std::vector<Ranked> rank_data_groups(const ShardingModel& model) {
  std::map<GroupId, Ranked> groups;
  for (const std::int32_t index : batched_inputs(model)) {
    const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(index)].node;
    const graph::Shape& shape = model.flow().shape(node);
    for (std::size_t d = 0; d < shape.dims.size(); ++d) {
      const TensorDim at{node, static_cast<std::int32_t>(d)};
      const GroupId group = model.linkage().group_of(at);
      if (group == graph::kNone) continue;
      Ranked& ranked = groups[group];
      if (ranked.group == graph::kNone) ranked.at = at;
      ranked.group = group;
      ++ranked.inputs;
      if (d == 0) ++ranked.leading;
      ranked.bytes += static_cast<double>(shape.bytes);
      ranked.batch = ranked.batch || (d == 0 && shape.dims[d] == model.step().batch);
    }
  }
  std::vector<Ranked> out;
  for (const auto& [group, ranked] : groups) out.push_back(ranked);
  std::stable_sort(out.begin(), out.end(), [](const Ranked& a, const Ranked& b) {
    return std::make_tuple(a.batch, a.leading, a.inputs, a.bytes) >
           std::make_tuple(b.batch, b.leading, b.inputs, b.bytes);
  });
  return out;
}

bool excludes(const Linkage& linkage, GroupId a, GroupId b) {
  const auto neighbours = linkage.neighbours(a);
  return std::binary_search(neighbours.begin(), neighbours.end(), b);
}

bool any_cut_by_time(const std::vector<PartitionAnswer>& answers) {
  return std::any_of(answers.begin(), answers.end(), [](const PartitionAnswer& answer) { return answer.cut_by_time; });
}

}  // namespace

DataChoice choose_batch(ShardingModel* model) {
  DataChoice choice;
  std::vector<Ranked> ranked = rank_data_groups(*model);
  if (ranked.empty()) return choice;
  const Ranked batch = ranked.front();
  const auto note_gathers = [&](const RepairResult& repaired) {
    choice.gathers = repaired.gathers;
    choice.note = sharding::describe(*model, batch.at) + " can be split when " +
                  plural(repaired.gathered_tensors, "tensor") + " of its batch " +
                  (repaired.gathered_tensors == 1 ? "is" : "are") + " gathered again (" +
                  format_bytes(repaired.gathered_bytes) + " per step)";
    ranked = rank_data_groups(*model);
  };
  // All of the batch at once where that can be: images and texts that meet in a similarity exclude each other else.
  const std::vector<TensorDim> together = find_batch(*model);
  RepairResult whole;
  if (together.size() > 1) whole = repair(model, together);
  if (whole.possible) {
    if (!whole.gathers.empty()) note_gathers(whole);
  } else if (!model->linkage().possible(batch.group)) {
    const std::string name = sharding::describe(*model, batch.at);
    if (indivisible_extent(model->linkage(), batch.group) > 0) {
      choice.note = name + " cannot be split: " + indivisible_text(model->linkage(), batch.group);
    } else {
      const RepairResult repaired = repair(model, batch.at);
      if (repaired.possible) {
        note_gathers(repaired);
      } else {
        choice.note = "the batch is not split: " + repaired.why_not;
      }
    }
  }
  for (const Ranked& group : ranked) {
    if (!model->linkage().possible(group.group)) continue;
    if (std::none_of(choice.groups.begin(), choice.groups.end(),
                     [&](GroupId other) { return excludes(model->linkage(), group.group, other); })) {
      choice.groups.push_back(group.group);
    }
  }
  return choice;
}

Planned make_plan(ShardingModel* model, const profile::DeviceModel& device, const pipeline::Cluster& cluster,
                  const PlanningRequest& request) {
  const std::vector<std::int32_t>& inputs = decided_inputs(*model, request.data);
  if (inputs.empty()) {
    const std::string module = "module '" + std::string(model->graph().name()) + "'";
    throw Error(ErrorKind::kData,
                module + (request.data ? " has no data inputs: all it reads are variables, state and constants"
                                       : " has no variables: nothing it reads is a weight"),
                // The other command where it has something to split.
                request.data            ? (model->variables().empty() ? "" : "automap-search opp splits its variables")
                : model->data().empty() ? "name them with --variables"
                                        : "name them with --variables, or split its data with automap-search adp");
  }
  const int shards = model->linkage().shards();
  std::vector<std::string> warnings = model->step().warnings;
  const PartitionCost cost(*model, device, cluster);

  const double limit_bytes = request.memory_limit_bytes > 0 ? request.memory_limit_bytes
                             : request.fit_device           ? cost.capacity_bytes()
                                                            : 0;

  // The batch may need gathers, which make another linkage: all that follows is on that one (data), or on the first
  // again (operators, where data parallelism is only compared with).
  DataChoice batch;
  std::vector<PartitionAlternative> compared;
  bool cut_by_time = false, cut_by_effort = false;
  if (request.data && shards > 1 && !model->variables().empty()) {
    std::vector<GroupId> variable_groups;
    const models::PartitionProblem variables =
        make_problem(*model, cost, model->variables(), PartitionObjective::kTime, 0, &variable_groups);
    if (!variables.groups.empty()) {
      SearchRequest quick;
      quick.limits = request.search.limits;
      quick.limits.units = std::min(quick.limits.units, kComparisonUnits);
      std::vector<GroupId> best;
      const std::vector<PartitionAnswer> found = run_search(variables, quick);
      cut_by_time = cut_by_time || any_cut_by_time(found);
      for (const std::int32_t g : found.empty() ? std::vector<std::int32_t>() : found.front().groups) {
        best.push_back(variable_groups[static_cast<std::size_t>(g)]);
      }
      compared.push_back(judge(*model, cost, model->variables(), best, "operators"));
    }
  }
  if (shards > 1 && !model->data().empty()) {
    batch = choose_batch(model);
    if (!request.data && !batch.groups.empty()) {
      compared.push_back(judge(*model, cost, model->data(), batch.groups, "data parallel"));
    }
    if (!request.data && !batch.gathers.empty()) model->relink(shards, {});
  }
  if (request.data && !batch.note.empty()) warnings.push_back(batch.note);

  std::vector<GroupId> groups_of;
  const models::PartitionProblem problem = make_problem(*model, cost, request.data ? batched_inputs(*model) : inputs,
                                                        request.objective, limit_bytes, &groups_of);
  const auto linkage_groups = [&](const std::vector<std::int32_t>& chosen) {
    std::vector<GroupId> out;
    for (const std::int32_t g : chosen) out.push_back(groups_of[static_cast<std::size_t>(g)]);
    return out;
  };

  std::vector<PartitionAnswer> answers;
  std::vector<GroupId> chosen;
  if (shards == 1) {
    warnings.push_back("one device: there is nothing to split over");
  } else {
    try {
      answers = run_search(problem, request.search);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible) throw;
      throw Error(ErrorKind::kInfeasible, e.what(),
                  "take a cluster with larger devices or more --shards; --memory off plans without a limit");
    }
    if (!answers.empty()) chosen = linkage_groups(answers.front().groups);
  }
  // As many tensors as the batch splits can often be split along something else (a sequence); data parallelism means
  // the batch.
  std::string planner = answers.empty() ? "none" : answers.front().algorithm;
  if (request.data && request.objective == PartitionObjective::kCount && !batch.groups.empty() && !answers.empty()) {
    std::vector<std::int32_t> own;
    for (std::size_t g = 0; g < groups_of.size(); ++g) {
      if (std::find(batch.groups.begin(), batch.groups.end(), groups_of[g]) != batch.groups.end()) {
        own.push_back(static_cast<std::int32_t>(g));
      }
    }
    const models::PartitionScore of_batch = models::score(problem, own), found = answers.front().score;
    if (!of_batch.conflict && (of_batch.fits || !found.fits) && of_batch.value >= found.value &&
        linkage_groups(own) != chosen) {
      chosen = linkage_groups(own);
      planner = "batch";
    }
  }

  Planned out{{}, {}, {}, decide(*model, inputs, chosen), {}, {}, std::move(answers), cost.link(), {}};
  warn_of_batch_norms(*model, out.decided, &warnings);
  out.estimate = cost.estimate(out.decided);
  out.unsplit = cost.estimate(decide(*model, inputs, {}));

  PartitionPlan& plan = out.plan;
  plan.kind = request.data ? "data" : "operator";
  plan.planner = planner;
  plan.objective = request.objective == PartitionObjective::kTime ? "time" : "count";
  for (const std::int32_t index : inputs) {
    plan.decided.push_back(model->inputs()[static_cast<std::size_t>(index)].name);
  }
  describe_decision(*model, out.decided, &plan);
  if (!out.answers.empty()) {
    const PartitionAnswer& best = out.answers.front();
    plan.value = best.score.value;
    plan.bound = best.bound;
    plan.proven = best.proven;
    plan.cut_by_time = cut_by_time || any_cut_by_time(out.answers);
    cut_by_effort = best.cut_by_effort;
  }
  plan.step_ms = out.estimate.step_ms;
  plan.compute_ms = out.estimate.compute_ms;
  plan.collective_ms = out.estimate.collective_ms;
  plan.memory_bytes = out.estimate.memory_bytes;
  plan.capacity_bytes = cost.capacity_bytes();
  plan.replicated_step_ms = out.unsplit.step_ms;

  std::map<GroupId, PartitionCost::GroupEffect> effects;
  for (std::size_t g = 0; g < problem.groups.size(); ++g) {
    const models::PartitionGroup& group = problem.groups[g];
    effects[groups_of[g]] = {group.saved_ms, group.collective_ms, group.saved_bytes, group.collective_bytes,
                             group.collectives};
  }
  const std::set<GroupId> split(chosen.begin(), chosen.end());
  for (std::size_t g = 0; g < problem.groups.size(); ++g) {
    const models::PartitionGroup& group = problem.groups[g];
    PlanLinkageGroup listed;
    for (const auto& [variable, dim] : group.members) {
      listed.members.emplace_back(problem.variables[static_cast<std::size_t>(variable)].name, dim);
    }
    listed.split = split.count(groups_of[g]) > 0;
    listed.saved_ms = group.saved_ms;
    listed.collective_ms = group.collective_ms;
    listed.saved_bytes = group.saved_bytes;
    plan.groups.push_back(std::move(listed));
  }

  // Split groups, collated over repeated layers.
  std::map<GroupId, std::vector<std::pair<std::string, int>>> members;
  for (const std::int32_t index : inputs) {
    const ModelInput& input = model->inputs()[static_cast<std::size_t>(index)];
    const sharding::TensorState state = out.decided.state(input.node);
    if (state.kind != sharding::TensorStateKind::kSplit) continue;
    members[model->linkage().group_of(input.node, state.dim)].emplace_back(sharding::path_of(input.name), state.dim);
  }
  std::map<std::string, std::size_t> seen;
  for (const GroupId group : split) {
    const auto at = members.find(group);
    if (at == members.end()) continue;
    std::vector<std::pair<std::string, int>> pattern;
    for (const auto& [path, dim] : at->second) pattern.emplace_back(pattern_of(path), dim);
    std::sort(pattern.begin(), pattern.end());
    std::string signature;
    for (const auto& [path, dim] : pattern) signature += path + "=" + std::to_string(dim) + ";";
    const auto [place, fresh] = seen.emplace(signature, out.split.size());
    if (fresh) out.split.emplace_back();
    SplitGroups& alike = out.split[place->second];
    alike.groups.push_back(group);
    alike.members.insert(alike.members.end(), at->second.begin(), at->second.end());
    const PartitionCost::GroupEffect& effect = effects.at(group);
    alike.effect.saved_ms += effect.saved_ms;
    alike.effect.collective_ms += effect.collective_ms;
    alike.effect.saved_bytes += effect.saved_bytes;
    alike.effect.collective_bytes += effect.collective_bytes;
    alike.effect.collectives += effect.collectives;
  }
  std::stable_sort(out.split.begin(), out.split.end(),
                   [](const SplitGroups& a, const SplitGroups& b) { return a.members.size() > b.members.size(); });

  // Whole tensors by reason.
  std::map<std::string, std::size_t> reasons;
  std::map<GroupId, std::string> impossible;
  for (const std::int32_t index : inputs) {
    const ModelInput& input = model->inputs()[static_cast<std::size_t>(index)];
    if (out.decided.state(input.node).kind == sharding::TensorStateKind::kSplit) continue;
    const std::string reason =
        shards == 1 ? "one device" : why_whole(*model, out.decided, effects, index, request.objective, &impossible);
    const std::string rest = reason.substr(own_dimension(reason).size());
    const auto [place, fresh] = reasons.emplace(pattern_of(rest), out.whole.size());
    if (fresh) out.whole.push_back({{}, reason});
    WholeTensors& alike = out.whole[place->second];
    if (own_dimension(alike.reason) != own_dimension(reason)) alike.reason = rest;
    alike.inputs.push_back(index);
  }

  for (const PartitionAnswer& answer : out.answers) {
    PartitionAlternative other = judge(*model, cost, inputs, linkage_groups(answer.groups), answer.algorithm);
    other.planning_ms = answer.seconds * 1e3;
    other.bound = answer.bound;
    other.proven = answer.proven;
    other.statistics = {answer.statistics.begin(), answer.statistics.end()};
    plan.alternatives.push_back(std::move(other));
  }
  if (shards > 1) {
    plan.alternatives.push_back(judge(*model, cost, inputs, {}, "replicate"));
    for (PartitionAlternative& other : compared) {
      other.partitioned = 0;  // of what this plan decides
      plan.alternatives.push_back(std::move(other));
    }
    // What the other objective would choose.
    const bool time = request.objective == PartitionObjective::kTime;
    models::PartitionProblem swapped = problem;
    swapped.objective = time ? PartitionObjective::kCount : PartitionObjective::kTime;
    SearchRequest quick;
    quick.limits = request.search.limits;
    quick.limits.units = std::min(quick.limits.units, kComparisonUnits);
    try {
      const std::vector<PartitionAnswer> others = run_search(swapped, quick);
      plan.cut_by_time = plan.cut_by_time || any_cut_by_time(others);
      if (!others.empty()) {
        plan.alternatives.push_back(judge(*model, cost, inputs, linkage_groups(others.front().groups),
                                          time ? "objective count" : "objective time"));
        plan.alternatives.back().planning_ms = others.front().seconds * 1e3;
      }
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible) throw;  // nothing fits: there is nothing to compare with
    }
  }
  if (limit_bytes <= 0 && plan.memory_bytes > plan.capacity_bytes && plan.capacity_bytes > 0) {
    warnings.push_back("needs " + format_bytes(plan.memory_bytes) + " per device, and the smallest has " +
                       format_bytes(plan.capacity_bytes) + "; --memory on looks for a plan that fits");
  }
  if (plan.cut_by_time) {
    warnings.push_back("the budget ended the search; a longer --budget may find a better plan");
  } else if (cut_by_effort) {
    warnings.push_back("the search ended with its effort; --effort thorough may find a better plan");
  }
  if (plan.partitioned == 0 && shards > 1) {
    out.nothing_split = why_nothing_is_split(*model, inputs, request.data ? "data input" : "variable",
                                             request.objective == PartitionObjective::kTime);
    warnings.push_back("nothing is split: " + out.nothing_split);
  }
  plan.warnings = std::move(warnings);
  return out;
}

}  // namespace automap::search
