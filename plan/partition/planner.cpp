#include "plan/partition/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/graph/user_shardings.h"
#include "common/sharding/explain.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/fewer_devices.h"
#include "plan/partition/kept_search.h"
#include "plan/partition/names.h"
#include "plan/partition/nothing_split.h"
#include "plan/partition/overlap.h"
#include "plan/partition/parts_of_sums.h"
#include "plan/partition/products.h"
#include "plan/partition/resharding.h"
#include "plan/partition/whole_reason.h"

namespace automap::partition {
namespace {

using models::PartitionObjective;
using sharding::GroupId;
using sharding::Linkage;
using sharding::ModelInput;
using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorDim;

// Other objectives and data parallelism are only compared with: that may not take long.
constexpr std::int64_t kComparisonUnits = 2'000'000'000;
// Cutting groups may take such a part of a search's units, where that is more.
constexpr std::int64_t kCutShare = 5, kSequenceShare = 8;
// Below this share of the speed-up that the devices should give, fewer devices are tried, too; kWorthSaying: the least
// saving for which they are named.
constexpr double kPoorShare = 0.25;
constexpr double kWorthSaying = 0.02;
// Cutting groups must save this share of the step to be worth its gathers.
constexpr double kWorthCutting = 0.01;
// A limit of the peak is turned into a limit of the kept memory by so many searches, depending on the size of a module;
// two limits in at least the ratio kSameLimit count as one.
constexpr int kMeshMemoryRounds = 4, kLeastMemoryRounds = 6, kMostMemoryRounds = 16, kMemoryNodes = 60'000;
constexpr double kSameLimit = 0.995;
constexpr double kTighter = 0.98, kMostKept = 0.97;

const std::vector<std::int32_t>& inputs_to_decide(const ShardingModel& model, bool data) {
  return data ? model.data() : model.variables();
}

// The data inputs that hold the batch: data parallelism does not split the step's other inputs (a random key, weights
// that nothing updates). All of them when no batch is found.
std::vector<std::int32_t> batched_inputs(const ShardingModel& model) {
  std::set<sharding::NodeId> batch;
  for (const TensorDim& at : find_batch(model)) batch.insert(at.node);
  std::vector<std::int32_t> out;
  for (const std::int32_t index : model.data()) {
    const sharding::NodeId node = model.inputs()[static_cast<std::size_t>(index)].node;
    if (batch.empty() || batch.count(node) > 0) out.push_back(index);
  }
  return out;
}

// XLA's partitioner gathers the operands of a batch-norm instruction when its batch is split.
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
    if (const auto conflict = decided.split_group(group, at == decider.end() ? linkage.inputs(group)[0] : at->second)) {
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
                           const std::string& planner, bool overlap) {
  const Propagation decided = decide(model, inputs, chosen);
  const PlanEstimate estimate = estimate_step(cost, decided, overlap);
  PartitionAlternative out;
  out.planner = planner;
  for (const std::int32_t index : inputs) {
    const auto state = decided.state(model.inputs()[static_cast<std::size_t>(index)].node);
    if (state.kind == sharding::TensorStateKind::kSplit) ++out.partitioned;
  }
  out.step_ms = estimate.step_ms;
  out.overlapped_ms = estimate.overlapped_ms;
  out.memory_bytes = peak_memory_of({&model, &decided}).total;
  out.collective_bytes = estimate.all_reduce.bytes + estimate.all_gather.bytes;
  return out;
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
  std::string why_not;
  if (whole.possible) {
    if (!whole.gathers.empty()) note_gathers(whole);
  } else if (!model->linkage().possible(batch.group)) {
    const std::string name = sharding::describe(*model, batch.at);
    if (indivisible_extent(model->linkage(), batch.group) > 0) {
      choice.note = name + " cannot be split: " + indivisible_text(*model, batch.group);
    } else {
      const RepairResult repaired = repair(model, batch.at);
      if (repaired.possible) {
        note_gathers(repaired);
      } else {
        why_not = repaired.why_not;
        choice.note = "the batch is not split: " + why_not;
      }
    }
  }
  std::set<GroupId> taken;
  for (const Ranked& group : ranked) {
    if (!model->linkage().possible(group.group)) continue;
    const auto neighbours = model->linkage().neighbours(group.group);
    if (std::none_of(neighbours.begin(), neighbours.end(), [&](GroupId other) { return taken.count(other) > 0; })) {
      choice.groups.push_back(group.group);
      taken.insert(group.group);
    }
  }
  // A recurrent model reads time first: the split dimension of the same input is its batch.
  const auto rank = static_cast<std::int32_t>(model->flow().shape(batch.at.node).dims.size());
  for (std::int32_t dim = 0; !why_not.empty() && dim < rank; ++dim) {
    const TensorDim other{batch.at.node, dim};
    if (dim == batch.at.dim || taken.count(model->linkage().group_of(other)) == 0) continue;
    choice.note = "the batch is taken to be " + sharding::describe(*model, other) + ", not " + why_not;
    break;
  }
  return choice;
}

DataChoice choose_images(ShardingModel* model, DataChoice without) {
  for (const TensorDim at : find_batch(*model)) {
    const GroupId group = model->linkage().group_of(at);
    if (group != graph::kNone && model->linkage().possible(group)) return without;
  }
  const int shards = model->linkage().shards();
  const std::vector<sharding::Gather> before = model->gathers();
  model->relink(shards, {}, true);
  const auto exchanges = [model](GroupId group) {
    const auto factors = model->linkage().factors_of_group(group);
    return std::any_of(factors.begin(), factors.end(),
                       [model](std::int32_t f) { return model->linkage().factor(f).halo != nullptr; });
  };
  std::vector<TensorDim> candidates;
  for (const Ranked& ranked : rank_data_groups(*model)) {
    if (exchanges(ranked.group)) candidates.push_back(ranked.at);
  }
  RepairResult best;
  TensorDim chosen;
  for (const TensorDim at : candidates) {
    model->relink(shards, {});
    RepairResult found = repair(model, at);
    if (!found.possible || (best.possible && std::make_pair(-found.split_share, found.gathered_bytes) >=
                                                 std::make_pair(-best.split_share, best.gathered_bytes)))
      continue;
    best = std::move(found);
    chosen = at;
  }
  if (!best.possible) {
    model->relink(shards, before, false);
    return without;
  }
  model->relink(shards, best.gathers);
  DataChoice choice;
  choice.gathers = best.gathers;
  choice.note = without.note + (without.note.empty() ? "" : "; ") + sharding::describe(*model, chosen) +
                " can be split when neighbours exchange borders" +
                (best.gathered_tensors == 0 ? ""
                                            : " and " + plural(best.gathered_tensors, "tensor") +
                                                  (best.gathered_tensors == 1 ? " is" : " are") + " gathered again (" +
                                                  format_bytes(best.gathered_bytes) + " per step)");
  choice.groups = {model->linkage().group_of(chosen)};
  return choice;
}

namespace {

// One plan in the making.
class Planning {
 public:
  Planning(ShardingModel* model, const machine::DeviceModel& device, const machine::Cluster& cluster,
           const PlanningRequest& request)
      : model_(*model),
        request_(request),
        inputs_(inputs_to_decide(*model, request.data)),
        device_(device),
        cluster_(cluster),
        shards_(model->linkage().shards()),
        warnings_(model->step().warnings),
        cost_(*model, device, cluster, request.other, 1, request.in_stage),
        limit_bytes_(request.memory_limit_bytes > 0 ? request.memory_limit_bytes
                     : request.fit_device           ? cost_.capacity_bytes()
                                                    : 0) {}

