#include "plan/systems/other_spaces.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"
#include "plan/partition/partition_search.h"
#include "plan/planners/score.h"
#include "plan/systems/heuristics/planning.h"
#include "plan/systems/heuristics/training_graph.h"
#include "plan/systems/placement/model_workload.h"
#include "plan/systems/placement/planning.h"
#include "plan/systems/soap/memory.h"
#include "plan/systems/soap/operators_at_batch.h"
#include "plan/systems/soap/search.h"
#include "plan/systems/soap/task_graph.h"
#include "profile/module_at_batch.h"
#include "profile/profile_hlo.h"

namespace automap::systems {
namespace {

constexpr const char* kSource = "automap-compare";

// With the memory that plans of ours may use, too, and no more.
machine::Cluster without_reserve(const Question& q) {
  machine::Cluster cluster = q.plan.cluster;
  for (auto& [name, device] : cluster.devices) device.memory_gib *= 1 - q.plan.options.memory_reserve;
  return cluster;
}

// --- FlexFlow ---

// Describes a strategy for people.
std::string strategy_text(const soap::Space& space, const soap::Strategy& strategy) {
  std::set<std::int32_t> devices;
  int split = 0, beyond_samples = 0;
  for (std::size_t i = 0; i < strategy.size(); ++i) {
    devices.insert(strategy[i].devices.begin(), strategy[i].devices.end());
    split += strategy[i].parts() > 1;
    for (std::size_t d = 0; d < strategy[i].degrees.size(); ++d) {
      if (strategy[i].degrees[d] == 1 || space.operators[i].dims[d].kind == soap::DimKind::kSample) continue;
      ++beyond_samples;
      break;
    }
  }
  return std::to_string(split) + " of " + std::to_string(strategy.size()) + " operators split, " +
         std::to_string(beyond_samples) + " of them not by samples alone, on " + std::to_string(devices.size()) +
         " devices";
}

// The number of devices of a strategy that is data parallel and nothing else; 0: it is another one.
int data_parallel_devices(const soap::Space& space, const soap::Strategy& strategy) {
  int devices = 1;
  for (const soap::Config& config : strategy) devices = std::max(devices, config.parts());
  return strategy == soap::data_parallel(space, devices) ? devices : 0;
}

// As a pipeline of one stage, which may not fit. Leaves the answer as it is where our problem does not know so many
// samples, or where the stage cannot be for another reason than memory.
void judge_as_one_stage(const Question& q, int devices, Answer* answer) {
  pipeline::ProblemOptions options = q.plan.options;
  options.micro_batches = 1;
  options.micro_batch_samples = q.batch;
  pipeline::Plan plan;
  plan.schedule = pipeline::Schedule::kAdaptive;
  if (q.batch / devices > pipeline::most_samples(q.plan.profile())) return;
  const planners::ScoredPlan scored =
      planners::score_plan(q.plan.profile(), machine::first_devices(q.plan.cluster, devices), options, plan, kSource);
  if (!scored.infeasible.empty() && scored.missing_bytes <= 0) return;
  answer->judge = Judge::kOurs;
  answer->step_ms = scored.simulated_step_ms;
  answer->fullest_share = scored.fullest_share;
}

// --- Compiler heuristics ---

double fullest_share(const heuristics::WorkGraph& graph, const heuristics::Machine& machine,
                     const heuristics::Devices& devices) {
  const auto loads = heuristics::device_loads(heuristics::hypergraph_of(graph), machine, devices);
  double most = 0;
  for (heuristics::DeviceId d = 0; d < machine.num_devices(); ++d)
    most = std::max(most, loads[static_cast<std::size_t>(d)].memory_bytes / machine.capacity_bytes(d));
  return most;
}

// --- Placement ---

std::string placement_text(const placement::Workload& workload, const placement::Answer& answer) {
  std::set<int> accelerators, cpus;
  for (const int device : answer.placement.device)
    (device < workload.accelerators ? accelerators : cpus).insert(device);
  return std::string(answer.contiguous ? "contiguous" : "not contiguous") + " on " +
         plural(static_cast<long long>(accelerators.size()), "accelerator") +
         (cpus.empty() ? "" : " and " + plural(static_cast<long long>(cpus.size()), "CPU core")) +
         (answer.proven ? ", of " + answer.bound_of + " none is better" : "");
}

placement::Answer placed_by(const placement::Workload& workload, const char* algorithm, double seconds) {
  placement::Request request;
  request.algorithm = algorithm;
  WorkLimits limits;
  limits.seconds = seconds;
  Work work(limits);
  return placement::find_placement(workload, request, &work);
}

double fullest_share(const placement::Workload& workload, const placement::Answer& answer) {
  double most = 0;
  const std::vector<placement::DeviceLoad> loads = placement::device_loads(workload, answer.placement);
  for (int d = 0; d < workload.accelerators; ++d)
    most = std::max(most, loads[static_cast<std::size_t>(d)].bytes / workload.memory_bytes);
  return most;
}

Answer of_workload(const Question& q, const char* algorithm) {
  const placement::Answer found = placed_by(*q.workload, algorithm, q.plan.request.time_limit_s);
  Answer answer;
  answer.found = true;
  answer.judge = Judge::kLargestLoad;
  answer.plan = placement_text(*q.workload, found);
  answer.own_ms = answer.step_ms = found.value_ms;
  answer.fullest_share = fullest_share(*q.workload, found);
  return answer;
}

// The layers of a micro-batch of `size` placed, and the pipeline that they make.
void consider(const Question& q, const planners::StepSize& size, const char* algorithm, Answer* best) {
  const placement::ModelWorkload layers =
      placement::layer_workload(q.plan.profile(), placement::machine_of(without_reserve(q)), size.samples);
  placement::check_workload(layers.workload, kSource);
  const placement::Answer found = placed_by(layers.workload, algorithm, q.plan.request.time_limit_s);
  std::string why;
  std::optional<pipeline::Plan> plan = placement::pipeline_plan(layers, found.placement, &why);
  if (!plan) {
    if (!best->found) best->why_not = "its placement is no pipeline: " + why;
    return;
  }
  plan->schedule = pipeline::Schedule::kAdaptive;
  pipeline::ProblemOptions options = q.plan.options;
  // Its devices may hold parts without variables, or with hardly any work.
  options.allow_empty_stages = options.allow_idle_stages = true;
  options.micro_batches = size.micro_batches;
  options.micro_batch_samples = size.samples;
  const planners::ScoredPlan scored = planners::score_plan(
      q.plan.profile(), machine::first_devices(q.plan.cluster, plan->num_stages()), options, *plan, kSource);
  if (!scored.infeasible.empty()) {
    if (!best->found) best->why_not = "its placement does not run: " + scored.infeasible;
    return;
  }
  if (best->found && best->step_ms <= scored.simulated_step_ms) return;
  best->found = true;
  best->judge = Judge::kOurs;
  best->plan = plan_text(scored.placed);
  best->own_ms = found.value_ms;
  best->step_ms = scored.simulated_step_ms;
  best->fullest_share = scored.fullest_share;
}

Answer place_by(const Question& q, const char* algorithm) {
  if (q.workload != nullptr) return of_workload(q, algorithm);
  Answer best;
  best.why_not = "no split of the batch has times";
  for (const planners::StepSize& size : planners::step_sizes(q.plan.step, q.plan.profile(), q.plan.options.replicas)) {
    if (size.samples > pipeline::most_samples(q.plan.profile())) continue;
    try {
      consider(q, size, algorithm, &best);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInfeasible) throw;  // layers that no device takes
      if (!best.found) best.why_not = error.what();
    }
  }
  return best;
}

}  // namespace

