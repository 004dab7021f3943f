// automap-search opp and automap-search adp.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/machine/cluster.h"
#include "plan/emit/emit.h"
#include "plan/partition/planner.h"
#include "plan/partition/rainbow.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"
#include "search/report.h"

namespace automap::search {

using namespace partition;
using namespace emit;

namespace {

// What a plan is judged on when nobody says: the paper's servers of 8 V100.
constexpr const char* kDefaultCluster = "config-a";
constexpr int kMostShards = 1000000;

struct Options {
  ModelOptions model;
  int shards = 8;
  std::string objective, cluster = kDefaultCluster, device, memory, output, hlo, jax,
                         effort = to_string(Effort::kNormal), reshard = "auto";
  SearchRequest search;
  bool json = false;
};

void declare(OptionTable& table, Options& o, bool data) {
  const std::string command = std::string("automap-search ") + (data ? "adp" : "opp");
  if (data) {
    table.example(command + " fixtures/hlo/t5_6_6.hlo.gz --shards 8", "the batch over 8 devices, and what that costs");
    table.example(command + " fixtures/hlo/vgg19.hlo.gz --shards 4 --cluster h100-1x8 -o data.json --emit-jax specs.py",
                  "store the plan, and write PartitionSpecs for jax.jit");
    table.example(command + " fixtures/hlo/gpt2.hlo.gz --json", "the plan as JSON on standard output");
  } else {
    table.example(command + " fixtures/hlo/t5_6_6.hlo.gz --shards 8 -o plan.json --emit-hlo sharded.hlo",
                  "the fastest splitting over 8 devices; sharded.hlo is for XLA");
    table.example(command + " fixtures/hlo/t5_6_6.hlo.gz --shards 8 --objective count",
                  "split as many variables as possible, as the paper does");
    table.example(command + " fixtures/hlo/tiny_mlp.hlo --shards 4 --cluster h100-1x8 --json",
                  "the plan as JSON on standard output");
  }
  o.model.declare(&table);

  table.group("Machines");
  table.add(&o.shards, "shards", "devices to split over").range(1, kMostShards).metavar("N");
  table.add(&o.cluster, "cluster", "a preset (" + join(machine::cluster_preset_names()) + ") or a JSON file")
      .reads_file()
      .metavar("CLUSTER");
  table.add(&o.device, "device", "reference device for the times: a name or a file")
      .reads_file()
      .metavar("DEVICE")
      .shown_default("the cluster's first");
  table
      .add(&o.memory, "memory",
           "on: only plans that fit into the smallest device; off: any; or a limit per device such as 12GiB")
      .no_file()
      .metavar("on|off|SIZE")
      .shown_default("on for time, off for count");

  table.group("Search");
  o.objective = data ? "count" : "time";
  table
      .add(&o.objective, "objective",
           data ? "count: as many data inputs as possible; time: only where it shortens the step"
                : "time: the least estimated step time; count: as many variables as possible (the paper's)")
      .choices({"time", "count"});
  table
      .add(&o.search.algorithm, "algorithm",
           "auto runs greedy, enumerate and, where that is cut short, cost; rainbow learns on the model (needs "
           "LibTorch)")
      .choices({"auto", "rainbow", "greedy", "enumerate", "cost"});
  if (!data) {
    table
        .add(&o.reshard, "reshard",
             "auto: with --algorithm auto also cut linkage groups where gathering a tensor costs less than keeping a "
             "group whole; off: never")
        .choices({"auto", "off"});
  }
  table.add(&o.effort, "effort", "how much to search; counted, so that every machine finds the same plan")
      .choices(effort_names());
  table.add_seconds(&o.search.limits.budget_s, "budget", "also stop searching after this time with the best so far")
      .range(0.001, 86400);
  table.add(&o.search.limits.seed, "seed", "of what is random (rainbow, cost)").metavar("N");
  table.add(&o.search.policy, "policy", "rainbow: start from this policy instead of from scratch")
      .reads_file()
      .metavar("FILE")
      .advanced();

  table.group("Output");
  table.add(&o.output, "output", "write the plan (automap.plan/1 JSON)").writes_file().shorthand('o').metavar("FILE");
  table.add(&o.hlo, "emit-hlo", "write the module with sharding annotations, as XLA runs it")
      .writes_file()
      .metavar("FILE");
  table.add(&o.jax, "emit-jax", "write a Python file with a PartitionSpec per tensor").writes_file().metavar("FILE");
  table.epilog(
      "Exit codes: 0 a plan, 2 wrong usage or cluster file, 3 bad input or output, 4 nothing fits into the memory.");
  table.add_common(&o.json);
}

int plan_command(int argc, char** argv, bool data) {
  Options options;
  OptionTable table(data ? "search adp" : "search opp",
                    data ? "find which dimension of which data input to split over the devices"
                         : "find which dimension of which trainable variable to split over the devices");
  declare(table, options, data);
  if (!table.parse(argc, argv)) return 0;

  // What is wrong without having seen the model comes first: outputs, cluster, device, limit.
  OutputFiles files(options.json);
  files.add("-o", options.output);
  files.add("--emit-hlo", options.hlo);
  files.add("--emit-jax", options.jax);
  const machine::Cluster cluster = machine::load_cluster(options.cluster);
  partition::shard_links(cluster, options.shards);
  const machine::DeviceModel device = profile::reference_device(options.device, cluster);
  PlanningRequest request;
  request.data = data;
  request.objective =
      options.objective == "time" ? models::PartitionObjective::kTime : models::PartitionObjective::kCount;
  if (options.memory == "on" || (options.memory.empty() && options.objective == "time")) {
    request.fit_device = true;
  } else if (!options.memory.empty() && options.memory != "off") {
    request.memory_limit_bytes = parse_bytes(options.memory, "--memory");
  }
  request.reshard = options.reshard == "auto" && options.search.algorithm == "auto";
  request.search = options.search;
  request.search.limits.units = search_units(*parse_effort(options.effort));
  request.search.rainbow = find_rainbow();

  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_ms = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  LoadedModel loaded = load_sharding_model(options.model, options.shards);
  log_verbose("read and analysed in " + std::to_string(std::lround(elapsed_ms())) +
              " ms: " + std::to_string(loaded.model->flow().size()) + " nodes, " +
              std::to_string(loaded.model->linkage().num_groups()) + " linkage groups");
  // The first Ctrl-C ends learning with the best so far; everything else is quick.
  std::optional<StopToken> stop;
  if (options.search.algorithm == "rainbow") stop.emplace();
  Planned planned = make_plan(loaded.model.get(), device, cluster, request);
  stop.reset();
  PartitionPlan& plan = planned.plan;
  plan.model = loaded.name;
  plan.cluster = cluster.name;
  plan.planning_ms = elapsed_ms();
  auto& provenance = plan.provenance;
  provenance["version"] = version();
  provenance["git"] = git_revision();
  provenance["model_form"] = std::string("HLO ") + hlo::to_string(loaded.module->form);
  provenance["model_sha256"] = loaded.module->sha256;
  provenance["cluster_sha256"] = sha256_hex(to_json_text(cluster));
  provenance["reference_device"] = device.name;
  for (const char* option :
       {"shards", "objective", "algorithm", "seed", "effort", "budget", "memory", "policy", "cluster", "device"}) {
    provenance[std::string("option_") + option] = table.value_of(option);
  }

  const std::string json = to_json_text(plan);
  if (files.wanted("-o")) files.write("-o", json);
  if (files.wanted("--emit-hlo")) files.write("--emit-hlo", emit_hlo(*loaded.model, planned.decided));
  if (files.wanted("--emit-jax")) files.write("--emit-jax", emit_jax(*loaded.model, plan));
  files.prepare();
  if (options.json) {
    print_exact(json);
  } else if (!files.on_standard_output()) {
    if (table.source_of("cluster") == "default") {
      log_info("no --cluster: times are for " + cluster.name + " (" + device.name + ")");
    }
    print(plan_report(*loaded.model, planned));
  }
  files.commit();
  const bool told = !options.json && !files.on_standard_output() && !planned.nothing_split.empty();  // in the report
  for (const std::string& warning : plan.warnings) {
    if (!told || warning.find(planned.nothing_split) == std::string::npos) log_warning(warning);
  }
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

}  // namespace

int opp_command(int argc, char** argv) {
  return plan_command(argc, argv, false);
}
int adp_command(int argc, char** argv) {
  return plan_command(argc, argv, true);
}

}  // namespace automap::search