  Planned run() {
    keep_given();
    find_batch_groups();
    search_within_memory();
    ask_fewer_devices();
    Planned out{
        {}, {}, {}, {}, {}, decide(model_, inputs_, now_.chosen), {}, {}, std::move(now_.answers), cost_.links(),
        {}, {}, {}};
    warn_of_batch_norms(model_, out.decided, &warnings_);
    out.memory_decided = now_.kept_limit_bytes > 0;
    out.nearly_cut = now_.nearly_cut;
    out.cut_added_up = now_.cut_added_up;
    describe_kept(&out);
    out.weights_only = keeps_rows_whole();
    out.estimate = estimate_step(cost_, out.decided, request_.overlap);
    out.unsplit = cost_.estimate(decide(model_, inputs_, {}));
    out.memory = peak_of(now_.chosen);
    out.unsplit_memory = peak_of({});
    fill(&out);
    list_groups(&out.plan);
    collate_split(&out);
    collate_whole(&out);
    compare(out.answers, &out.plan);
    if (out.plan.partitioned == 0 && shards_ > 1 && base().empty()) {
      out.nothing_split =
          now_.whole_by_overlap ? "with collectives beside compute no splitting that was found is quicker"
          : now_.slower_ms > 0  ? "no splitting that was found is quicker"
                                : why_nothing_is_split(model_, inputs_, request_.data ? "data input" : "variable",
                                                       request_.objective == PartitionObjective::kTime);
      warnings_.push_back("nothing is split: " + out.nothing_split);
    }
    if (now_.slower_ms > 0) {
      warnings_.push_back("split by the count of inputs, a step is estimated to take " + format_ms(now_.slower_ms) +
                          ", longer than the " + format_ms(out.unsplit.expected_ms()) +
                          " with nothing split: what is split is chosen by time");
    }
    out.memory_warning =
        memory_warning(out.plan.memory_bytes, out.plan.capacity_bytes, "; --memory on looks for a plan that fits");
    last_warnings(out.memory_warning, &out.plan);
    return out;
  }

 private:
  const ModelInput& input(std::int32_t index) const { return model_.inputs()[static_cast<std::size_t>(index)]; }

  // The inputs that are searched over: for images whose borders are exchanged, only those.
  std::vector<std::int32_t> asked_inputs() const {
    if (!request_.data) return inputs_;
    if (!model_.halos()) return batched_inputs(model_);
    std::vector<std::int32_t> out;
    for (const std::int32_t index : inputs_) {
      const auto groups = model_.linkage().groups_of(input(index).node);
      if (std::find(groups.begin(), groups.end(), batch_.groups.front()) != groups.end()) out.push_back(index);
    }
    return out;
  }

  std::vector<GroupId> linkage_groups(const std::vector<std::int32_t>& chosen,
                                      const std::vector<GroupId>& groups_of) const {
    std::vector<GroupId> out = base();
    for (const std::int32_t g : chosen) {
      const GroupId group = groups_of[static_cast<std::size_t>(g)];
      if (std::find(out.begin(), out.end(), group) == out.end()) out.push_back(group);
    }
    return out;
  }

  // The groups that are split whatever is chosen: those of the shardings that are kept.
  std::vector<GroupId> base() const {
    std::set<GroupId> out;
    for (const TensorDim at : kept_.split) out.insert(model_.linkage().group_of(at));
    return {out.begin(), out.end()};
  }
  bool keeps() const { return !kept_.split.empty() || !kept_.whole.empty(); }

