// automap-search opp and automap-search adp.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/text_table.h"
#include "common/machine/cluster.h"
#include "plan/emit/emit.h"
#include "plan/partition/mesh_planner.h"
#include "plan/partition/planner.h"
#include "plan/partition/what_fits.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"
#include "search/plan_options.h"
#include "search/report.h"

namespace automap::search {

using namespace partition;
using namespace emit;

namespace {

// What is the same in plans of all kinds.
void note_provenance(const OptionTable& table, const LoadedModel& loaded, const machine::Cluster& cluster,
                     const machine::DeviceModel& device, bool data, std::map<std::string, std::string>* provenance) {
  std::vector<std::string> asked = {"shards", "objective", "algorithm", "seed",   "effort", "budget",
                                    "memory", "policy",    "cluster",   "device", "overlap"};
  if (!data) asked.insert(asked.end(), {"mesh", "zero", "reshard", "sequence-parallel", "sums"});
  *provenance = table.provenance(asked);
  note_model(*loaded.module, cluster, device, provenance);
}

// From the question to the files, for both kinds of plans.
class PlanCommand {
 public:
  PlanCommand(const OptionTable& table, PlanOptions& options, bool data)
      : table_(table), options_(options), data_(data), files_(options.json), request_(options.request(data)) {
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

  // The plan, or an error that says what would fit. `all_meshes`: of the cluster, are what is planned.
  template <typename Make>
  auto or_what_fits(bool all_meshes, const Make& make) {
    try {
      return make();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInfeasible) throw;
      const std::string fits = what_fits(*loaded_.model, device_, cluster_, request_, all_meshes);
      throw Error(e.kind(), e.what(), fits.empty() ? e.hint() : fits + "; or " + e.hint());
    }
  }

  void plan_one_axis() {
    Planned planned = or_what_fits(false, [&] { return make_plan(loaded_.model.get(), device_, cluster_, request_); });
    PartitionPlan& plan = planned.plan;
    complete(&plan);
    const std::string json = to_json_text(plan);
    if (files_.wanted("-o")) files_.write("-o", json);
    options_.emit.write(Layout({{loaded_.model.get(), &planned.decided}}), {{data_ ? "data" : "model", shards_}},
                        [&] { return emit_jax(*loaded_.model, plan); });
    const bool told = show(json, [&] { return plan_report(*loaded_.model, planned); });
    for (const std::string& warning : plan.warnings) {
      const bool in_report = !planned.nothing_split.empty() && warning.find(planned.nothing_split) != std::string::npos;
      if (!told || !in_report) log_warning(warning);
    }
  }

  void plan_mesh() {
    MeshRequest request;
    request.zero = options_.zero_level();
    request.operators = request_;
    if (mesh_) {
      request.data = mesh_->data;
      request.model = mesh_->model;
    }
    PlannedMesh planned = or_what_fits(!mesh_, [&] {
      return mesh_ ? make_mesh_plan(*loaded_.model, device_, cluster_, request)
                   : best_mesh_plan(*loaded_.model, device_, cluster_, request);
    });
    MeshPlan& plan = planned.plan;
    complete(&plan);
    const Layout layout(
        {{&planned.data.model, &*planned.data.decided}, {&planned.model.model, &*planned.model.decided}});
    const std::string json = to_json_text(plan);
    if (files_.wanted("-o")) files_.write("-o", json);
    options_.emit.write(layout, {{"data", plan.data_axis.shards}, {"model", plan.model_axis.shards}},
                        [&] { return emit_jax(*loaded_.model, plan); });
    show(json, [&] { return mesh_report(planned); });
    for (const std::string& warning : plan.warnings) log_warning(warning);
  }

  template <typename Plan>
  void complete(Plan* plan) const {
    plan->model = loaded_.name;
    plan->cluster = cluster_.name;
    plan->planning_ms = elapsed_ms();
    note_provenance(table_, loaded_, cluster_, device_, data_, &plan->provenance);
  }

  // Whether a person was shown the report.
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
      print(report());
    }
    files_.commit();
    return told;
  }

  const OptionTable& table_;
  PlanOptions& options_;
  const bool data_;
  OutputFiles files_;
  const PlanningRequest request_;
  std::optional<MeshSizes> mesh_;
  int shards_ = 0;  // 0: auto
  machine::Cluster cluster_;
  machine::DeviceModel device_;
  LoadedModel loaded_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

int plan_command(int argc, char** argv, bool data) {
  PlanOptions options;
  OptionTable table(data ? "search adp" : "search opp",
                    data ? "find which dimension of which data input to split over the devices"
                         : "find which dimension of which trainable variable to split over the devices");
  options.declare(&table, data);
  if (!table.parse(argc, argv)) return 0;
  // What is wrong without having seen the model comes first: outputs, cluster, device, limit.
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
