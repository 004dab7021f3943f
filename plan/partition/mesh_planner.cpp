#include "plan/partition/mesh_planner.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/names.h"
#include "plan/partition/overlap.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/products.h"
#include "plan/partition/resharding.h"
#include "plan/partition/widths.h"

namespace automap::partition {
namespace {

using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorDim;
using sharding::TensorState;
using sharding::TensorStateKind;

// Splitting experts must save this share of the step of a data axis; the search for them may take so long (about 1 s).
constexpr double kWorthExchanging = 0.01;
constexpr std::int64_t kExpertUnits = 2'000'000'000;

int as_number(Zero zero) {
  return static_cast<int>(zero);
}

// One mesh and one level of ZeRO.
class MeshPlanning {
 public:
  MeshPlanning(const ShardingModel& model, const machine::DeviceModel& device, const machine::Cluster& cluster,
               const MeshRequest& request, Zero zero)
      : model_(model), device_(device), cluster_(cluster), request_(request), zero_(zero) {}

  // Does not check that the plan fits the memory; the caller compares plan.memory_bytes.
  PlannedMesh run() {
    PlannedMesh out;
    out.data.model = model_.another_axis(request_.data);
    out.model.model = model_.another_axis(request_.model);
    split_batch(&out);
    store(&out, {});
    split_operators(&out);
    if (zero_ != Zero::kOff && request_.model > 1 && request_.data > 1) {
      // Again, where the model axis has left something.
      out.data.model.relink(request_.data, batch_.gathers);
      store(&out, taken_by(*out.model.decided));
    }
    const std::string why = indivisible_by_both(model_, *out.data.decided, *out.model.decided);
    if (!why.empty()) throw Error(ErrorKind::kInfeasible, "this mesh cannot be: " + why, "try another --mesh");
    fill(&out);
    return out;
  }

 private:
  void split_batch(PlannedMesh* out) {
    if (request_.data == 1) return;
    ShardingModel& model = out->data.model;
    if (model.data().empty()) {
      throw Error(
          ErrorKind::kData,
          "the data axis has nothing to split: module '" + std::string(model.graph().name()) + "' has no data inputs",
          "give the model axis all devices: --mesh data=1,model=N");
    }
    const bool has_experts = !expert_dims(model).empty();
    batch_ = choose_batch(&model);
    if (batch_.groups.empty()) {
      throw Error(ErrorKind::kData,
                  "the data axis cannot split the batch" + (batch_.note.empty() ? "" : ": " + batch_.note),
                  "give --mesh another number of devices for data");
    }
    if (has_experts) out->experts_apart = split_experts(&model);
    for (const sharding::GroupId group : batch_.groups) batch_dims_.push_back(model.linkage().inputs(group)[0]);
  }

  Propagation decide(const ShardingModel& model, const std::vector<sharding::GroupId>& groups) const {
    Propagation decided(model.linkage());
    for (const sharding::GroupId group : groups) {
      const auto conflict = decided.split_group(group, model.linkage().inputs(group)[0]);
      AM_CHECK(!conflict);
    }
    return decided;
  }

  // Experts over the devices of the data axis, and tokens exchanged, where that is quicker than every expert
  // everywhere; whether it is.
  bool split_experts(ShardingModel* model) {
    const PartitionCost cost(*model, device_, cluster_, nullptr, request_.model);
    const auto step_ms = [&](const std::vector<sharding::GroupId>& groups) {
      return estimate_step(cost, decide(*model, groups), request_.operators.overlap).expected_ms();
    };
    const double without_ms = step_ms(batch_.groups);
    std::vector<TensorDim> batch;
    for (const sharding::GroupId group : batch_.groups) {
      for (const TensorDim dim : model->linkage().inputs(group)) batch.push_back(dim);
    }
    model->relink(request_.data, {});
    SearchLimits limits;
    limits.units = kExpertUnits;
    Work work(work_limits(limits));
    const Resharding found = find_expert_resharding(*model, cost, batch, work);
    if (!found.split.empty()) {
      model->relink(request_.data, found.gathers);
      const std::vector<sharding::GroupId> chosen = split_groups(*model, found);
      if (step_ms(chosen) < without_ms * (1 - kWorthExchanging)) {
        std::int64_t experts = 0;
        for (const std::int32_t variable : model->variables()) {
          const sharding::NodeId node = model->inputs()[static_cast<std::size_t>(variable)].node;
          for (const sharding::GroupId group : model->linkage().groups_of(node))
            experts += std::binary_search(chosen.begin(), chosen.end(), group);
        }
        batch_.groups = chosen;
        batch_.gathers = found.gathers;
        batch_.note = experts > 0
                          ? "the data axis also splits " + plural(experts, "variable") +
                                " of experts, to which tokens go from all of its devices"
                          : "the data axis splits no experts: tokens are gathered, and all of its devices compute the "
                            "experts of all of them, where that is shorter than adding up the experts' gradients";
        return true;
      }
    }
    model->relink(request_.data, batch_.gathers);
    return false;
  }