Answer plan_flexflow(const Question& q) {
  const machine::DeviceModel device = profile::reference_device("", q.plan.cluster);
  soap::ModelSpace model;
  try {
    model = soap::operators_at_batch(q.module->graph, device, std::llround(q.batch));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData) throw;
    Answer answer;
    answer.why_not = error.what();
    return answer;
  }
  const soap::MachineLinks links(without_reserve(q));
  const soap::Proposals proposals(model.space, links.num_devices(), soap::Placement::kRange);
  Rng rng(0, 0, 0);
  const std::vector<soap::Start> starts = {{"data parallel", soap::data_parallel(model.space, links.num_devices())},
                                           {"expert", soap::expert(model.space, links.num_devices())},
                                           {"random", soap::random_start(model.space, proposals, &rng)}};
  WorkLimits limits;
  limits.units = partition::search_units(Effort::kNormal);
  limits.seconds = q.plan.request.time_limit_s;
  Work work(limits);
  soap::SearchOptions options;
  options.fit = true;
  const soap::SearchResult found = soap::search(model.space, links, proposals, starts, options, work);
  Answer answer;
  answer.found = true;
  answer.plan = strategy_text(model.space, found.strategy);
  answer.own_ms = answer.step_ms = found.step_ms;
  answer.judge = Judge::kOwnSimulator;
  answer.fullest_share = soap::fullest_of(soap::memory_of(model.space, found.strategy, links), links).share();
  const int devices = data_parallel_devices(model.space, found.strategy);
  if (devices > 0) judge_as_one_stage(q, devices, &answer);
  return answer;
}

Answer plan_heuristics(const Question& q) {
  Answer answer;
  heuristics::TrainingGraph model;
  try {
    const profile::ModuleAtBatch module(q.module->graph, std::llround(q.batch));
    model = heuristics::training_graph_of(module.graph(), module.step(), profile::reference_device("", q.plan.cluster));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData) throw;
    answer.why_not = error.what();
    return answer;
  }
  const heuristics::Machine machine(without_reserve(q));
  const heuristics::Answer found = heuristics::find_division(model.graph, machine, {});
  const heuristics::Candidate* shortest = nullptr;
  for (const heuristics::Candidate& candidate : found.candidates) {
    if (candidate.fits && (shortest == nullptr || candidate.makespan_ms < shortest->makespan_ms)) shortest = &candidate;
  }
  answer.found = true;
  answer.judge = Judge::kOwnSimulator;
  answer.plan = shortest->name + ": " + std::to_string(model.graph.size()) + " kernels on " +
                plural(shortest->devices_used, "device");
  answer.own_ms = shortest->cost.load_ms;
  answer.step_ms = shortest->makespan_ms;
  answer.fullest_share = fullest_share(model.graph, machine, shortest->devices);
  return answer;
}

Answer plan_tarnawski(const Question& q) {
  return place_by(q, "auto");
}
Answer plan_orders(const Question& q) {
  return place_by(q, "dpl");
}
Answer plan_greedy(const Question& q) {
  return place_by(q, "greedy");
}
Answer plan_local_search(const Question& q) {
  return place_by(q, "local-search");
}
Answer plan_scotch(const Question& q) {
  try {
    return place_by(q, "scotch");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;  // another program, whose failure is its own
    Answer answer;
    answer.why_not = error.what();
    answer.why_not.resize(std::min(answer.why_not.find('\n'), answer.why_not.size()));  // without what it wrote
    return answer;
  }
}
Answer plan_merged_chain(const Question& q) {
  return place_by(q, "pipedream");
}

}  // namespace automap::systems
