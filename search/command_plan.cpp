// automap-search opp and automap-search adp.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cli.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/text_table.h"
#include "common/machine/cluster.h"
#include "plan/emit/emit.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/mesh_planner.h"
#include "plan/partition/names.h"
#include "plan/partition/planner.h"
#include "plan/partition/what_fits.h"
#include "plan/partition/widths.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"
#include "search/one_cost.h"
#include "search/plan_options.h"
#include "search/report.h"

namespace automap::search {

using namespace partition;
using namespace emit;

namespace {

// Fills in the provenance that plans of all kinds have.
void note_provenance(const OptionTable& table, const LoadedModel& loaded, const machine::Cluster& cluster,
                     const machine::DeviceModel& device, std::map<std::string, std::string>* provenance) {
  *provenance = table.provenance();
  note_model(loaded.form, loaded.module->sha256, cluster, device, provenance);
}

// A partition that fits is looked for so many times, each with less of the memory that the search counts.
constexpr int kMemoryTries = 2;
constexpr double kTighterTry = 0.97;
constexpr int kMostTimesTheCluster = 16;

// True if the data is split as replicas of a layout share it: all of the batch, and no variable.
bool splits_batch_alone(const sharding::ShardingModel& model, const sharding::Propagation& decided) {
  if (model.halos()) return false;
  const std::vector<sharding::TensorDim> batch = find_batch(model);
  const auto is_split = [&](sharding::NodeId node) {
    return decided.state(node).kind == sharding::TensorStateKind::kSplit;
  };
  return !batch.empty() && std::all_of(batch.begin(), batch.end(), [&](const sharding::TensorDim& at) {
    return is_split(at.node) && decided.state(at.node).dim == at.dim;
  }) && std::none_of(model.variables().begin(), model.variables().end(), [&](std::int32_t index) {
    return is_split(model.inputs()[static_cast<std::size_t>(index)].node);
  });
}

// From the question to the files, for both kinds of plans.
class PlanCommand {
 public:
  PlanCommand(const OptionTable& table, PlanOptions& options, bool data)
      : table_(table),
        options_(options),
        data_(data),
        files_(options.json),
        request_(options.request(data, table.source_of("objective") != "default")) {
    files_.add("-o", options.output);
    options.emit.open(&files_);
    mesh_ = options.mesh_sizes();
    shards_ = options.num_shards();
    refuse_contradictions();
    cluster_ = machine::load_cluster(options.pricing.cluster);
    if (mesh_) {
      shard_links(cluster_, mesh_->data, mesh_->model);
    } else if (shards_ > 0) {
      shard_links(cluster_, shards_);
    }
    device_ = profile::reference_device(options.pricing.device, cluster_);
  }

  int run() {
    loaded_ = load_sharding_model(options_.model, std::max(1, shards_));
    loaded_.model->combine_sums(options_.sums_combined());
    log_verbose("read and analysed in " + std::to_string(std::lround(elapsed_ms())) +
                " ms: " + std::to_string(loaded_.model->flow().size()) + " nodes, " +
                std::to_string(loaded_.model->linkage().num_groups()) + " linkage groups");
    request_.search.limits.ends_s = steady_seconds() + request_.search.limits.budget_s;
    count_anew();
    // The first Ctrl-C ends learning with the best so far; everything else is quick.
    std::optional<StopToken> stop;
    if (options_.search.algorithm == "rainbow") stop.emplace();
    if (mesh_ || shards_ == 0) {
      plan_mesh();
    } else {
      plan_one_axis();
    }
    return StopToken::stop_requested() ? kExitStoppedEarly : 0;
  }