  void store(PlannedMesh* out, const std::vector<TakenDim>& taken) {
    ShardingModel& model = out->data.model;
    out->stored = request_.data > 1 ? store_in_parts(&model, batch_dims_, zero_, taken) : StoredParts();
    out->data.decided.emplace(model.linkage());
    for (const auto* dims : {&batch_dims_, &out->stored.split}) {
      for (const TensorDim dim : *dims) {
        const auto conflict = out->data.decided->split(dim);
        AM_CHECK(!conflict);
      }
    }
    for (const sharding::GroupId group : out->data.decided->undecided()) {
      out->data.decided->keep_whole(model.linkage().inputs(group)[0]);
    }
  }

  void split_operators(PlannedMesh* out) {
    if (request_.model > 1 && request_.operators_alone) {
      out->operators = make_plan(&out->model.model, device_, servers_of(cluster_, device_.name, request_.model),
                                 as_width_request(request_.operators));
      out->model.decided = out->operators->decided;
      return;
    }
    if (request_.model > 1) {
      PlanningRequest request = request_.operators;
      const DecidedAxis outer{&out->data.model, &*out->data.decided};
      const OtherAxis left = left_by(outer, request_.model, device_, cluster_);
      request.other = &left;
      request.rows_whole = true;  // the data axis shares out the samples
      request.outer = &outer;
      out->operators = make_plan(&out->model.model, device_, cluster_, request);
      out->model.decided = out->operators->decided;
      return;
    }
    out->model.decided.emplace(out->model.model.linkage());
  }

  std::vector<TakenDim> taken_by(const Propagation& decided) const {
    std::vector<TakenDim> out;
    for (const sharding::ModelInput& input : model_.inputs()) {
      const TensorState state = decided.state(input.node);
      out.push_back({state.kind == TensorStateKind::kSplit ? state.dim : -1, request_.model});
    }
    return out;
  }

  void fill(PlannedMesh* out) const {
    out->price = price({&out->data.model, &*out->data.decided}, {&out->model.model, &*out->model.decided}, device_,
                       cluster_, request_.operators.overlap);
    const PlanEstimate& estimate = out->price.estimate;
    MeshPlan& plan = out->plan;
    plan.zero = request_.data > 1 ? as_number(zero_) : 0;
    plan.step_ms = estimate.step_ms;
    plan.overlapped_ms = estimate.overlapped_ms;
    plan.compute_ms = estimate.compute_ms;
    plan.data_collective_ms = estimate.other_axis_ms;
    plan.model_collective_ms = estimate.collective_ms - estimate.other_axis_ms;
    plan.memory_bytes = out->price.memory.total;
    plan.capacity_bytes = out->price.capacity_bytes;
    plan.replicated_step_ms = out->price.unsplit_ms;
    if (out->operators) {
      plan.model_axis = out->operators->plan;
      // The warning about memory is about one axis alone.
      for (const std::string& warning : plan.model_axis.warnings) {
        if (warning != out->operators->memory_warning) plan.warnings.push_back(warning);
      }
      describe_decision(out->model.model, *out->model.decided, &plan.model_axis, &out->price.left_by_outer);
    } else {
      plan.model_axis.kind = "operator";
      describe(out->model, out->price.left_by_outer, &plan.model_axis);
    }
    plan.data_axis.kind = "data";
    plan.data_axis.planner = "batch";
    describe(out->data, out->price.left_by_own, &plan.data_axis);
    if (!batch_.note.empty()) plan.warnings.push_back(batch_.note);
    const std::string warning = memory_warning(plan.memory_bytes, plan.capacity_bytes);
    if (!warning.empty()) plan.warnings.push_back(warning);
  }