  // Searches over the groups that are not given.
  std::vector<PartitionAnswer> search_rest(const models::PartitionProblem& problem,
                                           const SearchRequest& request) const {
    if (!keeps()) return run_search(problem, request);
    const sharding::Linkage& linkage = model_.linkage();
    const std::vector<GroupId> split = base();
    GivenGroups given;
    given.with = cost_.estimate(decide(model_, inputs_, split));
    std::set<GroupId> whole;
    for (const TensorDim at : kept_.whole) whole.insert(linkage.group_of(at));
    for (const GroupId group : split) {
      const auto neighbours = linkage.neighbours(group);
      whole.insert(neighbours.begin(), neighbours.end());
    }
    for (std::size_t g = 0; g < now_.groups_of.size(); ++g) {
      const GroupId group = now_.groups_of[g];
      if (std::binary_search(split.begin(), split.end(), group)) given.split.push_back(static_cast<std::int32_t>(g));
      if (whole.count(group) > 0) given.whole.push_back(static_cast<std::int32_t>(g));
    }
    return run_search_beside(problem, given, request);
  }

  // The module's own shardings, where they are asked for.
  void keep_given() {
    if (!request_.keep_shardings || shards_ == 1) return;
    kept_ = keep_shardings(&model_, request_.data, [this](const std::vector<TensorDim>& split) {
      std::set<GroupId> groups;
      for (const TensorDim at : split) groups.insert(model_.linkage().group_of(at));
      return estimate_of({groups.begin(), groups.end()}).expected_ms();
    });
    const std::string aside = graph::user_shardings_text(model_.graph());
    warnings_.erase(std::remove(warnings_.begin(), warnings_.end(), aside), warnings_.end());
    if (kept_.values.empty()) warnings_.push_back("the module has no shardings of its own: there is nothing to keep");
    std::string first;
    int left = 0;
    for (const KeptValue& value : kept_.values) {
      if (value.left.empty()) continue;
      if (left++ == 0) first = sharding::describe(model_, value.node) + ": " + value.left;
    }
    if (left > 0) {
      warnings_.push_back("not kept of the module's own shardings, " + plural(left, "value") + ": " + first +
                          (left > 1 ? "; and " + std::to_string(left - 1) + " more" : ""));
    }
  }

  // Describes the kept shardings, and the tensors that move because of them: all but sums that are needed whole.
  void describe_kept(Planned* out) const {
    out->kept = kept_;
    for (const KeptValue& value : kept_.values) {
      const ModelInput* own = nullptr;
      for (const ModelInput& any : model_.inputs()) own = any.node == value.node ? &any : own;
      out->plan.kept.push_back(
          {own != nullptr ? own->name : instruction_name(model_, value.node), value.dim, value.written, value.left});
    }
    if (kept_.values.empty()) return;
    for (const PartitionCost::CollectivePart& part : cost_.parts(out->decided).collectives) {
      const sharding::Collective& c = part.collective;
      if (part.other_axis || c.kind == CollectiveKind::kAllReduce) continue;
      out->plan.reshards.push_back({to_string(c.kind), instruction_name(model_, c.node), c.bytes, c.times, part.ms});
    }
    std::stable_sort(out->plan.reshards.begin(), out->plan.reshards.end(),
                     [](const PlanReshard& a, const PlanReshard& b) { return a.ms > b.ms; });
  }

  PeakMemory peak_of(const std::vector<GroupId>& chosen) const {
    const Propagation decided = decide(model_, inputs_, chosen);
    return peak_memory_of({&model_, &decided}, request_.outer);
  }
  double kept_by(const std::vector<GroupId>& chosen) const {
    return cost_.estimate(decide(model_, inputs_, chosen)).memory_bytes;
  }

  PlanEstimate estimate_of(const std::vector<GroupId>& chosen) const {
    return estimate_step(cost_, decide(model_, inputs_, chosen), request_.overlap);
  }
  PartitionAlternative judged(const std::vector<std::int32_t>& inputs, const std::vector<GroupId>& chosen,
                              const std::string& planner) const {
    return judge(model_, cost_, inputs, chosen, planner, request_.overlap);
  }

  // The result of one search.
  struct Found {
    double kept_limit_bytes = 0;  // of what is kept; 0: none
    models::PartitionProblem problem;
    std::vector<GroupId> groups_of;  // of the problem's groups
    std::vector<PartitionAnswer> answers;
    std::vector<GroupId> chosen;
    std::vector<sharding::Gather> gathers;       // of the model that these groups are of
    std::vector<PartitionAlternative> compared;  // that this search alone has
    std::optional<Error> infeasible;             // without cuts nothing fits
    bool nearly_cut = false, cut_added_up = false;
    bool whole_by_overlap = false;  // nothing is split although that is longer added up
    double slower_ms = 0;           // what was found by count would take, more than nothing split; 0: it is taken
    std::string planner = "none";
  };

  // Limits of the kept memory that were tried, largest first, and the memory that the resulting plans keep: any limit
  // between the two gives the same plan.
  struct TriedLimit {
    double limit = 0, kept = 0;
  };

  // Between the limits tried, and above `floor`, where nothing better is to be found: the middle of the lowest stretch
  // or of the widest one. 0: there is none that is worth a search.
  static double untried_limit(const std::vector<TriedLimit>& tried, double floor, bool lowest) {
    double widest = 0, middle = 0;
    for (std::size_t i = 0; i < tried.size() && tried[i].kept > floor; ++i) {
      const double from = std::max(floor, i + 1 < tried.size() ? tried[i + 1].limit : 0), to = tried[i].kept;
      if (from > to * kSameLimit || (!lowest && to - from <= widest)) continue;
      widest = to - from;
      middle = (from + to) / 2;
    }
    return middle;
  }