 private:
  void refuse_contradictions() const {
    options_.cost.step();  // of numbers alone
    if (mesh_ && table_.source_of("shards") != "default") {
      throw Error(ErrorKind::kUsage, "--mesh and --shards both say how many devices there are", "give one of them");
    }
    const bool data_axis = mesh_ ? mesh_->data > 1 : shards_ == 0;
    if (!data_axis && !data_ && options_.zero != "auto") {
      throw Error(ErrorKind::kUsage, "--zero " + options_.zero + " needs a data axis to store over",
                  "give --mesh data=D,model=T with several devices for data, or --shards auto");
    }
    if (!data_ && table_.source_of("reshard") != "default" && options_.reshard == "auto" && !request_.reshard) {
      log_warning("--reshard auto cuts nothing here: it is about --algorithm auto with --objective time");
    }
    if ((mesh_ || shards_ == 0) && options_.keep_shardings) {
      throw Error(ErrorKind::kUsage,
                  "--keep-shardings is about one axis; a mesh is planned without what the module says",
                  "give --shards the devices of one of the module's axes");
    }
    if (data_ && shards_ == 0) {
      throw Error(ErrorKind::kUsage, "--shards auto is about meshes: automap-search opp has it", "give a number");
    }
    if ((mesh_ || shards_ == 0) && options_.sums_combined()) {
      throw Error(ErrorKind::kUsage,
                  "--sums combined is about one axis; in a mesh each partial sum is reduced by itself",
                  "leave --sums out, or give --shards a number");
    }
    if ((mesh_ || shards_ == 0) && options_.objective != "time") {
      throw Error(ErrorKind::kUsage, "a mesh is planned by time; --objective count is about one axis",
                  "leave --objective out, or give --shards a number");
    }
  }

  double elapsed_ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

  bool memory_is_limited() const { return request_.fit_device || request_.memory_limit_bytes > 0; }
  bool fits(const PlanCost& cost) const {
    if (request_.memory_limit_bytes > 0) return cost.memory_bytes <= request_.memory_limit_bytes;
    return !request_.fit_device || cost.memory_bytes <= cost.capacity_bytes;
  }
  double limit_of(const PlanCost& cost) const {
    return request_.memory_limit_bytes > 0 ? request_.memory_limit_bytes : cost.capacity_bytes;
  }

  void count_anew() {
    cost_.emplace(loaded_, options_.model, options_.pricing, options_.cost, cluster_, request_.sequence_parallel);
  }

  // The plan, or an error that suggests one that would fit. `all_meshes`: all meshes of the cluster are planned.
  template <typename Make>
  auto or_what_fits(bool all_meshes, const Make& make) {
    try {
      return make();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible) throw;
      std::string fits = what_would_fit(all_meshes);
      const std::string smaller = smaller_micro_batch();
      if (!smaller.empty()) fits = smaller + (fits.empty() ? "" : "; or " + fits);
      throw Error(e.kind(), e.what(), fits.empty() ? e.hint() : fits + "; or " + e.hint());
    }
  }

  // The quickest mesh that fits, of the cluster and then of larger ones.
  std::string what_would_fit(bool cluster_was_tried) {
    if (late()) return "";
    count_anew();  // without the partitions that were tried
    know_widths(widths_of_meshes(meshes_of(*loaded_.model, cluster_)));
    for (int times = cluster_was_tried ? 2 : 1; times <= kMostTimesTheCluster; times *= 2) {
      if (times > 1 && cluster_.num_devices() * (times / 2) >= most_devices(*loaded_.model, cluster_)) break;
      machine::Cluster larger = cluster_;
      larger.servers.back().count *= times;
      cost_->set_cluster(larger);
      const std::optional<planners::StepSize> own = cost_->step_size();
      const std::vector<MeshAlternative> counted =
          count_meshes(meshes_of(*loaded_.model, larger), std::nullopt, own ? &*own : nullptr).meshes;
      cost_->set_cluster(cluster_);
      // Nothing can be counted: the search's own figures are used.
      if (counted.empty()) {
        PlanningRequest operators = request_;
        operators.keep_shardings = false;
        return what_fits(*loaded_.model, device_, cluster_, operators, cluster_was_tried, typed());
      }
      const MeshAlternative& best = counted.front();
      if (!best.fits) continue;
      const std::string where =
          times == 1 ? "" : "with " + plural(larger.num_devices(), "device") + " of such servers ";
      return where + typed()(mesh_text(best.data, best.model, best.zero)) +
             " fits: " + format_bytes(best.memory_bytes) + " per device, " + format_ms(best.expected_ms()) +
             " per step";
    }
    return "";
  }

  // Rewrites the options of a mesh as a person would type them, in place of this command's options for one axis.
  std::function<std::string(const std::string&)> typed() const {
    if (data_) return [](const std::string& mesh) { return "automap-search opp " + mesh; };
    std::string out;
    if (table_.source_of("shards") != "default") out += " --shards " + options_.shards;
    if (options_.objective != "time") out += " --objective " + options_.objective;
    if (options_.sums_combined()) out += " --sums combined";
    if (options_.keep_shardings) out += " --keep-shardings";
    return [out](const std::string& mesh) { return mesh + (out.empty() ? "" : " in place of" + out); };
  }