  // Every input is listed as decided: those stored in parts are variables and slots.
  static void describe(const MeshAxis& axis, const sharding::TensorShares& shares, PartitionPlan* plan) {
    for (const sharding::ModelInput& input : axis.model.inputs()) {
      if (axis.model.linkage().is_tensor(input.node)) plan->decided.push_back(input.name);
    }
    describe_decision(axis.model, *axis.decided, plan, &shares);
  }

  const ShardingModel& model_;
  const machine::DeviceModel& device_;
  const machine::Cluster& cluster_;
  const MeshRequest& request_;
  const Zero zero_;
  DataChoice batch_;
  std::vector<TensorDim> batch_dims_;
};

double limit_of(const MeshRequest& request, const PlannedMesh& planned) {
  if (request.operators.memory_limit_bytes > 0) return request.operators.memory_limit_bytes;
  return request.operators.fit_device ? planned.plan.capacity_bytes : HUGE_VAL;
}

MeshAlternative alternative_of(const MeshRequest& request, Zero zero, const PlannedMesh& planned) {
  MeshAlternative out;
  out.data = request.data;
  out.model = request.model;
  out.zero = request.data > 1 ? as_number(zero) : 0;
  out.step_ms = planned.plan.step_ms;
  out.overlapped_ms = planned.plan.overlapped_ms;
  out.memory_bytes = planned.plan.memory_bytes;
  out.fits = planned.plan.memory_bytes <= limit_of(request, planned);
  return out;
}

// All levels that were asked for, each with its plan or without one.
struct Tried {
  std::vector<MeshAlternative> alternatives;
  std::optional<PlannedMesh> best;  // that fits
  std::optional<Error> refused;     // the last reason why one is none
};

void try_mesh(const ShardingModel& model, const machine::DeviceModel& device, const machine::Cluster& cluster,
              const MeshRequest& request, Tried* tried) {
  std::vector<Zero> levels = {Zero::kOff, Zero::kOptimizer, Zero::kFull};
  if (request.zero) levels = {*request.zero};
  if (request.data == 1) levels = {Zero::kOff};
  bool fits_as_it_is = false;
  for (const Zero zero : levels) {
    // Storing in parts saves memory, and time where the sums and gathers are then fewer or shorter; level 2 has both
    // savings, unless gathers before use go beside compute.
    if (zero == Zero::kFull && fits_as_it_is && !request.zero && !request.operators.overlap) break;
    std::optional<PlannedMesh> planned;
    MeshRequest one = request;
    one.operators.or_least = true;
    if (tried->best) one.operators.useless_ms = tried->best->plan.expected_ms();
    try {
      planned = MeshPlanning(model, device, cluster, one, zero).run();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible && e.kind() != ErrorKind::kData) throw;
      tried->refused.emplace(e);
      if (e.kind() == ErrorKind::kData) return;
      continue;
    }
    MeshAlternative alternative = alternative_of(request, zero, *planned);
    tried->alternatives.push_back(alternative);
    const bool at_ease = !planned->operators || !planned->operators->memory_decided;
    fits_as_it_is = fits_as_it_is || (zero == Zero::kOff && alternative.fits && at_ease);
    // On the same mesh the simpler plan wins unless the other saves enough.
    const bool same_mesh = tried->best && tried->best->plan.data_axis.shards == request.data &&
                           tried->best->plan.model_axis.shards == request.model;
    const double enough =
        !tried->best ? HUGE_VAL : tried->best->plan.expected_ms() * (same_mesh ? 1 - kWorthStoring : 1);
    if (alternative.fits && planned->plan.expected_ms() < enough) tried->best = std::move(planned);
  }
}

PlannedMesh finish(Tried tried, const MeshRequest& request) {
  std::stable_sort(tried.alternatives.begin(), tried.alternatives.end(), [](const auto& a, const auto& b) {
    return std::make_pair(!a.fits, a.expected_ms()) < std::make_pair(!b.fits, b.expected_ms());
  });
  if (tried.best) {
    tried.best->plan.alternatives = std::move(tried.alternatives);
    return std::move(*tried.best);
  }
  if (tried.alternatives.empty()) throw *tried.refused;
  const MeshAlternative& least = *std::min_element(
      tried.alternatives.begin(), tried.alternatives.end(),
      [](const MeshAlternative& a, const MeshAlternative& b) { return a.memory_bytes < b.memory_bytes; });
  throw Error(ErrorKind::kInfeasible,
              "nothing fits into the memory of a device: the least is " + format_bytes(least.memory_bytes) + ", by " +
                  mesh_text(least.data, least.model, least.zero),
              request.zero && *request.zero != Zero::kFull && least.data > 1 ? "--zero 3 stores less on every device"
                                                                             : "--memory off plans without a limit");
}

// The speed of the fastest device over that of the one that a single shard stands on.
double fastest_of(const machine::Cluster& cluster) {
  double first = 0, fastest = 0;
  for (const machine::ServerGroup& servers : cluster.servers) {
    const double speed = cluster.devices.at(servers.device).relative_speed;
    if (first <= 0) first = speed;
    fastest = std::max(fastest, speed);
  }
  return first > 0 ? fastest / first : 1;
}

// A lower bound on the step over so many devices of a cluster, whatever the mesh.
class LeastStep {
 public:
  LeastStep(const ShardingModel& model, const machine::DeviceModel& device, const machine::Cluster& cluster)
      : unsplit_(model.another_axis(1)), cost_(unsplit_, device, cluster), faster_(fastest_of(cluster)) {}
  double ms(int devices) const { return cost_.least_step_ms(devices) / faster_; }

