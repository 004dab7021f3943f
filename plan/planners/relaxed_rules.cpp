#include "plan/planners/relaxed_rules.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {
namespace {

// Memory can decide where a device is this full, or where the plan saves memory by what takes time.
constexpr double kNearlyFull = 0.75;

struct Rule {
  std::string (*text)(const Question& question);
  std::string (*options)(const Question& question);
  bool possible;  // plans without it run on the same machines
  bool (*kept)(const Question& question);
  // Returns true if a plan that breaks the rule may be shorter than `plan`.
  bool (*may_bind)(const Candidate& plan);
  void (*lift)(Question& question, const Candidate& plan);
};

std::string own_variable(const Question& question) {
  if (question.options.allow_empty_stages) return "every stage has something to compute";
  return question.options.allow_idle_stages
             ? "every stage has a trainable variable of its own"
             : "every stage has a trainable variable of its own and something to compute";
}
std::string lift_own_variable_by(const Question& question) {
  if (question.options.allow_empty_stages) return "--allow-idle-stages";
  return question.options.allow_idle_stages ? "--allow-empty-stages" : "--allow-empty-stages --allow-idle-stages";
}
bool keeps_own_variable(const Question& question) {
  return !question.options.allow_empty_stages || !question.options.allow_idle_stages;
}
bool has_stages(const Candidate& plan) {
  return plan.num_stages() > 1;
}
void lift_own_variable(Question& question, const Candidate& plan) {
  question.options.allow_empty_stages = question.options.allow_idle_stages = true;
  question.request.stages = plan.num_stages();
}

std::string within_memory(const Question&) {
  return "a stage fits into the memory of its devices";
}
std::string lift_memory_by(const Question&) {
  return "--memory off";
}
bool keeps_memory(const Question& question) {
  return question.options.memory;
}
bool saves_memory(const Candidate& plan) {
  if (plan.memory_bytes > kNearlyFull * plan.capacity_bytes) return true;
  return std::any_of(plan.placed.stages.begin(), plan.placed.stages.end(), [](const pipeline::PlacedStage& stage) {
    return stage.problem->variant(stage.variant).recompute;
  });
}
void lift_memory(Question& question, const Candidate&) {
  question.options.memory = false;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {own_variable, lift_own_variable_by, true, keeps_own_variable, has_stages, lift_own_variable},
      {within_memory, lift_memory_by, false, keeps_memory, saves_memory, lift_memory},
  };
  return all;
}

// The plan's width alone: what is said is that a plan is there, not that none is shorter.
Question at_width_of(const Question& question, const Candidate& plan) {
  Question quick = question;
  quick.request.effort = plan_effort(Effort::kQuick);
  quick.request.lower_bound = quick.request.all_planners = false;
  pipeline::Profile profile = question.profile();
  auto& widths = profile.widths;
  widths.erase(std::remove_if(widths.begin(), widths.end(),
                              [&](const pipeline::WidthColumns& columns) { return columns.width != plan.width(); }),
               widths.end());
  quick.set_profile(std::move(profile));
  return quick;
}

}  // namespace

std::vector<RelaxedRule> relaxed_rules(const Question& question, const Candidate& plan, double step_ms) {
  std::vector<RelaxedRule> out;
  if (!plan.found() || !plan.of_one_width()) return out;
  const auto start = std::chrono::steady_clock::now();
  for (const Rule& rule : rules()) {
    if (!rule.kept(question) || !rule.may_bind(plan) || question.request.stopped()) continue;
    Question without = at_width_of(question, plan);
    without.request.time_limit_s -= seconds_since(start);
    if (!(without.request.time_limit_s > 0)) break;
    rule.lift(without, plan);
    try {
      const StepPlan found = plan_step(without);
      if (!found.result.plan || found.result.simulated_step_ms >= step_ms * (1 - kRuleWorthNaming)) continue;
      out.push_back({rule.text(question), rule.options(question), found.result.simulated_step_ms, rule.possible});
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kInfeasible) throw;
    }
  }
  return out;
}

std::vector<std::string> rules_of(const Question& question) {
  std::vector<std::string> out;
  for (const Rule& rule : rules()) {
    if (rule.kept(question)) out.push_back(rule.text(question));
  }
  if (question.options.replicas == pipeline::Replicas::kWhole) {
    out.emplace_back("the devices of a stage share its samples evenly");
  }
  return out;
}

}  // namespace automap::planners