  // Searches within a limit of the peak. A group's saving is only known for the kept memory (parameters, activations
  // for the backward pass), so that is the quantity that searches limit. The right limit for it is tried out by the
  // peaks of the plans found: lower and lower until one fits or none is found, below which nothing is asked; then
  // between the limits tried. Peaks do not always fall with the kept memory, and every plan counts.
  void search_within_memory() {
    const std::vector<sharding::Gather> gathers = model_.gathers();
    search();
    if (limit_bytes_ <= 0) return;
    free_bound_ = now_.answers.empty() ? 0 : now_.answers.front().bound;
    std::optional<Found> best, least;
    double best_ms = 0, best_bytes = 0, least_bytes = std::numeric_limits<double>::infinity();
    // Judges the plan found last by its peak.
    const auto judge_found = [&] {
      const double bytes = peak_of(now_.chosen).total, ms = estimate_of(now_.chosen).expected_ms();
      now_.gathers = model_.gathers();
      if (bytes < least_bytes) {
        least = now_;
        least_bytes = bytes;
      }
      if (bytes <= limit_bytes_ && (!best || std::make_pair(ms, bytes) < std::make_pair(best_ms, best_bytes))) {
        best = now_;
        best_ms = ms;
        best_bytes = bytes;
      }
      return bytes;
    };
    double peak = judge_found(), floor = 0;
    if (best || estimate_of(now_.chosen).expected_ms() >= request_.useless_ms) return;
    std::vector<TriedLimit> tried = {{std::numeric_limits<double>::infinity(), kept_by(now_.chosen)}};
    for (int round = 0; shards_ > 1 && round < memory_rounds() && !late(); ++round) {
      const double next =
          floor > 0 ? untried_limit(tried, floor, !best)
                    : tried.back().kept * std::min(std::pow(kMostKept, round + 1), kTighter * limit_bytes_ / peak);
      if (next <= 0) break;
      model_.relink(shards_, gathers);
      search(next);
      if (now_.infeasible) {
        floor = std::max(floor, next);
        continue;
      }
      peak = judge_found();
      tried.push_back({next, kept_by(now_.chosen)});
      std::sort(tried.begin(), tried.end(), [](const TriedLimit& a, const TriedLimit& b) { return a.limit > b.limit; });
      if (best) floor = std::max(floor, best->kept_limit_bytes);
    }
    if (!best && request_.or_least) best = std::move(least);
    if (!best) {
      throw Error(ErrorKind::kInfeasible,
                  "nothing that was found fits into " + format_bytes(limit_bytes_) + " per device: the least is " +
                      format_bytes(least_bytes) + ", against " + format_bytes(peak_of({}).total) +
                      " with nothing split",
                  "--memory off plans without a limit");
    }
    model_.relink(shards_, best->gathers);
    now_ = std::move(*best);
  }

  // True if the time of all searches is over: nothing more is begun.
  bool late() {
    const bool over = steady_seconds() >= request_.search.limits.ends_s;
    cut_by_time_ = cut_by_time_ || over;
    return over;
  }

  int memory_rounds() const {
    // A mesh takes many plans, so each gets fewer rounds.
    if (request_.other != nullptr) return kMeshMemoryRounds;
    return std::clamp(kMemoryNodes / std::max(1, model_.flow().size()), kLeastMemoryRounds, kMostMemoryRounds);
  }

  void search(double kept_limit_bytes = 0) {
    now_ = Found();
    now_.kept_limit_bytes = kept_limit_bytes;
    make_problem_of(asked_inputs());
    choose();
    ask_other_objective();
    take_none_slower();
    leave_whole_where_quicker();
    cut_groups();
  }

  // Makes the problem of the model as it is linked now. Rows of weights that a cut has split were looked at with the
  // groups before it.
  void make_problem_of(const std::vector<std::int32_t>& inputs, const std::vector<GroupId>& cut = {}) {
    std::vector<bool> rows;
    if (keeps_rows_whole()) {
      rows = rows_of_weights(model_).groups;
      for (const GroupId group : cut) rows[static_cast<std::size_t>(group)] = false;
    }
    now_.problem = make_problem(model_, cost_, inputs, request_.objective, now_.kept_limit_bytes, &now_.groups_of,
                                rows.empty() ? nullptr : &rows);
  }

  // For plans that are only compared with.
  SearchRequest quick_search() const {
    SearchRequest quick;
    quick.limits = request_.search.limits;
    quick.limits.units = std::min(quick.limits.units, kComparisonUnits);
    return quick;
  }

  // The batch may need gathers, which make another linkage: all that follows is on that one (data), or on the first
  // again (operators, where data parallelism is only compared with).
  void find_batch_groups() {
    if (keeps()) {
      find_batch_beside_kept();
      return;
    }
    if (request_.data && shards_ > 1 && !model_.variables().empty()) {
      std::vector<GroupId> variable_groups;
      const std::vector<bool> rows = rows_of_weights(model_).groups;
      const models::PartitionProblem variables =
          make_problem(model_, cost_, model_.variables(), PartitionObjective::kTime, 0, &variable_groups, &rows);
      if (!variables.groups.empty()) {
        const std::vector<PartitionAnswer> found = run_search(variables, quick_search());
        cut_by_time_ = cut_by_time_ || any_cut_by_time(found);
        const std::vector<GroupId> best =
            found.empty() ? std::vector<GroupId>() : linkage_groups(found.front().groups, variable_groups);
        compared_.push_back(judged(model_.variables(), best, "operators"));
      }
    }
    if (shards_ > 1 && !model_.data().empty() && request_.other == nullptr && (request_.data || request_.compare)) {
      batch_ = choose_batch(&model_);
      if (request_.data) batch_ = choose_images(&model_, std::move(batch_));
      if (!request_.data && !batch_.groups.empty()) {
        compared_.push_back(judged(model_.data(), batch_.groups, "data parallel"));
      }
      if (!request_.data && !batch_.gathers.empty()) model_.relink(shards_, {});
    }
    if (request_.data && !batch_.note.empty()) warnings_.push_back(batch_.note);
  }