 private:
  const ShardingModel unsplit_;
  const PartitionCost cost_;
  const double faster_;
};

}  // namespace

PlannedMesh make_mesh_plan(const ShardingModel& model, const machine::DeviceModel& device,
                           const machine::Cluster& cluster, const MeshRequest& request) {
  // Throws before anything is planned if the cluster has no place for the mesh.
  shard_links(cluster, request.data, request.model);
  Tried tried;
  try_mesh(model, device, cluster, request, &tried);
  PlannedMesh out = finish(std::move(tried), request);
  if (request.operators.overlap)
    out.plan.overlapped_bound_ms = LeastStep(model, device, cluster).ms(out.plan.devices());
  return out;
}

namespace {

// Servers of several sizes may not hold whole replicas.
bool has_place(const machine::Cluster& cluster, int data, int width) {
  try {
    shard_links(cluster, data, width);
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    return false;
  }
}

std::int64_t batch_of(const ShardingModel& model) {
  const std::vector<TensorDim> dims = find_batch(model);
  if (dims.empty()) return 1;
  return std::max<std::int64_t>(1, model.flow().shape(dims[0].node).dims[static_cast<std::size_t>(dims[0].dim)]);
}

int widest_server(const machine::Cluster& cluster) {
  int widest = 1;
  for (const machine::ServerGroup& servers : cluster.servers) widest = std::max(widest, servers.devices);
  return widest;
}

}  // namespace

std::vector<std::pair<int, int>> meshes_of(const ShardingModel& model, const machine::Cluster& cluster) {
  const int widest = widest_server(cluster);
  const std::int64_t batch = batch_of(model);
  std::vector<std::pair<int, int>> out;
  for (int width = 1; width <= widest; ++width) {
    if (width > 1 && (widest % width != 0 || model.variables().empty())) continue;
    for (int data = 1; data * width <= cluster.num_devices() && data <= batch; ++data) {
      if (batch % data == 0 && has_place(cluster, data, width)) out.emplace_back(data, width);
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.first * a.second > b.first * b.second; });
  return out;
}

std::int64_t most_devices(const ShardingModel& model, const machine::Cluster& cluster) {
  return batch_of(model) * widest_server(cluster);
}

PlannedMesh best_mesh_plan(const ShardingModel& model, const machine::DeviceModel& device,
                           const machine::Cluster& cluster, const MeshRequest& request) {
  const LeastStep least(model, device, cluster);
  Tried tried;
  for (const auto& [data, width] : meshes_of(model, cluster)) {
    if (tried.best && least.ms(data * width) >= tried.best->plan.expected_ms()) continue;
    MeshRequest one = request;
    one.data = data;
    one.model = width;
    try_mesh(model, device, cluster, one, &tried);
  }
  PlannedMesh out = finish(std::move(tried), request);
  if (request.operators.overlap) out.plan.overlapped_bound_ms = least.ms(cluster.num_devices());
  return out;
}

}  // namespace automap::partition
