#include "plan/systems/systems.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/suggest.h"
#include "common/base/text_table.h"
#include "common/pipeline/placed_plan.h"
#include "plan/planners/answer.h"
#include "plan/planners/step_choice.h"
#include "plan/planners/sweep.h"
#include "plan/systems/other_spaces.h"
#include "plan/systems/rivals/aceso.h"
#include "plan/systems/rivals/alpa.h"
#include "plan/systems/rivals/dapple.h"
#include "plan/systems/rivals/galvatron.h"
#include "plan/systems/rivals/pipedream.h"
#include "plan/systems/rivals/published.h"

namespace automap::systems {
namespace {

constexpr const char* kNothingFits = "no plan that it considers fits in memory and divides the batch";

void judge(const pipeline::PlacedPlan& placed, Answer* answer) {
  answer->found = true;
  answer->plan = plan_text(placed);
  answer->judge = Judge::kOurs;
  answer->fullest_share = fullest_share(placed);
}

Answer answer_of(const planners::Candidate& plan) {
  Answer answer;
  if (!plan.found()) {
    answer.why_not = plan.why.empty() ? kNothingFits : plan.why;
    return answer;
  }
  judge(plan.placed, &answer);
  answer.own_ms = plan.step_ms;
  answer.step_ms = plan.simulated_step_ms;
  return answer;
}

Answer answer_of(const rivals::RivalPlan& plan) {
  Answer answer;
  if (!plan.problem) {
    answer.why_not = kNothingFits;
    return answer;
  }
  judge(place(*plan.problem, plan.plan), &answer);
  answer.own_ms = plan.objective_ms;
  answer.step_ms = plan.simulated_step_ms;
  return answer;
}

Answer plan_ours(const Question& q) {
  planners::Question question = q.plan;
  const planners::Answer found = planners::answer(question, rivals::all_kinds());
  Answer answer = answer_of(found.one_width);
  if (found.bounds.simulated_ms > 0) answer.simulated_bound_ms = found.bounds.simulated_ms;
  return answer;
}

// One of our planners that stands for planning by hand.
Answer plan_by(const Question& q, planners::PlannerKind kind) {
  planners::Question question = q.plan;
  question.request.planner = kind;
  question.request.lower_bound = false;
  return answer_of(planners::candidate_of("", planners::plan_step(question)));
}

Answer plan_data_parallel(const Question& q) {
  return plan_by(q, planners::PlannerKind::kDataParallel);
}
Answer plan_gpipe(const Question& q) {
  return plan_by(q, planners::PlannerKind::kUniform);
}

Answer plan_megatron(const Question& q) {
  Answer answer;
  planners::SweepRequest request;
  request.max_stages = q.plan.request.max_stages;
  const planners::Sweep sweep = sweep_layouts(q.plan, request);
  const planners::SweptLayout& best = sweep.layouts.front();
  if (best.missing_bytes > 0) {
    answer.why_not = "no even grid fits: " + best.layout.text() + " lacks " + format_bytes(best.missing_bytes) +
                     " on each device of stage " + std::to_string(best.missing_stage);
    return answer;
  }
  answer.found = true;
  answer.plan = best.layout.text();
  answer.step_ms = best.simulated_step_ms;
  answer.fullest_share = best.fullest_share;
  return answer;
}

Answer plan_rival(const Question& q, rivals::Planner (*planner)(const pipeline::Profile& profile, int max_stages)) {
  return answer_of(rivals::best_over_splits(q.plan, {planner(q.plan.profile(), q.plan.request.max_stages)}));
}
Answer plan_pipedream(const Question& q) {
  return plan_rival(q, rivals::pipedream);
}
Answer plan_dapple(const Question& q) {
  return plan_rival(q, rivals::dapple);
}
Answer plan_alpa(const Question& q) {
  return plan_rival(q, rivals::alpa);
}
Answer plan_galvatron(const Question& q) {
  return plan_rival(q, rivals::galvatron);
}
Answer plan_aceso(const Question& q) {
  return plan_rival(q, rivals::aceso);
}

// ", ZeRO 3, recomputed"; of stages that differ, of each.
std::string variants_text(const pipeline::PlacedPlan& placed) {
  std::vector<std::string> texts;
  for (const pipeline::PlacedStage& stage : placed.stages) {
    const pipeline::StageVariant& variant = stage.problem->variant(stage.variant);
    const bool sharded = variant.zero > 0 && stage.d1 - stage.d0 > 1;
    texts.push_back(std::string(sharded ? "ZeRO " + std::to_string(variant.zero) : "") +
                    (sharded && variant.recompute ? ", " : "") + (variant.recompute ? "recomputed" : ""));
  }
  const bool alike = std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts.front(); });
  if (alike) return texts.front().empty() ? "" : ", " + texts.front();
  for (std::string& text : texts) {
    if (text.empty()) text = "plain";
  }
  return ", stages " + join(texts, "; ");
}

}  // namespace

