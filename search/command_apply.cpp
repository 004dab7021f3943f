// automap-search apply.
#include <nlohmann/json.hpp>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "plan/emit/emit.h"
#include "plan/partition/partition_plan.h"
#include "search/commands.h"
#include "search/report.h"

namespace automap::search {

using namespace partition;
using namespace emit;

int apply_command(int argc, char** argv) {
  ModelOptions model;
  std::string plan_path, hlo, jax;
  bool json = false;
  OptionTable table("search apply", "write a stored decision, by anyone, onto a module");
  table.example("automap-search apply fixtures/hlo/t5_6_6.hlo.gz --plan plan.json --emit-hlo sharded.hlo",
                "the module annotated for XLA");
  table.example("automap-search apply fixtures/hlo/t5_6_6.hlo.gz --plan plan.json --emit-jax specs.py",
                "PartitionSpecs for jax.jit");
  table.example("automap-search apply fixtures/hlo/t5_6_6.hlo.gz --plan plan.json --emit-hlo - | grep sharding=",
                "just look at what is annotated");
  model.declare(&table);
  table
      .add(&plan_path, "plan",
           "the decision: automap.plan/1 JSON, of which schema, kind, shards and partition are enough")
      .reads_file()
      .metavar("FILE")
      .required();
  table.group("Output");
  table.add(&hlo, "emit-hlo", "write the module with sharding annotations, as XLA runs it")
      .writes_file()
      .metavar("FILE");
  table.add(&jax, "emit-jax", "write a Python file with a PartitionSpec per tensor").writes_file().metavar("FILE");
  table.epilog("Exit codes: 0 done, 2 wrong usage, 3 bad input or output, 4 the decision contradicts itself.");
  table.add_common(&json);
  if (!table.parse(argc, argv)) return 0;
  if (model.path == "-" && plan_path == "-") {
    throw Error(ErrorKind::kUsage, "MODEL and --plan both want standard input", "give one of them a file");
  }
  OutputFiles files(json);
  files.add("--emit-hlo", hlo);
  files.add("--emit-jax", jax);
  if (!files.any()) {
    throw Error(ErrorKind::kUsage, "nothing to write: neither --emit-hlo nor --emit-jax is given",
                "automap-search explain says what the decision leads to");
  }

  PartitionPlan plan = load_partition_plan(plan_path);
  LoadedModel loaded = load_sharding_model(model, plan.shards);
  std::vector<std::string> warnings;
  const sharding::Propagation decided = apply_plan(loaded.model.get(), plan, loaded.module->sha256, &warnings);
  describe_decision(*loaded.model, decided, &plan);
  if (files.wanted("--emit-hlo")) files.write("--emit-hlo", emit_hlo(*loaded.model, decided));
  if (files.wanted("--emit-jax")) files.write("--emit-jax", emit_jax(*loaded.model, plan));
  files.prepare();
  if (json) {
    nlohmann::ordered_json d = {{"schema", "automap.applied/1"},
                                {"model", loaded.name},
                                {"kind", plan.kind},
                                {"shards", plan.shards},
                                {"decided", plan.decided.size()},
                                {"partitioned", plan.partitioned},
                                {"partial_sums", plan.partial_sums},
                                {"all_reduces", plan.all_reduces},
                                {"all_reduce_bytes", plan.all_reduce_bytes},
                                {"all_gathers", plan.all_gathers},
                                {"all_gather_bytes", plan.all_gather_bytes},
                                {"collectives", nlohmann::ordered_json::parse(to_json_text(plan))["collectives"]},
                                {"warnings", warnings}};
    print_exact(json_text(d));
  } else if (!files.on_standard_output()) {
    print(printable(loaded.name) + ": " + decision_line(*loaded.model, decided, plan) + "\n");
  }
  files.commit();
  for (const std::string& warning : warnings) log_warning(warning);
  return 0;
}

}  // namespace automap::search