  // The largest micro-batch with which the question has a plan that fits, with the samples of a step unchanged.
  std::string smaller_micro_batch() {
    if (late()) return "";
    const std::optional<planners::StepSize> own = cost_->step_size();
    if (!own) return "";
    const bool one_axis = !mesh_ && shards_ > 0;
    if (one_axis && !axis_is_counted_) return "";
    const Meshes asked = mesh_      ? Meshes{{mesh_->data, mesh_->model}}
                         : one_axis ? Meshes{data_ ? std::make_pair(shards_, 1) : std::make_pair(1, shards_)}
                                    : meshes_of(*loaded_.model, cluster_);
    // By the partition that is asked for.
    const bool by_count = one_axis && !data_ && request_.objective == models::PartitionObjective::kCount;
    if (by_count || options_.keep_shardings) count_anew();
    know_widths(widths_of_meshes(asked), by_count, options_.keep_shardings);
    const auto samples = static_cast<std::int64_t>(own->samples);
    for (const std::int64_t times : planners::divisors(samples)) {
      if (times == 1) continue;
      if (own->micro_batches * times > planners::kMostGivenMicroBatches) break;
      planners::StepSize size = *own;
      size.samples = static_cast<double>(samples / times);
      size.micro_batches *= static_cast<int>(times);
      const std::vector<MeshAlternative> counted =
          count_meshes(asked, one_axis ? std::optional<Zero>(Zero::kOff) : options_.zero_level(), &size).meshes;
      if (counted.empty() || !counted.front().fits) continue;
      const MeshAlternative& best = counted.front();
      return "--micro-batch " + std::to_string(samples / times) + " --micro-batches " +
             std::to_string(size.micro_batches) + " fits" +
             (mesh_ || one_axis ? "" : ", as by " + mesh_text(best.data, best.model, best.zero)) + ": " +
             format_bytes(best.memory_bytes) + " per device, " + format_ms(best.expected_ms()) + " per step";
    }
    return "";
  }

  // Plans one axis as `request` asks, and counts its cost.
  Planned planned_axis(const PlanningRequest& request, sharding::ShardingModel* model) {
    const bool width = !data_ && is_width(cluster_, shards_);
    Planned planned =
        make_plan(model, device_, width ? servers_of(cluster_, device_.name, shards_) : cluster_, request);
    CountedCost& counted = planned.plan.counted;
    if (!data_) {
      if (width) cost_->know(*model, planned.decided, planned.plan);
      counted = cost_->of(1, shards_, 0);
    } else if (shards_ > 1 && !splits_batch_alone(*model, planned.decided)) {
      counted.why_none = "the data is not split as replicas share a batch";
    } else {
      counted = cost_->of(shards_, 1, 0);
    }
    return planned;
  }

  // The partition of a width is the quickest, whatever memory there is. Where that does not fit, others are looked for.
  Planned planned_within_memory() {
    const sharding::ShardingModel fresh = fresh_model();
    Planned planned = planned_axis(as_width_request(request_), loaded_.model.get());
    if (!memory_is_limited()) return planned;
    axis_is_counted_ = planned.plan.counted.cost.has_value();
    if (!axis_is_counted_) {
      *loaded_.model = fresh_of(fresh);
      return planned_axis(request_, loaded_.model.get());
    }
    double least = planned.plan.counted.cost->memory_bytes;
    const double limit = limit_of(*planned.plan.counted.cost);
    double searched = planned.memory.total, found = least;
    for (int attempt = 0; !fits(*planned.plan.counted.cost); ++attempt) {
      PlanningRequest tighter = request_;  // rows of what weights multiply may be split, too: whatever fits
      tighter.memory_limit_bytes = searched * limit / found * std::pow(kTighterTry, attempt);
      tighter.or_least = true;
      bool none = attempt == kMemoryTries || shards_ == 1 || late();
      if (!none) {
        try {
          *loaded_.model = fresh_of(fresh);
          planned = planned_axis(tighter, loaded_.model.get());
          none = !planned.plan.counted.cost;
        } catch (const Error& e) {
          if (e.kind() != ErrorKind::kInfeasible) throw;
          none = true;
        }
      }
      if (none) {
        throw Error(ErrorKind::kInfeasible,
                    "nothing that was found fits into " + format_bytes(limit) + " per device: the least is " +
                        format_bytes(least),
                    "--memory off plans without a limit");
      }
      found = planned.plan.counted.cost->memory_bytes;
      searched = planned.memory.total;
      least = std::min(least, found);
      if (fits(*planned.plan.counted.cost)) planned.plan.warnings.push_back(kOtherPartition);
    }
    return planned;
  }