  // Where the kept shardings split no data, the batch is looked for beside them.
  void find_batch_beside_kept() {
    if (!request_.data) return;
    const std::set<GroupId> split = [&] {
      const std::vector<GroupId> groups = base();
      return std::set<GroupId>(groups.begin(), groups.end());
    }();
    for (const std::int32_t index : batched_inputs(model_)) {
      for (const GroupId group : model_.linkage().groups_of(input(index).node)) {
        if (split.count(group) > 0) return;
      }
    }
    const std::vector<sharding::Gather> before = model_.gathers();
    batch_ = choose_batch(&model_);
    Propagation decided(model_.linkage());
    const bool lost = std::any_of(kept_.split.begin(), kept_.split.end(),
                                  [&](TensorDim at) { return decided.split(at).has_value(); });
    if (lost) {
      model_.relink(shards_, before);
      batch_ = {};
    }
    if (!batch_.note.empty()) warnings_.push_back(batch_.note);
  }

  void choose() {
    if (shards_ == 1) {
      warnings_.push_back("one device: there is nothing to split over");
      return;
    }
    try {
      now_.answers = search_rest(now_.problem, request_.search);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible) throw;
      now_.infeasible.emplace(e);
    }
    if (now_.answers.empty()) return;
    now_.chosen = linkage_groups(now_.answers.front().groups, now_.groups_of);
    now_.planner = now_.answers.front().algorithm;
    if (request_.data && request_.objective == PartitionObjective::kCount && !batch_.groups.empty() && !keeps())
      prefer_batch();
  }

  bool keeps_rows_whole() const { return request_.rows_whole && by_time_of_variables(); }
  bool by_time_of_variables() const { return !request_.data && request_.objective == PartitionObjective::kTime; }

  // Data is split for the step's sake: the most splits that are slower than none give way to the quickest.
  void take_none_slower() {
    if (!request_.none_slower || request_.objective != PartitionObjective::kCount || now_.chosen.empty()) return;
    const double found_ms = estimate_of(now_.chosen).expected_ms(), whole_ms = estimate_of(base()).expected_ms();
    if (found_ms <= whole_ms) return;
    if (limit_bytes_ > 0 && peak_of(base()).total > limit_bytes_) return;
    models::PartitionProblem by_time = now_.problem;
    by_time.objective = PartitionObjective::kTime;
    PartitionAnswer answer = now_.answers.front();
    answer.groups.clear();
    answer.algorithm = "replicate";
    const std::vector<PartitionAnswer> quickest = search_rest(by_time, quick_search());
    cut_by_time_ = cut_by_time_ || any_cut_by_time(quickest);
    if (!quickest.empty() &&
        estimate_of(linkage_groups(quickest.front().groups, now_.groups_of)).expected_ms() <= whole_ms) {
      answer.groups = quickest.front().groups;
      answer.algorithm = quickest.front().algorithm;
    }
    answer.score = models::score(now_.problem, answer.groups);
    answer.proven = false;
    now_.chosen = linkage_groups(answer.groups, now_.groups_of);
    now_.planner = answer.algorithm;
    now_.slower_ms = found_ms;
    now_.answers = {std::move(answer)};
  }

  // Searches add collectives up. Beside compute, those of a mesh's other axis may cost nothing that splitting saves.
  void leave_whole_where_quicker() {
    if (request_.objective != PartitionObjective::kTime || now_.chosen.empty()) return;
    if (!request_.overlap && !request_.data) return;
    if (estimate_of(now_.chosen).expected_ms() <= estimate_of(base()).expected_ms()) return;
    if (limit_bytes_ > 0 && peak_of(base()).total > limit_bytes_) return;
    now_.chosen = base();
    now_.planner = "replicate";
    now_.whole_by_overlap = true;
  }

  // If sums are combined: keeps parts of the sum instead of parts of every summand, where that shortens the step.
  void keep_parts_of_sums(std::vector<GroupId>* chosen) {
    const std::vector<sharding::Gather> before = model_.gathers();
    std::vector<TensorDim> split;
    double step_ms = 0;  // as plans are compared
    std::vector<sharding::Gather> after;
    {
      const Propagation decided = decide(model_, inputs_, *chosen);
      step_ms = estimate_step(cost_, decided, request_.overlap).expected_ms();
      after = gathers_behind_sums(model_, decided);
      for (const ModelInput& any : model_.inputs()) {
        const sharding::TensorState state = decided.state(any.node);
        if (state.kind == sharding::TensorStateKind::kSplit) split.push_back({any.node, state.dim});
      }
    }
    if (after == before) return;
    model_.relink(shards_, std::move(after));
    std::set<GroupId> groups;
    Propagation tried(model_.linkage());
    bool possible = true;
    for (const TensorDim at : split) {
      groups.insert(model_.linkage().group_of(at));
      possible = possible && !tried.split(at);
    }
    if (possible && estimate_step(cost_, tried, request_.overlap).expected_ms() < step_ms) {
      chosen->assign(groups.begin(), groups.end());
      return;
    }
    model_.relink(shards_, before);
  }

