// The paper's Table 8 beside our own answers: one model on one cluster with a given number of stages on the grid of 128
// pivots. The plan printed in the paper, the learned planner's and the optimum, each with its cuts, V, the simulated
// step and what its stages are made of, as JSON.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/policy/measure.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/options.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/row.h"
#include "common/pipeline/schedule.h"
#include "infer/input.h"
#include "plan/planners/planner.h"
#include "profile/profile_hlo.h"

namespace automap::bench {
namespace {

using pipeline::Plan;
using pipeline::Problem;

struct Options {
  std::vector<std::string> inputs, policies;
  std::string cluster = "config-c", micro_batches = "8,16,32,64", cuts = "34,66,98", device_cuts = "8,16,24", output;
};

std::vector<int> numbers(const std::string& text, const char* what) {
  std::vector<int> found;
  for (const std::string& part : split(text)) {
    char* end = nullptr;
    const long value = std::strtol(part.c_str(), &end, 10);
    if (*end != '\0' || value < 1 || value > 1'000'000) {
      throw Error(ErrorKind::kUsage, std::string(what) + ": '" + part + "' is no positive number");
    }
    found.push_back(static_cast<int>(value));
  }
  return found;
}

// k of grid point i_k = floor(k n / 128) for every cut; a cut between points gives the last point before it.
Json grid_cuts(const Plan& plan, int num_instructions) {
  Json points = Json::array();
  for (int cut : plan.cuts) {
    int point = 0;
    for (int k = 1; k <= pipeline::kGranularity; ++k) {
      const long long instruction = static_cast<long long>(k) * num_instructions / pipeline::kGranularity;
      if (instruction <= cut) point = k;
    }
    points.push_back(point);
  }
  return points;
}

Json describe_plan(const std::string& name, const Problem& problem, const pipeline::Profile& profile,
                   const Plan& plan) {
  Json document = {{"name", name},
                   {"cuts", plan.cuts},
                   {"grid_cuts", grid_cuts(plan, problem.num_instructions())},
                   {"device_cuts", plan.device_cuts},
                   {"value_ms", pipeline::value_ms(problem, plan)},
                   {"simulated_ms", pipeline::simulate_step_ms(problem, plan)},
                   {"infeasible", pipeline::infeasible_reason(problem, plan)}};
  const pipeline::PipelineTimes times = pipeline::pipeline_times(problem, plan);
  Json stages = Json::array();
  const int count = plan.num_stages();
  for (int s = 0; s < count; ++s) {
    const std::size_t i = static_cast<std::size_t>(s);
    const int p0 = s == 0 ? 0 : plan.cuts[i - 1], p1 = s + 1 == count ? problem.num_instructions() : plan.cuts[i];
    const int d0 = s == 0 ? 0 : plan.device_cuts[i - 1];
    const int d1 = s + 1 == count ? problem.num_devices() : plan.device_cuts[i];
    const int kept = pipeline::in_flight(plan.schedule, count, s + 1, problem.micro_batches());
    const auto layer = [&](int instruction) {
      return profile.layer.empty() ? std::string() : profile.layer[static_cast<std::size_t>(instruction - 1)];
    };
    stages.push_back({{"instructions", p1 - p0},
                      {"first_layer", layer(p0 + 1)},
                      {"last_layer", layer(p1)},
                      {"devices", d1 - d0},
                      {"compute_ms", times.forward_ms[i] + times.backward_ms[i]},
                      {"transfer_ms", s + 1 == count ? 0.0 : times.transfer_ms[i]},
                      {"allreduce_ms", times.allreduce_ms[i]},
                      {"weight_bytes", problem.weight_bytes(p0, p1)},
                      {"memory_bytes", problem.memory_bytes(p0, p1, problem.group(d0, d1), kept)}});
  }
  document["stages"] = std::move(stages);
  document["limits"] = Json::array();
  for (const planners::PlanLimit& limit : planners::plan_limits(problem, plan))
    document["limits"].push_back(limit.text);
  return document;
}

int bench_main(int argc, char** argv) {
  Options options;
  OptionTable table("bench-policy_table8", "the paper's one-shot plan beside the learned and the optimal one");
  table.example("bench-policy_table8 fixtures/hlo/bert48.hlo.gz --policy a.policy", "the paper's first model");
  table.positional(&options.inputs, "INPUT", "models: HLO or profiles").reads_file().required();
  table.add(&options.policies, "policy", "a policy file (repeatable)").reads_file().metavar("FILE");
  table.add(&options.cluster, "cluster", "preset or file").reads_file();
  table.add(&options.micro_batches, "micro-batches", "micro-batches per step").no_file().metavar("M,M");
  table.add(&options.cuts, "cuts", "grid points of the plan to compare with, of 128").no_file().metavar("K,K,K");
  table.add(&options.device_cuts, "device-cuts", "its device cuts").no_file().metavar("D,D,D");
  table.add(&options.output, "output", "the document; default: standard output")
      .writes_file()
      .shorthand('o')
      .metavar("FILE");
  table.add_common(nullptr);
  if (!table.parse(argc, argv)) return 0;

  const std::vector<int> points = numbers(options.cuts, "cuts"), devices = numbers(options.device_cuts, "device-cuts");
  if (points.size() != devices.size() || points.empty()) {
    throw Error(ErrorKind::kUsage, "as many --cuts as --device-cuts are needed, at least one");
  }
  const std::vector<Candidate> candidates = load_policies(options.policies);
  const machine::Cluster cluster = machine::load_cluster(options.cluster);
  Json head = describe(candidates, {});
  head.erase("methods");
  head["schema"] = "automap.bench.policy-table8/1";
  head["cluster"] = cluster.name;
  std::vector<Json> problems;
  for (const std::string& path : options.inputs) {
    infer::InputOptions input;
    input.path = path;
    const pipeline::Profile profile = infer::read_input(input, cluster).profile;
    for (int micro_batches : numbers(options.micro_batches, "micro-batches")) {
      pipeline::ProblemOptions problem_options;
      problem_options.micro_batches = micro_batches;
      const Problem problem(profile, cluster, problem_options);
      const int stages = static_cast<int>(points.size()) + 1;
      Json plans = Json::array();
      const auto add = [&](const std::string& name, const Plan& plan) {
        plans.push_back(describe_plan(name, problem, profile, plan));
      };
      Plan printed;
      for (int k : points) {
        printed.cuts.push_back(
            static_cast<int>(static_cast<long long>(k) * problem.num_instructions() / pipeline::kGranularity));
      }
      printed.device_cuts = devices;
      if (!pipeline::valid_structure(problem, printed)) {
        throw Error(ErrorKind::kUsage, "--cuts and --device-cuts are no plan of " + path + " on " + cluster.name,
                    "cuts must rise within 1-127, device cuts within 1-" + std::to_string(problem.num_devices() - 1));
      }
      add("paper", printed);
      Subject subject;
      subject.problem = &problem;
      subject.stages = stages;
      subject.pivots = pipeline::grid_pivots(problem.num_instructions(), pipeline::kGranularity);
      const std::vector<Contender> wanted =
          contenders(candidates, {"policy greedy", "policy beam 16", "policy beam 16 + corridor", "uniform"});
      const std::vector<Outcome> outcomes = run_all(subject, candidates, wanted);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (outcomes[i].value_ms == kInfinity) continue;
        std::string name = wanted[i].method->name;
        if (candidates.size() > 1 && wanted[i].candidate >= 0) {
          name += " [" + std::to_string(wanted[i].candidate + 1) + "]";
        }
        add(name, outcomes[i].plan);
      }
      pipeline::ExactOptions exact;
      exact.min_stages = exact.max_stages = stages;
      exact.pivots = subject.pivots;
      const pipeline::ExactResult result = pipeline::solve_exact(problem, exact);
      Json optimum;
      if (const pipeline::ExactStageResult* best = result.best()) {
        add("optimum", best->plans.front());
        optimum = best->value_ms.front();
      }
      problems.push_back({{"model", profile::model_name(path, "model")},
                          {"instructions", problem.num_instructions()},
                          {"devices", problem.num_devices()},
                          {"micro_batches", micro_batches},
                          {"stages", stages},
                          {"optimum_ms", optimum},
                          {"plans", std::move(plans)}});
    }
  }
  write_document(options.output.empty() ? "-" : options.output, head, problems);
  return 0;
}

}  // namespace
}  // namespace automap::bench

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, automap::bench::bench_main);
}