  static constexpr const char* kOtherPartition =
      "the quickest partition does not fit: this is another one than automap-infer counts for replicas of so many "
      "devices";

  sharding::ShardingModel fresh_model() const { return fresh_of(*loaded_.model); }
  sharding::ShardingModel fresh_of(const sharding::ShardingModel& model) const {
    sharding::ShardingModel out = model.another_axis(model.linkage().shards());
    out.combine_sums(options_.sums_combined());
    return out;
  }

  void plan_one_axis() {
    Planned planned = or_what_fits(false, [&] { return planned_within_memory(); });
    PartitionPlan& plan = planned.plan;
    warn_of_memory(plan.counted, planned.memory_warning, "; --memory on looks for a plan that fits", &plan.warnings);
    complete(&plan);
    const std::string json = to_json_text(plan);
    if (files_.wanted("-o")) files_.write("-o", json);
    const Layout layout({{loaded_.model.get(), &planned.decided}});
    options_.emit.write(layout, {{data_ ? "data" : "model", shards_}},
                        [&] { return emit_jax(*loaded_.model, plan, layout); });
    const bool told = show(json, [&] { return plan_report(*loaded_.model, planned); });
    for (const std::string& warning : plan.warnings) {
      const bool in_report = !planned.nothing_split.empty() && warning.find(planned.nothing_split) != std::string::npos;
      if (!told || !in_report) log_warning(warning);
    }
  }

  // The warning about the counted memory replaces that about the search's estimate.
  static void warn_of_memory(const CountedCost& counted, const std::string& of_search, const std::string& hint,
                             std::vector<std::string>* warnings) {
    if (!counted.cost) return;
    warnings->erase(std::remove(warnings->begin(), warnings->end(), of_search), warnings->end());
    const std::string warning = memory_warning(counted.cost->memory_bytes, counted.cost->capacity_bytes, hint);
    if (!warning.empty()) warnings->push_back(warning);
  }

  using Meshes = std::vector<std::pair<int, int>>;  // data, model

  std::vector<int> widths_of_meshes(const Meshes& meshes) const {
    std::set<int> widths;
    for (const auto& [data, width] : meshes) {
      if (width > 1 && is_width(cluster_, width)) widths.insert(width);
    }
    return {widths.begin(), widths.end()};
  }

  // True if the time of all searches is over (--budget).
  bool late() const { return steady_seconds() >= request_.search.limits.ends_s; }

  // The partitions of replicas of so many devices, as far as they split something.
  void know_widths(const std::vector<int>& widths, bool by_count = false, bool kept = false) {
    for (const int width : widths) {
      if (cost_->knows(width)) continue;
      if (late() && !mesh_) {
        left_out_ = true;
        continue;
      }
      sharding::ShardingModel model = loaded_.model->another_axis(width);
      PlanningRequest request = as_width_request(request_);
      if (data_) request.reshard = true;
      request.data = false;
      if (!by_count) request.objective = models::PartitionObjective::kTime;
      request.keep_shardings = kept;
      request.compare = false;
      try {
        const Planned planned = make_plan(&model, device_, servers_of(cluster_, device_.name, width), request);
        if (planned.plan.partitioned > 0 || mesh_) cost_->know(model, planned.decided, planned.plan);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::kData && e.kind() != ErrorKind::kInfeasible) throw;
      }
    }
  }