std::string plan_text(const pipeline::PlacedPlan& placed) {
  std::vector<std::string> devices;
  for (const pipeline::PlacedStage& stage : placed.stages) {
    const int replicas = stage.d1 - stage.d0;
    devices.push_back(stage.width() == 1 ? std::to_string(replicas)
                                         : std::to_string(replicas) + "x" + std::to_string(stage.width()));
  }
  const bool equal = std::all_of(devices.begin(), devices.end(), [&](const auto& d) { return d == devices.front(); });
  const pipeline::Problem& problem = placed.problem();
  const std::string on = equal ? " of " + devices.front() + (devices.front() == "1" ? " device" : " devices")
                               : " on " + join(devices) + " devices";
  return plural(placed.num_stages(), "stage") + on + ", " + std::to_string(problem.micro_batches()) +
         (problem.micro_batches() == 1 ? " micro-batch of " : " micro-batches of ") +
         format_count(std::llround(problem.micro_batch_samples())) + variants_text(placed);
}

const std::vector<System>& all_systems() {
  using Of = System::Of;
  // Tensor parallelism at one width is asked of all that have pipelines, whether the paper has it or not.
  constexpr const char* kStages = "a pipeline's cuts, devices and replicas; one width";
  static const std::vector<System> systems = {
      {"automap", "AutoMap", "this program", "V, the closed form of the step",
       "a pipeline's cuts, devices, replicas, widths and variants of stages",
       "stages of different widths, which automap-infer looks at beside it", plan_ours},
      {"data-parallel", "data parallel", "everybody's first try", "V", "replicas; one width", "stages",
       plan_data_parallel},
      {"gpipe", "GPipe (equal stages)", "Huang et al., NeurIPS 2019", "V", "even pipelines",
       "stages of different sizes: equal runs of instructions on groups as equal as whole samples allow", plan_gpipe},
      {"megatron", "Megatron grid", "Narayanan et al., SC 2021", "", "even grids of data, tensor and pipeline",
       "stages of different sizes; fewer devices", plan_megatron},
      {"pipedream", "PipeDream", "Narayanan et al., SOSP 2019", "slowest stage or transfer of one micro-batch", kStages,
       "the filling and draining of a synchronous step; fewer devices", plan_pipedream},
      {"dapple", "DAPPLE", "Fan et al., PPoPP 2021", "L = T_w + T_s + T_e of a pivot stage", kStages,
       "plans of three and more stages that are not the most even ones; fewer devices", plan_dapple},
      {"alpa", "Alpa", "Zheng et al., OSDI 2022", "sum of stages + (M - 1) times the longest",
       "a pipeline of meshes, operators split inside",
       "transfers between stages in its objective; stages of different widths; fewer devices", plan_alpa},
      {"galvatron", "Galvatron/Piper", "Miao et al., VLDB 2023; Tarnawski et al., NeurIPS 2021",
       "sum of stages + (M - 1) times the longest, transfers counted", "equal groups, a variant per stage",
       "groups of different sizes; fewer devices", plan_galvatron},
      {"aceso", "Aceso", "Liu et al., EuroSys 2024", "sum of stages + (M - 1) times the longest, transfers counted",
       "a pipeline's cuts, devices, replicas and recomputation", "a proof; fewer devices", plan_aceso},
      {"flexflow", "FlexFlow", "Jia, Zaharia, Aiken, SysML 2019", "the step of its task graph, simulated",
       "every operator split by samples, attributes and parameters, on devices of its own",
       "micro-batches: the whole batch at once; recomputation, ZeRO; what is not data parallel alone is no pipeline of "
       "ours",
       plan_flexflow, Of::kModules},
      {"heuristics", "compiler heuristics", "Tavarageri et al., arXiv 1906.08168 (the design is ours)",
       "largest load of a device", "any kernel on any device",
       "kernels in parts, replicas; micro-batches: the whole batch at once; recomputation", plan_heuristics,
       Of::kModules},
      {"tarnawski", "Tarnawski et al.", "NeurIPS 2020", "largest load of a device per micro-batch",
       "any node on any device; of a model layers on single devices",
       "replicas; a step's filling and draining; what is "
       "in flight; where servers end",
       plan_tarnawski, Of::kBoth},
      {"placement-orders", "orders (DPL)", "Tarnawski et al., NeurIPS 2020", "largest load of a device",
       "runs along orders of the graph", "what no order has in one run", plan_orders, Of::kWorkloads},
      {"placement-greedy", "greedy", "Tarnawski et al., NeurIPS 2020", "fills memory in order", "runs along one order",
       "times", plan_greedy, Of::kWorkloads},
      {"placement-local", "local search", "Tarnawski et al., NeurIPS 2020", "largest load of a device",
       "any node on any device", "a proof; contiguity", plan_local_search, Of::kWorkloads},
      {"placement-scotch", "Scotch", "Tarnawski et al., NeurIPS 2020", "transfers between even parts",
       "any node on any accelerator", "memory, transfers per device; CPU cores", plan_scotch, Of::kWorkloads},
      {"placement-chain", "chain (PipeDream)", "Narayanan et al., SOSP 2019", "largest load of a device",
       "runs of what does not branch", "cuts between branches", plan_merged_chain, Of::kWorkloads},
  };
  return systems;
}

