#include "search/plan_options.h"

#include <algorithm>
#include <charconv>

#include "common/base/error.h"
#include "common/base/join.h"
#include "plan/partition/rainbow.h"

namespace automap::search {

using namespace partition;

namespace {

// A number from 1 to kMostShards; 0: none.
int positive(const std::string& text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size() && value >= 1 && value <= kMostShards ? value : 0;
}

}  // namespace

void PlanOptions::declare(OptionTable* table, bool data) {
  const std::string command = std::string("automap-search ") + (data ? "adp" : "opp");
  if (data) {
    table->example(command + " fixtures/hlo/t5_6_6.hlo.gz --shards 8", "the batch over 8 devices, and what that costs");
    table->example(
        command + " fixtures/hlo/vgg19.hlo.gz --shards 4 --cluster h100-1x8 -o data.json --emit-jax specs.py",
        "store the plan, and write PartitionSpecs for jax.jit");
    table->example(command + " fixtures/hlo/gpt2.hlo.gz --json", "the plan as JSON on standard output");
  } else {
    table->example(command + " fixtures/hlo/t5_6_6.hlo.gz --shards 8 -o plan.json --emit-hlo sharded.hlo",
                   "the fastest splitting over 8 devices; sharded.hlo is for XLA");
    table->example(command + " fixtures/hlo/t5_6_6.hlo.gz --shards 8 --objective count",
                   "split as many variables as possible, as the paper does");
    table->example(command + " fixtures/hlo/tiny_mlp.hlo --shards 4 --cluster h100-1x8 --json",
                   "the plan as JSON on standard output");
    table->example(command + " fixtures/hlo/gpt2.hlo.gz --mesh data=4,model=2 --emit-hlo sharded.hlo",
                   "data parallel over 4 replicas of 2 devices each");
  }
  model.declare(table);

  pricing.declare(table);
  cost.declare(table);
  table
      ->add(&shards, "shards",
            data ? "devices to split over"
                 : "devices to split over; auto: the fastest mesh of all of the cluster's or fewer")
      .no_file()
      .metavar(data ? "N" : "N|auto")
      .traits(kInProvenance);
  if (!data) {
    table->add(&mesh, "mesh", "two axes: the batch over data devices, variables over model devices in every replica")
        .no_file()
        .metavar("data=D,model=T")
        .shown_default("one axis of --shards")
        .traits(kInProvenance);
    table
        ->add(
            &zero, "zero",
            "of a mesh, what lies in parts over the data axis: 0 nothing, 1 and 2 optimizer slots and gradients, 3 the "
            "variables, too (FSDP); auto: the fastest that fits")
        .choices({"auto", "0", "1", "2", "3"})
        .traits(kInProvenance);
  }
  table
      ->add(
          &memory, "memory",
          "on: only plans that fit into the smallest device, less a tenth for the framework; off: any; or a limit per "
          "device such as 12GiB")
      .no_file()
      .metavar("on|off|SIZE")
      .shown_default("on for time, off for count")
      .traits(kInProvenance);

  table
      ->add_flag(&keep_shardings, "keep-shardings",
                 "take the module's own shardings (sharding=, Sharding marks, Shardy's) as given, decide the rest, and "
                 "name the reshards that they force")
      .traits(kInProvenance);

  table->group("Search");
  objective = data ? "count" : "time";
  table
      ->add(&objective, "objective",
            data ? "count: as many data inputs as possible; time: only where it shortens the step"
                 : "time: the least estimated step time; count: as many variables as possible (the paper's)")
      .choices({"time", "count"})
      .traits(kInProvenance);
  table
      ->add(&search.algorithm, "algorithm",
            "auto runs greedy, enumerate and, where that is cut short, cost; rainbow learns on the model (needs "
            "LibTorch)")
      .choices({"auto", "rainbow", "greedy", "enumerate", "cost"})
      .traits(kInProvenance);
  if (!data) {
    table
        ->add(&reshard, "reshard",
              "auto: with --algorithm auto also cut linkage groups where gathering a tensor costs less than keeping a "
              "group whole; off: never")
        .choices({"auto", "off"})
        .traits(kInProvenance);
    table
        ->add(&sequence_parallel, "sequence-parallel",
              "auto: what --reshard cuts may also be split along the sequence between the products that weights split "
              "(norms, residuals, dropout): reduce-scatters and all-gathers instead of all-reduces; off: never")
        .choices({"auto", "off"})
        .traits(kInProvenance);
    table
        ->add(&sums, "sums",
              "combined: partial sums of one group are added up before they are reduced (q, k and v at once), counted "
              "and "
              "written so; apart: each is reduced where it arises, as XLA does by itself")
        .choices({"apart", "combined"})
        .traits(kInProvenance);
  }
  table->add(&effort, "effort", "how much to search; counted, so that every machine finds the same plan")
      .choices(effort_names())
      .traits(kInProvenance);
  table->add_seconds(&search.limits.budget_s, "budget", "also stop searching after this time with the best so far")
      .range(0.001, 86400)
      .traits(kInProvenance);
  table->add(&search.limits.seed, "seed", "of what is random (rainbow, cost)").metavar("N").traits(kInProvenance);
  table->add(&search.policy, "policy", "rainbow: start from this policy instead of from scratch")
      .reads_file()
      .metavar("FILE")
      .advanced()
      .traits(kInProvenance);

  table->group("Output");
  table->add(&output, "output", "write the plan (automap.plan/1 JSON)").writes_file().shorthand('o').metavar("FILE");
  emit.declare(table);
  table->epilog(
      "Exit codes: 0 a plan, 2 wrong usage or cluster file, 3 bad input or output, 4 nothing fits into the memory.");
  table->add_common(&json);
}

int PlanOptions::num_shards() const {
  if (shards == "auto") return 0;
  const int number = positive(shards);
  if (number == 0) {
    throw Error(ErrorKind::kUsage, "--shards: found '" + shards + "', expected a whole number from 1 to " +
                                       std::to_string(kMostShards) + ", or auto (automap-search opp)");
  }
  return number;
}

std::optional<MeshSizes> PlanOptions::mesh_sizes() const {
  if (mesh.empty()) return std::nullopt;
  const auto wrong = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, "--mesh: found '" + mesh + "': " + why,
                "give both axes and their devices, such as data=4,model=2");
  };
  MeshSizes out;
  bool seen_data = false, seen_model = false;
  for (const std::string& part : split_at_commas(mesh)) {
    const std::string name = part.substr(0, part.find('='));
    const int number = part.find('=') == std::string::npos ? 0 : positive(part.substr(part.find('=') + 1));
    if (name != "data" && name != "model") wrong("'" + name + "' is no axis; there are data and model");
    if (number == 0) wrong("'" + part + "' does not say how many devices");
    bool& seen = name == "data" ? seen_data : seen_model;
    if (seen) wrong("axis " + name + " stands there twice");
    seen = true;
    (name == "data" ? out.data : out.model) = number;
  }
  return out;
}

std::optional<Zero> PlanOptions::zero_level() const {
  if (zero == "auto") return std::nullopt;
  return zero == "0" ? Zero::kOff : zero == "3" ? Zero::kFull : Zero::kOptimizer;
}

PlanningRequest PlanOptions::request(bool data, bool objective_asked) const {
  PlanningRequest request;
  request.data = data;
  request.objective = objective == "time" ? models::PartitionObjective::kTime : models::PartitionObjective::kCount;
  // Who asks for the count has it, whatever it takes.
  request.none_slower = data && !objective_asked;
  if (memory == "on" || (memory.empty() && objective == "time")) {
    request.fit_device = true;
  } else if (!memory.empty() && memory != "off") {
    request.memory_limit_bytes = parse_bytes(memory, "--memory");
  }
  request.keep_shardings = keep_shardings;
  request.overlap = pricing.overlap;
  request.reshard = reshard == "auto" && search.algorithm == "auto" && objective == "time";
  request.sequence_parallel = sequence_parallel == "auto";
  request.search = search;
  request.search.limits.units = search_units(*parse_effort(effort));
  request.search.rainbow = find_rainbow();
  return request;
}

}  // namespace automap::search