  // Those that can be counted, one level of ZeRO of each mesh that fits in front: as all are compared.
  struct CountedMeshes {
    std::vector<MeshAlternative> meshes;
    std::string why_none;  // of the last that cannot
  };
  CountedMeshes count_meshes(const Meshes& meshes, std::optional<Zero> asked,
                             const planners::StepSize* size = nullptr) {
    CountedMeshes out;
    for (const auto& [data, width] : meshes) {
      std::vector<int> levels = {0, 2, 3};
      if (asked) levels = {static_cast<int>(*asked)};
      if (data == 1) levels = {0};
      if (!cost_->knows(width)) continue;
      double shortest = HUGE_VAL;
      for (const int zero : levels) {
        const CountedCost counted = cost_->of(data, width, zero, size);
        if (!counted.cost) {
          out.why_none = counted.why_none;
          break;
        }
        MeshAlternative one;
        one.data = data;
        one.model = width;
        one.zero = zero;
        one.fits = fits(*counted.cost);
        one.step_ms = counted.cost->step_ms;
        one.simulated_step_ms = counted.cost->simulated_step_ms;
        one.memory_bytes = counted.cost->memory_bytes;
        // On one mesh the simpler level wins unless the other saves enough.
        if (one.fits && one.expected_ms() >= shortest * (1 - kWorthStoring)) continue;
        if (one.fits) shortest = one.expected_ms();
        out.meshes.push_back(one);
      }
    }
    std::stable_sort(out.meshes.begin(), out.meshes.end(), [](const MeshAlternative& a, const MeshAlternative& b) {
      return std::make_pair(!a.fits, a.expected_ms()) < std::make_pair(!b.fits, b.expected_ms());
    });
    return out;
  }

  MeshRequest mesh_request() const {
    MeshRequest request;
    request.zero = options_.zero_level();
    request.operators = request_;
    if (mesh_) {
      request.data = mesh_->data;
      request.model = mesh_->model;
    }
    return request;
  }

  // Counts the cost of a planned mesh, from the partition of its own model axis.
  void count(PlannedMesh* planned) {
    MeshPlan& plan = planned->plan;
    const int width = plan.model_axis.shards;
    if (planned->experts_apart) {
      plan.counted.why_none = "the data axis also splits experts, which replicas hold whole where they are counted";
      return;
    }
    if (width > 1 && is_width(cluster_, width)) {
      cost_->know(planned->model.model, *planned->model.decided, plan.model_axis);
    }
    plan.counted = cost_->of(plan.data_axis.shards, width, plan.zero);
  }