const char* to_string(Judge judge) {
  switch (judge) {
    case Judge::kOurs: return "our simulation";
    case Judge::kOwnSimulator: return "its own simulator";
    case Judge::kLargestLoad: return "the largest load";
  }
  return "";
}

std::vector<const System*> systems_of(std::string_view names, bool workload) {
  std::vector<const System*> chosen;
  std::vector<std::string> keys;
  for (const System& system : all_systems()) {
    keys.emplace_back(system.key);
    if (names == "all" && (workload || system.of != System::Of::kWorkloads)) chosen.push_back(&system);
  }
  if (names == "all") return chosen;
  for (const std::string& name : split_at_commas(names)) {
    const auto found = std::find(keys.begin(), keys.end(), name);
    if (found == keys.end()) {
      const std::string near = closest_name(name, keys);
      throw Error(ErrorKind::kUsage, "--systems: no system is called '" + name + "'",
                  near.empty() ? "all, or of: " + join(keys) : "did you mean " + near + "?");
    }
    const System* system = &all_systems()[static_cast<std::size_t>(found - keys.begin())];
    if (std::find(chosen.begin(), chosen.end(), system) == chosen.end()) chosen.push_back(system);
  }
  return chosen;
}

namespace {

// Why a system has nothing to say about what it is asked; empty: it has.
std::string not_about(const System& system, const Question& question) {
  using Of = System::Of;
  if (question.workload != nullptr) {
    if (system.places_nodes()) return "";
    return "a workload for placement says nothing of samples, variables and links";
  }
  if (system.of == Of::kModules && question.module == nullptr) {
    return "a profile has no operators; give it the HLO";
  }
  return "";
}

}  // namespace

Answer ask(const System& system, const Question& question) {
  const auto start = std::chrono::steady_clock::now();
  Answer answer;
  answer.why_not = not_about(system, question);
  answer.asked = answer.why_not.empty();
  if (!answer.asked) return answer;
  try {
    answer = system.plan(question);
  } catch (const Error& error) {
    // No split of the batch, or no grid, that it could take.
    if (error.kind() != ErrorKind::kUsage && error.kind() != ErrorKind::kInfeasible) throw;
    answer.why_not = error.what();
    if (!error.hint().empty()) answer.why_not += " (" + error.hint() + ")";
  }
  answer.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return answer;
}

}  // namespace automap::systems
