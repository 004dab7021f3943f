// automap-search apply.
#include <functional>
#include <optional>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/emit/emit.h"
#include "plan/partition/apply_plan.h"
#include "plan/partition/mesh_plan.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/price.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"
#include "search/emit_files.h"
#include "search/report.h"
#include "search/report_tables.h"

namespace automap::search {

using namespace partition;
using namespace emit;

namespace {

struct ApplyOptions {
  ModelOptions model;
  std::string plan;
  PricingOptions pricing;
  EmitFiles emit;
  bool json = false;
};

void declare_apply(OptionTable* table, ApplyOptions* options) {
  table->example("automap-search apply fixtures/hlo/t5_6_6.hlo.gz --plan plan.json --emit-hlo sharded.hlo",
                 "the module annotated for XLA");
  table->example("automap-search apply fixtures/hlo/t5_6_6.hlo.gz --plan plan.json --cluster h100-1x8",
                 "what somebody's plan would cost there");
  table->example("automap-search apply fixtures/hlo/t5_6_6.hlo.gz --plan plan.json --emit-hlo - | grep sharding=",
                 "just look at what is annotated");
  options->model.declare(table);
  table
      ->add(&options->plan, "plan",
            "the decision: automap.plan/1 JSON, of which schema, kind, shards and partition are enough")
      .reads_file()
      .metavar("FILE")
      .required();
  options->pricing.declare(table);
  table->group("Output");
  options->emit.declare(table);
  table->epilog("Exit codes: 0 done, 2 wrong usage, 3 bad input or output, 4 the decision contradicts itself.");
  table->add_common(&options->json);
}

Json totals_json(const PartitionPlan& plan) {
  Json out = {{"kind", plan.kind},
              {"shards", plan.shards},
              {"decided", plan.decided.size()},
              {"partitioned", plan.partitioned},
              {"partial_sums", plan.partial_sums},
              {"all_reduces", plan.all_reduces},
              {"all_reduce_bytes", plan.all_reduce_bytes},
              {"all_gathers", plan.all_gathers},
              {"all_gather_bytes", plan.all_gather_bytes},
              {"all_to_alls", plan.all_to_alls},
              {"all_to_all_bytes", plan.all_to_all_bytes},
              {"collectives", Json::parse(to_json_text(plan))["collectives"]}};
  if (plan.halos) {
    out["permutes"] = plan.permutes;
    out["permute_bytes"] = plan.permute_bytes;
  }
  return out;
}

// The applied decision, to be shown in either form.
struct Applied {
  Json json;         // of the decision
  std::string text;  // one line, or one per axis
  Price price;
};

void show(const ApplyOptions& options, const LoadedModel& loaded, const Applied& applied,
          const std::vector<std::string>& warnings, OutputFiles* files) {
  files->prepare();
  if (options.json) {
    Json document = {{"schema", "automap.applied/1"}, {"model", loaded.name}};
    document.update(applied.json);
    document["estimate"] = internal::price_json(applied.price, options.pricing.cluster);
    document["warnings"] = warnings;
    print_exact(json_text(document));
  } else if (!files->on_standard_output()) {
    print_report(printable(loaded.name) + ": " + applied.text + "\n" +
                 internal::price_text(applied.price, options.pricing.cluster));
  }
  files->commit();
  for (const std::string& warning : warnings) log_warning(warning);
}

Applied apply_one(const LoadedModel& loaded, PartitionPlan plan, ApplyOptions* options,
                  std::vector<std::string>* warnings, const machine::Cluster& cluster,
                  const machine::DeviceModel& device) {
  sharding::ShardingModel* model = loaded.model.get();
  const sharding::Propagation decided = apply_plan(model, plan, loaded.module->sha256, warnings);
  describe_decision(*model, decided, &plan);
  const Layout layout({{model, &decided}});
  options->emit.write(layout, {{plan.kind == "data" ? "data" : "model", plan.shards}},
                      [&] { return emit_jax(*model, plan, layout); });
  return {totals_json(plan), decision_line(*model, decided, plan),
          price({model, &decided}, device, cluster, options->pricing.overlap)};
}

Applied apply_mesh(const LoadedModel& loaded, MeshPlan plan, ApplyOptions* options, std::vector<std::string>* warnings,
                   const machine::Cluster& cluster, const machine::DeviceModel& device) {
  const AppliedMesh mesh = apply_mesh_plan(*loaded.model, plan, loaded.module->sha256, warnings);
  Applied out;
  out.price = price({&mesh.data, &mesh.data_decided}, {&mesh.model, &mesh.model_decided}, device, cluster,
                    options->pricing.overlap);
  describe_decision(mesh.data, mesh.data_decided, &plan.data_axis, &out.price.left_by_own);
  describe_decision(mesh.model, mesh.model_decided, &plan.model_axis, &out.price.left_by_outer);
  const Layout layout({{&mesh.data, &mesh.data_decided}, {&mesh.model, &mesh.model_decided}});
  options->emit.write(layout, {{"data", plan.data_axis.shards}, {"model", plan.model_axis.shards}},
                      [&] { return emit_jax(*loaded.model, plan, layout); });
  out.json = {{"kind", "mesh"},
              {"shards", plan.devices()},
              {"mesh", {{"data", plan.data_axis.shards}, {"model", plan.model_axis.shards}}},
              {"axes", {{"data", totals_json(plan.data_axis)}, {"model", totals_json(plan.model_axis)}}}};
  out.text =
      "a mesh of " + std::to_string(plan.data_axis.shards) + " x " + std::to_string(plan.model_axis.shards) +
      " devices\n  data axis:  " + decision_line(mesh.data, mesh.data_decided, plan.data_axis, &out.price.left_by_own) +
      "\n  model axis: " + decision_line(mesh.model, mesh.model_decided, plan.model_axis, &out.price.left_by_outer);
  return out;
}

}  // namespace

int apply_command(int argc, char** argv) {
  ApplyOptions options;
  OptionTable table("search apply", "write a stored decision, by anyone, onto a module, and say what it costs");
  declare_apply(&table, &options);
  if (!table.parse(argc, argv)) return 0;
  if (options.model.path == "-" && options.plan == "-") {
    throw Error(ErrorKind::kUsage, "MODEL and --plan both want standard input", "give one of them a file");
  }
  OutputFiles files(options.json);
  options.emit.open(&files);
  const PlanFile plan = load_plan_file(options.plan);
  options.pricing.as_planned(table, plan.cluster(), plan.provenance());
  const machine::Cluster cluster = options.pricing.cluster_for(table, plan.devices());
  const machine::DeviceModel device = profile::reference_device(options.pricing.device, cluster);
  const LoadedModel loaded = load_sharding_model(options.model, plan.one ? plan.one->shards : 1);
  std::vector<std::string> warnings;
  const Applied applied = plan.one ? apply_one(loaded, *plan.one, &options, &warnings, cluster, device)
                                   : apply_mesh(loaded, *plan.mesh, &options, &warnings, cluster, device);
  show(options, loaded, applied, warnings, &files);
  return 0;
}

}  // namespace automap::search