  // Linkage groups cut where that pays, when the step is estimated shorter by it.
  void cut_groups() {
    // Given shardings have their gathers already; no others are looked for beside them.
    if (!request_.reshard || !by_time_of_variables() || shards_ == 1 || keeps() || late()) return;
    const auto start = std::chrono::steady_clock::now();
    SearchLimits limits = quick_search().limits;
    limits.units = std::max(limits.units, request_.search.limits.units / kCutShare);
    if (now_.kept_limit_bytes > 0) limits.units /= kLeastMemoryRounds;
    Work work(work_limits(limits));
    ReshardingOptions options;
    if (request_.outer != nullptr) options.outer = request_.outer->decided;
    if (!request_.sequence_parallel) options.between = Between::kWhole;
    std::optional<RowsOfWeights> rows;
    if (request_.rows_whole) options.rows_whole = &rows.emplace(rows_of_weights(model_));
    Resharding found;
    // A wider search, of which a part of the effort has to be enough. Not in a mesh: where both axes split dimensions
    // that no weight decides, XLA gathers more than it is told.
    const bool sequences = request_.sequence_parallel && request_.other == nullptr;
    if (sequences) {
      options.between = Between::kSequences;
      Work part(work, limits.units / kSequenceShare);
      found = find_resharding(model_, cost_, now_.kept_limit_bytes, part, options);
      options.between = Between::kByWeights;
    }
    if (!found.proven) {
      Resharding narrower = find_resharding(model_, cost_, now_.kept_limit_bytes, work, options);
      // This search had fewer choices, so that its bound does not hold for all.
      const double bound_ms = sequences ? std::max(found.bound_ms, narrower.bound_ms) : narrower.bound_ms;
      if (!sequences || narrower.saved_ms > found.saved_ms) found = std::move(narrower);
      found.set_bound(bound_ms);
    }
    cut_by_time_ = cut_by_time_ || work.stopped();
    if (found.gathers.empty() || !(found.saved_ms > (now_.infeasible ? -std::numeric_limits<double>::infinity() : 0)))
      return;
    const double uncut_ms = now_.infeasible        ? std::numeric_limits<double>::infinity()
                            : request_.overlap     ? estimate_of(now_.chosen).expected_ms()
                            : now_.answers.empty() ? now_.problem.compute_ms + now_.problem.collective_ms
                                                   : now_.answers.front().score.step_ms;
    // Judges the plan without cuts, on the model as it is linked now.
    std::optional<PartitionAlternative> uncut;
    if (!now_.answers.empty()) uncut = judged(inputs_, now_.chosen, "no group cut");
    model_.relink(shards_, found.gathers);
    std::vector<GroupId> chosen = split_groups(model_, found);
    if (model_.sums_combined()) keep_parts_of_sums(&chosen);
    const PlanEstimate estimate = estimate_of(chosen);
    const bool fits = now_.kept_limit_bytes <= 0 || estimate.memory_bytes <= now_.kept_limit_bytes;
    if (!fits || estimate.expected_ms() > uncut_ms * (1 - kWorthCutting)) {
      // Added up it may be shorter all the same.
      const double added_up_ms = request_.overlap && uncut ? uncut->step_ms : 0;
      now_.cut_added_up = fits && estimate.step_ms <= added_up_ms * (1 - kWorthCutting);
      now_.nearly_cut =
          fits && !now_.cut_added_up && (estimate.expected_ms() < uncut_ms || estimate.step_ms < added_up_ms);
      if (now_.cut_added_up) now_.compared.push_back(judged(inputs_, chosen, "groups cut"));
      model_.relink(shards_, {});
      return;
    }
    if (uncut) now_.compared.push_back(std::move(*uncut));
    make_problem_of(inputs_, chosen);
    PartitionAnswer answer;
    answer.algorithm = "reshard";
    for (std::size_t g = 0; g < now_.groups_of.size(); ++g) {
      if (std::binary_search(chosen.begin(), chosen.end(), now_.groups_of[g]))
        answer.groups.push_back(static_cast<std::int32_t>(g));
    }
    answer.score = models::score(now_.problem, answer.groups);
    answer.score.step_ms = estimate.step_ms;
    answer.score.value = now_.problem.compute_ms + now_.problem.collective_ms - estimate.step_ms;
    // The labelling prices sums apart: if sums are combined, its choice is good, but not proven best.
    const double whole_ms = now_.problem.compute_ms + now_.problem.collective_ms;
    const double bound_ms = model_.sums_combined() ? whole_ms - cost_.least_step_ms(shards_) : found.bound_ms;
    answer.bound = std::max(bound_ms, answer.score.value);
    answer.proven = found.proven && !model_.sums_combined();
    answer.cut_by_effort = !found.proven && work.over() && !work.stopped();
    answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    answer.statistics = {{"sites", static_cast<double>(found.sites)},
                         {"nodes", static_cast<double>(found.nodes)},
                         {"width", static_cast<double>(found.width)}};
    now_.answers = {std::move(answer)};
    now_.chosen = std::move(chosen);
    now_.planner = "reshard";
    now_.whole_by_overlap = false;
    now_.infeasible.reset();
  }

  // Where so many devices bring little, fewer may bring more.
  void ask_fewer_devices() {
    if (!by_time_of_variables() || now_.answers.empty() || request_.other != nullptr || !request_.compare || keeps())
      return;
    if (late()) return;
    // The step with fewer devices is known as a sum; overlapped it is no longer than that.
    const double step_ms =
                     request_.overlap ? estimate_of(now_.chosen).expected_ms() : now_.answers.front().score.step_ms,
                 whole_ms = now_.problem.compute_ms + now_.problem.collective_ms;
    if (whole_ms > step_ms * shards_ * kPoorShare) return;
    const FewerDevices fewer =
        best_with_fewer(&model_, device_, cluster_, now_.kept_limit_bytes, request_.rows_whole, quick_search());
    cut_by_time_ = cut_by_time_ || fewer.cut_by_time;
    if (fewer.devices == 0 || fewer.step_ms > step_ms * (1 - kWorthSaying)) return;
    warnings_.push_back(std::to_string(fewer.devices) + " of the devices are estimated " +
                        format_number(std::round(10 * step_ms / fewer.step_ms) / 10) + "x faster: --shards " +
                        std::to_string(fewer.devices));
  }