  // The quickest of the meshes that were counted and can be written.
  PlannedMesh counted_mesh(std::vector<MeshAlternative> meshes) {
    std::optional<Error> refused;
    for (const MeshAlternative& one : meshes) {
      if (!one.fits) break;
      MeshRequest request = mesh_request();
      request.data = one.data;
      request.model = one.model;
      request.zero = static_cast<Zero>(one.zero);
      request.operators = as_width_request(request_);
      request.operators_alone = true;
      try {
        PlannedMesh planned = make_mesh_plan(*loaded_.model, device_, cluster_, request);
        if (planned.experts_apart) {
          // There is no layout to count: the model axis may as well be planned on the tensors that this data axis
          // leaves.
          request.operators = request_;
          request.operators_alone = false;
          planned = make_mesh_plan(*loaded_.model, device_, cluster_, request);
        }
        count(&planned);
        planned.plan.alternatives = std::move(meshes);
        return planned;
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::kData && e.kind() != ErrorKind::kInfeasible) throw;
        refused.emplace(e);
      }
    }
    if (refused) throw *refused;
    const MeshAlternative least = *std::min_element(
        meshes.begin(), meshes.end(),
        [](const MeshAlternative& a, const MeshAlternative& b) { return a.memory_bytes < b.memory_bytes; });
    // Another partition of the mesh that needs the least.
    MeshRequest request = mesh_request();
    request.data = least.data;
    request.model = least.model;
    if (least.data > 1) request.zero = static_cast<Zero>(least.zero);
    if (least.model > 1) {
      try {
        PlannedMesh planned = make_mesh_plan(*loaded_.model, device_, cluster_, request);
        count(&planned);
        if (planned.plan.counted.cost && fits(*planned.plan.counted.cost)) {
          planned.plan.warnings.push_back(kOtherPartition);
          planned.plan.alternatives = std::move(meshes);
          return planned;
        }
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::kData && e.kind() != ErrorKind::kInfeasible) throw;
      }
    }
    const std::optional<Zero> zero = options_.zero_level();
    throw Error(ErrorKind::kInfeasible,
                "nothing fits into the memory of a device: the least is " + format_bytes(least.memory_bytes) + ", by " +
                    mesh_text(least.data, least.model, least.zero),
                zero && *zero != Zero::kFull && least.data > 1 ? "--zero 3 stores less on every device"
                                                               : "--memory off plans without a limit");
  }

  PlannedMesh planned_mesh() {
    const Meshes meshes = mesh_ ? Meshes{{mesh_->data, mesh_->model}} : meshes_of(*loaded_.model, cluster_);
    know_widths(widths_of_meshes(meshes));
    // If no mesh was asked for, only those are tried that the samples can be divided over.
    const std::optional<planners::StepSize> own = mesh_ ? std::nullopt : cost_->step_size();
    CountedMeshes counted = count_meshes(meshes, options_.zero_level(), own ? &*own : nullptr);
    if (!counted.meshes.empty()) return counted_mesh(std::move(counted.meshes));
    PlannedMesh planned = mesh_ ? make_mesh_plan(*loaded_.model, device_, cluster_, mesh_request())
                                : best_mesh_plan(*loaded_.model, device_, cluster_, mesh_request());
    planned.plan.counted.why_none = counted.why_none;
    return planned;
  }

  void plan_mesh() {
    PlannedMesh planned = or_what_fits(!mesh_, [&] { return planned_mesh(); });
    MeshPlan& plan = planned.plan;
    if (left_out_) {
      plan.warnings.emplace_back(
          "the budget ended before all meshes were looked at; a longer --budget may find a better plan");
    }
    warn_of_memory(plan.counted, memory_warning(plan.memory_bytes, plan.capacity_bytes), "", &plan.warnings);
    complete(&plan);
    const Layout layout(
        {{&planned.data.model, &*planned.data.decided}, {&planned.model.model, &*planned.model.decided}});
    const std::string json = to_json_text(plan);
    if (files_.wanted("-o")) files_.write("-o", json);
    options_.emit.write(layout, {{"data", plan.data_axis.shards}, {"model", plan.model_axis.shards}},
                        [&] { return emit_jax(*loaded_.model, plan, layout); });
    show(json, [&] { return mesh_report(planned); });
    for (const std::string& warning : plan.warnings) log_warning(warning);
  }

  template <typename Plan>
  void complete(Plan* plan) const {
    plan->model = loaded_.name;
    plan->cluster = cluster_.name;
    plan->planning_ms = elapsed_ms();
    if (!plan->counted.cost) plan->warnings.push_back(not_counted_text(plan->counted));
    note_provenance(table_, loaded_, cluster_, device_, &plan->provenance);
  }

  // Shows the report or the JSON. Returns true if a person was shown the report.
  template <typename Report>
  bool show(const std::string& json, const Report& report) {
    files_.prepare();
    const bool told = !options_.json && !files_.on_standard_output();
    if (options_.json) {
      print_exact(json);
    } else if (told) {
      if (table_.source_of("cluster") == "default") {
        log_info("no --cluster: times are for " + cluster_.name + " (" + device_.name + ")");
      }
      print_report(report());
    }
    files_.commit();
    return told;
  }

  const OptionTable& table_;
  PlanOptions& options_;
  const bool data_;
  OutputFiles files_;
  PlanningRequest request_;
  std::optional<MeshSizes> mesh_;
  int shards_ = 0;  // 0: auto
  machine::Cluster cluster_;
  machine::DeviceModel device_;
  LoadedModel loaded_;
  std::optional<OneCost> cost_;
  bool left_out_ = false;         // some width, for want of time
  bool axis_is_counted_ = false;  // what a plan of one axis takes is known
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

int plan_command(int argc, char** argv, bool data) {
  PlanOptions options;
  OptionTable table(data ? "search adp" : "search opp",
                    data ? "find which dimension of which data input to split over the devices"
                         : "find which dimension of which trainable variable to split over the devices");
  options.declare(&table, data);
  if (!table.parse(argc, argv)) return 0;
  // Mistakes that can be found without the model are reported first: outputs, cluster, device, limit.
  return PlanCommand(table, options, data).run();
}

}  // namespace

int opp_command(int argc, char** argv) {
  return plan_command(argc, argv, false);
}
int adp_command(int argc, char** argv) {
  return plan_command(argc, argv, true);
}

}  // namespace automap::search