  // As many tensors as the batch splits can often be split along something else (a sequence); data parallelism means
  // the batch.
  void prefer_batch() {
    std::vector<std::int32_t> own;
    for (std::size_t g = 0; g < now_.groups_of.size(); ++g) {
      if (std::find(batch_.groups.begin(), batch_.groups.end(), now_.groups_of[g]) != batch_.groups.end()) {
        own.push_back(static_cast<std::int32_t>(g));
      }
    }
    const models::PartitionScore of_batch = models::score(now_.problem, own), found = now_.answers.front().score;
    if (!of_batch.conflict && (of_batch.fits || !found.fits) && of_batch.value >= found.value &&
        linkage_groups(own, now_.groups_of) != now_.chosen) {
      now_.chosen = linkage_groups(own, now_.groups_of);
      now_.planner = "batch";
    }
  }

  void fill(Planned* out) {
    PartitionPlan& plan = out->plan;
    plan.kind = request_.data ? "data" : "operator";
    plan.planner = now_.planner;
    plan.objective = request_.objective == PartitionObjective::kTime ? "time" : "count";
    for (const std::int32_t index : inputs_) plan.decided.push_back(input(index).name);
    describe_decision(model_, out->decided, &plan);
    if (!out->answers.empty()) {
      const PartitionAnswer& best = out->answers.front();
      plan.value = now_.whole_by_overlap ? 0 : best.score.value;
      // The limit of the kept memory stands for that of the peak: a proof under it is none about the peak.
      plan.proven = best.proven && now_.kept_limit_bytes <= 0 && !now_.whole_by_overlap &&
                    step_is_as_counted(best, out->estimate);
      plan.bound = now_.kept_limit_bytes > 0 ? std::max(best.bound, free_bound_) : best.bound;
      plan.cut_by_time = cut_by_time_ || any_cut_by_time(out->answers);
      cut_by_effort_ = best.cut_by_effort;
    }
    plan.step_ms = out->estimate.step_ms;
    plan.compute_ms = out->estimate.compute_ms;
    plan.collective_ms = out->estimate.collective_ms;
    plan.overlapped_ms = out->estimate.overlapped_ms;
    if (request_.overlap) plan.overlapped_bound_ms = cost_.least_step_ms(shards_);
    plan.memory_bytes = out->memory.total;
    plan.capacity_bytes = cost_.capacity_bytes();
    plan.replicated_step_ms = out->unsplit.step_ms;
  }

  // Sums that are combined are counted group by group. Where those of two groups meet the step may be shorter, and now
  // and then longer (sharding::collectives_of_group): then it is not the one that was proven.
  bool step_is_as_counted(const PartitionAnswer& best, const PlanEstimate& estimate) const {
    constexpr double kRounding = 1e-9;
    return !model_.sums_combined() || request_.objective != PartitionObjective::kTime ||
           estimate.step_ms <= best.score.step_ms * (1 + kRounding);
  }

  void list_groups(PartitionPlan* plan) {
    split_.insert(now_.chosen.begin(), now_.chosen.end());
    for (const GroupId group : split_) {
      if (keeps() || request_.rows_whole) effects_[group] = cost_.effect(group);
    }
    for (std::size_t g = 0; g < now_.problem.groups.size(); ++g) {
      const models::PartitionGroup& group = now_.problem.groups[g];
      effects_[now_.groups_of[g]] = {group.saved_ms, group.collective_ms, group.saved_bytes, group.collective_bytes,
                                     group.collectives};
      PlanLinkageGroup listed;
      for (const auto& [variable, dim] : group.members) {
        listed.members.emplace_back(now_.problem.variables[static_cast<std::size_t>(variable)].name, dim);
      }
      listed.split = split_.count(now_.groups_of[g]) > 0;
      listed.saved_ms = group.saved_ms;
      listed.collective_ms = group.collective_ms;
      listed.saved_bytes = group.saved_bytes;
      plan->groups.push_back(std::move(listed));
    }
  }

  // Split groups, collated over repeated layers.
  void collate_split(Planned* out) const {
    std::map<GroupId, std::vector<std::pair<std::string, int>>> members;
    for (const std::int32_t index : inputs_) {
      const sharding::TensorState state = out->decided.state(input(index).node);
      if (state.kind != sharding::TensorStateKind::kSplit) continue;
      members[model_.linkage().group_of(input(index).node, state.dim)].emplace_back(
          sharding::path_of(input(index).name), state.dim);
    }
    std::map<std::string, std::size_t> seen;
    for (const GroupId group : split_) {
      const auto at = members.find(group);
      if (at == members.end()) continue;
      std::vector<std::pair<std::string, int>> pattern;
      for (const auto& [path, dim] : at->second) pattern.emplace_back(pattern_of(path), dim);
      std::sort(pattern.begin(), pattern.end());
      std::string signature;
      for (const auto& [path, dim] : pattern) signature += path + "=" + std::to_string(dim) + ";";
      const auto [place, fresh] = seen.emplace(signature, out->split.size());
      if (fresh) out->split.emplace_back();
      SplitGroups& alike = out->split[place->second];
      alike.groups.push_back(group);
      alike.members.insert(alike.members.end(), at->second.begin(), at->second.end());
      const PartitionCost::GroupEffect& effect = effects_.at(group);
      alike.effect.saved_ms += effect.saved_ms;
      alike.effect.collective_ms += effect.collective_ms;
      alike.effect.saved_bytes += effect.saved_bytes;
      alike.effect.collective_bytes += effect.collective_bytes;
      alike.effect.collectives += effect.collectives;
    }
    std::stable_sort(out->split.begin(), out->split.end(),
                     [](const SplitGroups& a, const SplitGroups& b) { return a.members.size() > b.members.size(); });
  }

  // Whole tensors by reason.
  void collate_whole(Planned* out) const {
    std::map<std::string, std::size_t> reasons;
    std::map<GroupId, std::string> impossible;
    for (const std::int32_t index : inputs_) {
      if (out->decided.state(input(index).node).kind == sharding::TensorStateKind::kSplit) continue;
      const std::string reason =
          shards_ == 1 ? "one device"
                       : why_whole(model_, out->decided, effects_, index, request_.objective, &impossible);
      const std::string rest = reason.substr(own_dimension(reason).size());
      const auto [place, fresh] = reasons.emplace(pattern_of(rest), out->whole.size());
      if (fresh) out->whole.push_back({{}, reason});
      WholeTensors& alike = out->whole[place->second];
      if (own_dimension(alike.reason) != own_dimension(reason)) alike.reason = rest;
      alike.inputs.push_back(index);
    }
  }

  void compare(const std::vector<PartitionAnswer>& answers, PartitionPlan* plan) {
    for (const PartitionAnswer& answer : answers) {
      PartitionAlternative other =
          judged(inputs_, now_.planner == "reshard" ? now_.chosen : linkage_groups(answer.groups, now_.groups_of),
                 answer.algorithm);
      other.planning_ms = answer.seconds * 1e3;
      other.bound = answer.bound;
      other.proven = answer.proven;
      other.statistics = {answer.statistics.begin(), answer.statistics.end()};
      plan->alternatives.push_back(std::move(other));
    }
    if (shards_ == 1) return;
    plan->alternatives.push_back(judged(inputs_, {}, "replicate"));
    for (auto* list : {&compared_, &now_.compared}) {
      for (PartitionAlternative& other : *list) {
        other.partitioned = 0;  // of what this plan decides
        plan->alternatives.push_back(std::move(other));
      }
    }
    if (other_objective_) plan->alternatives.push_back(std::move(*other_objective_));
  }

  // Finds the choice of the other objective, among groups that are not cut.
  void ask_other_objective() {
    if (shards_ == 1 || other_objective_ || !request_.compare || late()) return;
    const bool time = request_.objective == PartitionObjective::kTime;
    models::PartitionProblem swapped = now_.problem;
    swapped.objective = time ? PartitionObjective::kCount : PartitionObjective::kTime;
    try {
      const std::vector<PartitionAnswer> others = search_rest(swapped, quick_search());
      cut_by_time_ = cut_by_time_ || any_cut_by_time(others);
      if (others.empty()) return;
      other_objective_ = judged(inputs_, linkage_groups(others.front().groups, now_.groups_of),
                                time ? "objective count" : "objective time");
      other_objective_->planning_ms = others.front().seconds * 1e3;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible) throw;  // nothing fits: there is nothing to compare with
    }
  }

  void last_warnings(const std::string& memory_warning, PartitionPlan* plan) {
    if (!memory_warning.empty()) warnings_.push_back(memory_warning);
    if (plan->cut_by_time) {
      warnings_.push_back("the budget ended the search; a longer --budget may find a better plan");
    } else if (cut_by_effort_) {
      warnings_.push_back("the search ended with its effort; --effort thorough may find a better plan");
    }
    plan->warnings = std::move(warnings_);
  }

  ShardingModel& model_;
  const PlanningRequest& request_;
  const std::vector<std::int32_t>& inputs_;
  const machine::DeviceModel& device_;
  const machine::Cluster& cluster_;
  const int shards_;
  std::vector<std::string> warnings_;
  const PartitionCost cost_;
  const double limit_bytes_;  // of the peak; 0: none
  double free_bound_ = 0;     // of the first search, without that limit

  KeptShardings kept_;
  DataChoice batch_;
  std::vector<PartitionAlternative> compared_;
  std::optional<PartitionAlternative> other_objective_;
  bool cut_by_time_ = false, cut_by_effort_ = false;
  Found now_;
  std::map<GroupId, PartitionCost::GroupEffect> effects_;
  std::set<GroupId> split_;
};

}  // namespace

Planned make_plan(ShardingModel* model, const machine::DeviceModel& device, const machine::Cluster& cluster,
                  const PlanningRequest& request) {
  if (inputs_to_decide(*model, request.data).empty()) {
    const std::string module = "module '" + std::string(model->graph().name()) + "'";
    throw Error(ErrorKind::kData,
                module + (request.data ? " has no data inputs: all it reads are variables, state and constants"
                                       : " has no variables: nothing it reads is a weight"),
                // The other command where it has something to split.
                request.data            ? (model->variables().empty() ? "" : "automap-search opp splits its variables")
                : model->data().empty() ? "name them with --variables"
                                        : "name them with --variables, or split its data with automap-search adp");
  }
  if (!model->sums_combined() || request.data || model->linkage().shards() == 1 ||
      request.objective != PartitionObjective::kTime) {
    return Planning(model, device, cluster, request).run();
  }
  // Combining saves bytes, and may lose more time by waiting for the last of the sums: both ways are planned.
  sharding::ShardingModel apart = model->another_axis(model->linkage().shards());
  apart.combine_sums(false);
  Planned combined = Planning(model, device, cluster, request).run();
  Planned without = Planning(&apart, device, cluster, request).run();
  if (without.plan.expected_ms() >= combined.plan.expected_ms()) return combined;
  without.plan.warnings.push_back("sums are reduced apart: combined the step is estimated longer, " +
                                  format_ms(combined.plan.expected_ms()) + " instead of " +
                                  format_ms(without.plan.expected_ms()));
  *model = std::move(apart);
  return without;
}

}  // namespace automap::partition
